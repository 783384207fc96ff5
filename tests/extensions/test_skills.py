"""Skills: found in folders or given by functions, listed with digests, read as resources inside their folders only."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from mcptrio import Context, DeclarationError, Server
from mcptrio.extensions.skills import IDENTIFIER, Skills, catalog, safe_join, safe_read
from mcptrio.extensions.skills.files import UnsafePath
from mcptrio.extensions.skills.frontmatter import read_front_matter, write_front_matter
from tests.server.talk import talking

from .kit import Caller, calling

FRONT = "---\nname: {name}\ndescription: About {name}.\n---\n\n# {name}\n"


def put(root: Path, name: str, text: str | bytes | None = None) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        text = FRONT.format(name=path.parent.name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    put(root, "pdf/SKILL.md")
    put(root, "pdf/references/FORMS.md", "# Forms\n")
    put(root, "pdf/assets/logo.png", b"\x89PNG\r\n\xff\x00")
    put(root, "pdf/.hidden", "no")
    put(root, "acme/billing/refunds/SKILL.md")
    return root


def serving(folder: Path, **settings: Any) -> Server:
    server = Server("skilled")
    server.add_extension(Skills.from_folder(folder, **settings))
    return server


async def listed(caller: Caller, method: str, key: str, **params: Any) -> list[dict[str, Any]]:
    """Every page of a list."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await caller.ask(method, **params, **cursor)
        found += page[key]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


# -- what is listed


async def test_every_folder_with_a_skill_file_is_listed_with_all_its_files(folder: Path) -> None:
    async with calling(serving(folder)) as caller:
        result = await caller.ask("skills/list")
        assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (0, "private", "complete")
        refunds, pdf = result["skills"]
        assert refunds["uri"] == "skill://acme/billing/refunds/SKILL.md"
        assert pdf["frontmatter"] == {"name": "pdf", "description": "About pdf."}
        files = {file["uri"]: file for file in pdf["resources"]}
        assert list(files) == [
            "skill://pdf/SKILL.md",
            "skill://pdf/assets/logo.png",
            "skill://pdf/references/FORMS.md",
        ]
        data = (folder / "pdf/references/FORMS.md").read_bytes()
        forms = files["skill://pdf/references/FORMS.md"]
        assert forms["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert forms["size"] == len(data)


async def test_one_skill_is_given_by_its_uri(folder: Path) -> None:
    async with calling(serving(folder)) as caller:
        (_, pdf) = (await caller.ask("skills/list"))["skills"]
        result = await caller.ask("skills/get", uri=pdf["uri"])
        assert result["skill"] == pdf
        assert "nextCursor" not in result
        assert {"ttlMs", "cacheScope"} <= set(result)
        for uri in ("skill://pdf", "skill://pdf/references/FORMS.md", "skill://other/SKILL.md"):
            assert (await caller.refused("skills/get", uri=uri)).code == -32602


async def test_lists_come_in_pages_without_doubles(tmp_path: Path) -> None:
    for number in range(7):
        put(tmp_path, f"skill-{number}/SKILL.md")
        put(tmp_path, f"skill-0/references/{number}.md", "x")
    async with calling(serving(tmp_path, page_size=3)) as caller:
        uris = [skill["uri"] for skill in await listed(caller, "skills/list", "skills")]
        assert uris == [f"skill://skill-{number}/SKILL.md" for number in range(7)]
        inside = await listed(caller, "resources/directory/read", "resources", uri="skill://skill-0/references")
        assert [child["name"] for child in inside] == [f"{number}.md" for number in range(7)]
        for cursor in ("x", "%", "c2tpbA=="):
            assert (await caller.refused("skills/list", cursor=cursor)).code == -32602


async def test_the_server_declares_skills_and_resources(folder: Path) -> None:
    async with calling(serving(folder)) as caller:
        capabilities = (await caller.ask("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {IDENTIFIER: {"directoryRead": True}}
        assert "resources" in capabilities
    async with calling(Server("without")) as caller:
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert (await caller.refused(method, uri="skill://x/SKILL.md")).code == -32601


async def test_nested_skills_are_listed_for_themselves_and_are_files_of_the_outer_one(tmp_path: Path) -> None:
    put(tmp_path, "outer/SKILL.md")
    put(tmp_path, "outer/inner/SKILL.md")
    async with calling(serving(tmp_path)) as caller:
        outer, inner = await listed(caller, "skills/list", "skills")
        assert [file["uri"] for file in outer["resources"]] == [outer["uri"], inner["uri"]]
        assert [file["uri"] for file in inner["resources"]] == [inner["uri"]]
        (entry,) = [child for child in await children(caller, "skill://outer/inner") if child["uri"] == inner["uri"]]
        assert entry["name"] == "inner"


async def children(caller: Caller, uri: str) -> list[dict[str, Any]]:
    return await listed(caller, "resources/directory/read", "resources", uri=uri)


async def test_stateful_clients_can_list_skills_too(folder: Path) -> None:
    async with talking(serving(folder)) as talk:
        result = await talk.request("skills/list")
        assert len(result["skills"]) == 2
        assert "ttlMs" not in result


# -- reading


async def test_files_are_resources(folder: Path) -> None:
    async with calling(serving(folder)) as caller:
        (front,) = (await caller.ask("resources/read", uri="skill://pdf/SKILL.md"))["contents"]
        assert front["mimeType"] == "text/markdown"
        assert front["text"] == FRONT.format(name="pdf")
        (logo,) = (await caller.ask("resources/read", uri="skill://pdf/assets/logo.png"))["contents"]
        assert (logo["mimeType"], "blob" in logo, "text" in logo) == ("image/png", True, False)
        resources = await listed(caller, "resources/list", "resources")
        assert [(r["uri"], r["name"], r["description"]) for r in resources] == [
            ("skill://acme/billing/refunds/SKILL.md", "refunds", "About refunds."),
            ("skill://pdf/SKILL.md", "pdf", "About pdf."),
        ]


async def test_folders_list_their_direct_children(folder: Path) -> None:
    async with calling(serving(folder)) as caller:
        found = {child["uri"]: child.get("mimeType") for child in await children(caller, "skill://pdf")}
        assert found == {
            "skill://pdf/SKILL.md": "text/markdown",
            "skill://pdf/assets": "inode/directory",
            "skill://pdf/references": "inode/directory",
        }
        for uri in ("skill://pdf/SKILL.md", "skill://pdf/", "skill://pdf/none", "skill://", "file:///etc"):
            assert (await caller.refused("resources/directory/read", uri=uri)).code == -32602


async def test_names_with_spaces_and_accents_travel_encoded(tmp_path: Path) -> None:
    put(tmp_path, "odd/SKILL.md")
    put(tmp_path, "odd/how to füge.md", "words")
    async with calling(serving(tmp_path)) as caller:
        (skill,) = await listed(caller, "skills/list", "skills")
        uri = skill["resources"][1]["uri"]
        assert uri == "skill://odd/how%20to%20f%C3%BCge.md"
        assert (await caller.ask("resources/read", uri=uri))["contents"][0]["text"] == "words"


TRAVERSALS = [
    "../secret",
    "references/../../secret",
    "./SKILL.md",
    "references/./FORMS.md",
    "references//FORMS.md",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "%252e%252e%252fsecret",
    "..%5csecret",
    "..\\secret",
    "....//secret",
    "..;/secret",
    "SKILL.md%00",
    "SKILL.md\0.png",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/fd/0",
    "C:/secret",
    "C:\\secret",
    "\\\\host\\share\\secret",
    "file:///etc/passwd",
    "link",
    "linked/secret",
    ".hidden",
    "SKILL.md/",
    "SKILL.md ",
    "SKILL.md.",
    "SKILL.md::$DATA",
    "skill.md",
    "\uff0e\uff0e/secret",
    "references",
    "..%c0%afsecret",
    "%c0%ae%c0%ae/secret",
    "..%u2215secret",
    "../secret%00.md",
    "references/..",
    "../../../../../../../../../../etc/passwd",
    "../pdf/SKILL.md",
    "SKILL.md?x=../secret",
    "SKILL.md#x",
]


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_neg_resource_traversal(folder: Path, path: str) -> None:
    """Nothing but the listed files can be read, however its name is spelled (U01, V63)."""
    put(folder.parent, "secret", "the secret")
    os.symlink(folder.parent / "secret", folder / "pdf" / "link")
    os.symlink(folder.parent, folder / "pdf" / "linked")
    async with calling(serving(folder)) as caller:
        error = await caller.refused("resources/read", uri=f"skill://pdf/{path}")
        assert error.code == -32602
        entries = await listed(caller, "skills/list", "skills")
        assert not any("link" in file["uri"] for file in entries[1]["resources"])


# Not listed, but names that a file in the folder might have
INSIDE = ("skill.md", "references", ".hidden", "..;/secret", "\uff0e\uff0e/secret", "SKILL.md#x")


@pytest.mark.parametrize("path", [path for path in TRAVERSALS if path not in INSIDE])
def test_a_path_that_leads_elsewhere_is_never_opened(folder: Path, path: str) -> None:
    put(folder.parent, "secret", "the secret")
    os.symlink(folder.parent / "secret", folder / "pdf" / "link")
    os.symlink(folder.parent, folder / "pdf" / "linked")
    with pytest.raises(UnsafePath):
        safe_read(folder / "pdf", path, limit=100)
    with pytest.raises(UnsafePath):
        safe_join(folder / "pdf", path)


def test_a_path_inside_is_read_and_joined(folder: Path) -> None:
    assert safe_read(folder, "pdf/references/FORMS.md", limit=100) == b"# Forms\n"
    assert safe_join(folder, "pdf/references") == (folder / "pdf" / "references").resolve()
    with pytest.raises(UnsafePath):
        safe_read(folder, "pdf/references", limit=100)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        safe_read(folder, "pdf/references/FORMS.md", limit=3)


async def test_a_file_that_is_replaced_by_a_link_is_not_followed(folder: Path) -> None:
    put(folder.parent, "secret", "the secret")
    async with calling(serving(folder, fresh_for=1000)) as caller:
        await caller.ask("skills/list")
        (folder / "pdf/references/FORMS.md").unlink()
        os.symlink(folder.parent / "secret", folder / "pdf/references/FORMS.md")
        error = await caller.refused("resources/read", uri="skill://pdf/references/FORMS.md")
        assert error.code == -32602


# -- changes


async def test_edits_are_seen_without_a_restart(folder: Path, mock_clock: MockClock) -> None:
    async with calling(serving(folder)) as caller:
        (_, before) = await listed(caller, "skills/list", "skills")
        put(folder, "pdf/references/FORMS.md", "# Other forms\n")
        put(folder, "new/SKILL.md")
        mock_clock.jump(2)
        new, after = (await listed(caller, "skills/list", "skills"))[1:]
        assert new["uri"] == "skill://new/SKILL.md"
        assert before["resources"][2]["digest"] != after["resources"][2]["digest"]
        assert before["resources"][:2] == after["resources"][:2]
        (contents,) = (await caller.ask("resources/read", uri="skill://new/SKILL.md"))["contents"]
        assert contents["text"] == FRONT.format(name="new")
        assert len(await listed(caller, "resources/list", "resources")) == 3


async def test_skills_of_one_name_in_two_folders_are_served(folder: Path, mock_clock: MockClock) -> None:
    put(folder, "acme/pdf/SKILL.md")
    async with calling(serving(folder)) as caller:
        assert len(await listed(caller, "skills/list", "skills")) == 3
        put(folder, "later/pdf/SKILL.md")
        mock_clock.jump(2)
        assert len(await listed(caller, "skills/list", "skills")) == 4
        names = {resource["uri"]: resource["name"] for resource in await listed(caller, "resources/list", "resources")}
        assert names == {
            "skill://acme/billing/refunds/SKILL.md": "refunds",
            "skill://acme/pdf/SKILL.md": "pdf",
            "skill://pdf/SKILL.md": "skill://pdf/SKILL.md",
            "skill://later/pdf/SKILL.md": "later/pdf",
        }


async def test_a_skill_may_have_the_name_of_a_resource(folder: Path) -> None:
    server = Server("skilled")

    @server.resource("notes://pdf", name="pdf")
    async def note() -> str:
        return "note"

    server.add_extension(Skills.from_folder(folder))
    async with calling(server) as caller:
        names = [resource["name"] for resource in await listed(caller, "resources/list", "resources")]
        assert names == ["pdf", "refunds", "skill://pdf/SKILL.md"]


@pytest.mark.defect("D08")
@pytest.mark.parametrize("taken", ["skill://{+path}", "skill://pdf/SKILL.md"])
def test_skills_whose_place_is_taken_are_not_added(taken: str, folder: Path) -> None:
    server, skills = Server("skilled"), Skills.from_folder(folder)

    async def read(path: str = "") -> str:
        return path

    server.add_resource(taken, read)
    for _ in range(2):  # the second try is refused for the same reason
        with pytest.raises(DeclarationError, match=rf"there is a \w+ '{re.escape(taken)}' already"):
            server.add_extension(skills)
    app = server._app
    assert "skills/list" not in app.router
    assert (len(app.extensions), len(app.resources.registry) + len(app.resources.templates)) == (0, 1)


@pytest.mark.defect("D16")
async def test_a_skill_that_an_edit_breaks_is_not_served_until_it_is_corrected(
    folder: Path, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry that is listed can be loaded: its digests are those of the files."""
    async with calling(serving(folder)) as caller:
        before = await listed(caller, "skills/list", "skills")
        put(folder, "pdf/SKILL.md", "no front matter")
        for _ in range(3):
            mock_clock.jump(2)
            assert await listed(caller, "skills/list", "skills") == before[:1]
        assert (await caller.refused("skills/get", uri="skill://pdf/SKILL.md")).code == -32602
        assert (await caller.refused("resources/read", uri="skill://pdf/SKILL.md")).code == -32602
        assert len(await listed(caller, "resources/list", "resources")) == 1
        assert caplog.text.count("must begin with YAML") == 1
        put(folder, "pdf/SKILL.md")
        mock_clock.jump(2)
        assert await listed(caller, "skills/list", "skills") == before


@pytest.mark.defect("D16")
async def test_a_deleted_skill_is_gone_although_another_one_is_broken(folder: Path, mock_clock: MockClock) -> None:
    async with calling(serving(folder)) as caller:
        put(folder, "pdf/SKILL.md", "no front matter")
        os.unlink(folder / "acme/billing/refunds/SKILL.md")
        mock_clock.jump(2)
        assert await listed(caller, "skills/list", "skills") == []


@pytest.mark.defect("D17")
@pytest.mark.parametrize("name", ["pdf/references/FORMS.md", "pdf/SKILL.md"])
@pytest.mark.parametrize("when", ["while the folder is walked", "before it is read", "while it is read"])
async def test_a_file_that_vanishes_during_a_look_is_not_there(
    name: str, when: str, folder: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folder / name
    lstat, safe = os.lstat, catalog.safe_read
    looks = 0

    def vanishing_lstat(path: Any, **how: Any) -> os.stat_result:
        nonlocal looks
        if Path(path) == gone:
            looks += 1
            if looks == (1 if when == "while the folder is walked" else 2) and when != "while it is read":
                gone.unlink()
        return lstat(path, **how)

    def vanishing_read(root: Path, relative: str, *, limit: int) -> bytes:
        if when == "while it is read" and root / relative == gone:
            gone.unlink()
        return safe(root, relative, limit=limit)

    async with calling(serving(folder)) as caller:
        await listed(caller, "skills/list", "skills")
        put(folder, name, FRONT.format(name="pdf") + "edited")
        monkeypatch.setattr("mcptrio.extensions.skills.catalog.os.lstat", vanishing_lstat)
        monkeypatch.setattr(catalog, "safe_read", vanishing_read)
        mock_clock.jump(2)
        skills = await listed(caller, "skills/list", "skills")
        if name == "pdf/SKILL.md":
            assert [skill["uri"] for skill in skills] == ["skill://acme/billing/refunds/SKILL.md"]
        else:
            assert [file["uri"] for file in skills[1]["resources"]] == [
                "skill://pdf/SKILL.md",
                "skill://pdf/assets/logo.png",
            ]


# -- functions


async def test_a_function_gives_a_skill() -> None:
    skills = Skills()
    server = Server("functions")
    server.add_extension(skills)

    @skills.skill(license="MIT", metadata={"version": "2.0", "no": "yes"})
    def git_workflow() -> str:
        """Follow this team's conventions: "branch", then commit."""
        return "# How we branch\n"

    async with calling(server) as caller:
        (skill,) = await listed(caller, "skills/list", "skills")
        assert skill["uri"] == "skill://git-workflow/SKILL.md"
        (front,) = (await caller.ask("resources/read", uri=skill["uri"]))["contents"]
        assert read_front_matter(front["text"]) == skill["frontmatter"]
        assert skill["frontmatter"]["license"] == "MIT"
        (file,) = skill["resources"]
        data = front["text"].encode()
        assert (file["size"], file["digest"]) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
        assert front["text"].endswith("# How we branch\n")


async def test_a_dynamic_skill_is_made_for_each_reader_and_has_no_digests() -> None:
    skills, server = Skills(), Server("functions")
    server.add_extension(skills)
    made: list[int] = []

    @skills.skill(path="team/today", dynamic=True)
    def today() -> str:
        """Today's programme."""
        made.append(1)
        return f"number {len(made)}"

    async with calling(server) as caller:
        (skill,) = await listed(caller, "skills/list", "skills")
        assert (skill["uri"], skill["resources"]) == ("skill://team/today/SKILL.md", "dynamic")
        texts = [(await caller.ask("resources/read", uri=skill["uri"]))["contents"][0]["text"] for _ in range(2)]
        assert texts[0] != texts[1]


async def test_a_skill_can_be_written_down_with_its_files() -> None:
    skills, server = Skills(), Server("written")
    skills.add_skill("a", {"name": "a", "description": "A."}, "body", files={"references/x.md": "x", "b.bin": b"\xff"})
    server.add_extension(skills)
    async with calling(server) as caller:
        (skill,) = await listed(caller, "skills/list", "skills")
        assert len(skill["resources"]) == 3
        assert (await caller.ask("resources/read", uri="skill://a/references/x.md"))["contents"][0]["text"] == "x"


# -- rules


BAD = [
    ("Upper/SKILL.md", FRONT.format(name="Upper"), "name must be"),
    ("two--hyphens/SKILL.md", FRONT.format(name="two--hyphens"), "name must be"),
    ("long/SKILL.md", FRONT.format(name="x" * 65), "name must be"),
    ("other/SKILL.md", FRONT.format(name="name"), "that of its folder"),
    ("none/SKILL.md", "# nothing", "must begin with YAML"),
    ("empty/SKILL.md", "---\n---\n", "mapping"),
    ("undescribed/SKILL.md", "---\nname: undescribed\n---\n", "description"),
    ("list/SKILL.md", "---\n- a\n---\n", "mapping"),
    ("broken/SKILL.md", "---\nname: [\n---\n", "cannot be read"),
    ("code/SKILL.md", "---\nname: code\ndescription: !!python/object/apply:os.getcwd []\n---\n", "cannot be read"),
    ("bomb/SKILL.md", "---\nname: bomb\ndescription: d\na: &a [x]\nb: *a\n---\n", "aliases"),
    ("double/SKILL.md", "---\nname: double\nname: double\ndescription: d\n---\n", "twice"),
    ("keys/SKILL.md", "---\nname: keys\ndescription: d\n1: x\n---\n", "not a text"),
    (
        "meta/SKILL.md",
        "---\nname: meta\ndescription: d\nmetadata:\n  io.modelcontextprotocol/x: 1\n---\n",
        "reserved",
    ),
    ("latin/SKILL.md", "---\nname: latin\ndescription: \xe9\n---\n".encode("latin-1"), "utf-8"),
    ("SKILL.md", FRONT.format(name="skills"), "is a skill itself"),
]


@pytest.mark.parametrize(("name", "text", "hint"), BAD, ids=[name for name, _, _ in BAD])
def test_a_skill_that_breaks_a_rule_is_refused_when_declared(
    tmp_path: Path, name: str, text: str | bytes, hint: str
) -> None:
    put(tmp_path, name, text)
    with pytest.raises(DeclarationError, match=hint):
        Skills.from_folder(tmp_path)


def test_a_skill_has_so_many_files_and_bytes(tmp_path: Path) -> None:
    put(tmp_path / "one", "many/SKILL.md")
    for number in range(512):
        put(tmp_path / "one", f"many/{number}.md", "")
    with pytest.raises(DeclarationError, match="513 files"):
        Skills.from_folder(tmp_path / "one")
    put(tmp_path / "two", "large/SKILL.md")
    for number in range(3):
        put(tmp_path / "two", f"large/{number}.bin", b"\0" * (6 * 2**20))
    with pytest.raises(DeclarationError, match="16 MiB"):
        Skills.from_folder(tmp_path / "two")


def test_missing_folders_duplicate_skills_and_outside_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no folder"):
        Skills.from_folder(tmp_path / "none")
    skills = Skills()
    skills.add_skill("a", {"name": "a", "description": "A."}, "body")
    with pytest.raises(DeclarationError, match="already"):
        skills.add_skill("a", {"name": "a", "description": "A."}, "body")
    with pytest.raises(DeclarationError, match="not a path inside"):
        skills.add_skill("../a", {"name": "a", "description": "A."}, "body")
    with pytest.raises(DeclarationError, match="not a path inside"):
        skills.add_skill("b", {"name": "b", "description": "B."}, "body", files={"../x": "x"})


def test_front_matter_is_read_as_json_would_be() -> None:
    """Hosts compare what they parse with what was listed: `no`, dates and octals are what YAML 1.2 says."""
    text = (
        "---\nname: a\ndescription: d\nanswer: no\nday: 2026-07-28\nnumber: 012\nhex: 0x1F\nfloat: 1.5\n"
        'nothing: ~\nempty:\nyes: true\nclock: 12:30:00\nquoted: "1"\nmerge: {"<<": 1}\n---\nbody\n---\nmore'
    )
    assert read_front_matter(text) == {
        "name": "a",
        "description": "d",
        "answer": "no",
        "day": "2026-07-28",
        "number": 12,
        "hex": 31,
        "float": 1.5,
        "nothing": None,
        "empty": None,
        "yes": True,
        "clock": "12:30:00",
        "quoted": "1",
        "merge": {"<<": 1},
    }


def test_front_matter_that_is_written_reads_the_same() -> None:
    fields = {
        "name": "a",
        "description": 'x: "y" # {z} \n --- \u2028 é \x85\x7f\ufeff \U0001f600',
        "metadata": {"a b": [1, None, True, 1e20]},
    }
    assert read_front_matter(write_front_matter(fields) + "body") == fields


# -- composing


@pytest.mark.defect("D16")
async def test_skills_come_along_when_a_server_is_included(folder: Path, mock_clock: MockClock) -> None:
    outer = Server("outer")

    @outer.tool
    async def look(ctx: Context) -> str:
        return "looked"

    async def names(caller: Caller) -> set[str]:
        return {each["name"] for each in await listed(caller, "resources/list", "resources")}

    inner, middle = serving(folder), Server("middle")
    middle.include(inner, prefix="in-")
    outer.include(middle, prefix="out-")
    async with calling(outer) as caller, calling(inner) as direct:
        assert len(await listed(caller, "skills/list", "skills")) == 2
        assert await names(caller) == {"out-in-pdf", "out-in-refunds"}
        put(folder, "new/SKILL.md")
        put(folder, "pdf/SKILL.md", FRONT.format(name="pdf") + "changed")
        mock_clock.jump(2)
        assert len(await listed(caller, "skills/list", "skills")) == 3
        assert await names(caller) == {"out-in-pdf", "out-in-refunds", "out-in-new"}
        assert await names(direct) == {"pdf", "refunds", "new"}
        outer.remove_resource("skill://new/SKILL.md")
        put(folder, "new/SKILL.md", FRONT.format(name="new") + "changed")
        mock_clock.jump(2)
        assert len(await listed(caller, "skills/list", "skills")) == 3, "a resource that was removed is no error"
    put(folder.parent / "more", "more/SKILL.md")
    with pytest.raises(DeclarationError, match="both servers have skills"):
        outer.include(serving(folder.parent / "more"))
