"""Clients load skills, and refuse what is not as it was listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcptrio import Context, RemoteProtocolError, Server, connect
from mcptrio.extensions.skills import Skills
from mcptrio.extensions.skills.loading import SkillMismatch, list_skills, load_skill

FRONT = "---\nname: pdf\ndescription: About PDF.\n---\n\n# PDF\n"


def server_of(folder: Path) -> Server:
    (folder / "pdf" / "references").mkdir(parents=True)
    (folder / "pdf" / "SKILL.md").write_text(FRONT, encoding="utf-8")
    (folder / "pdf" / "references" / "FORMS.md").write_bytes(b"# Forms\n")
    (folder / "pdf" / "logo.png").write_bytes(b"\x89PNG\xff")
    server = Server("skilled")
    server.add_extension(Skills.from_folder(folder, page_size=1, fresh_for=1e9))
    return server


async def test_a_skill_is_loaded_with_its_files(tmp_path: Path) -> None:
    async with connect(server_of(tmp_path)) as client:
        (entry,) = await list_skills(client)
        skill = await load_skill(client, entry)
        assert skill.text == FRONT
        assert await skill.read("references/FORMS.md") == b"# Forms\n"
        assert await skill.read("logo.png") == b"\x89PNG\xff"
        assert (await load_skill(client, entry["uri"])).entry == entry


async def test_a_file_that_was_not_listed_is_not_even_asked_for(tmp_path: Path) -> None:
    async with connect(server_of(tmp_path)) as client:
        skill = await load_skill(client, "skill://pdf/SKILL.md")
        with pytest.raises(SkillMismatch, match="not among the files"):
            await skill.read("references/OTHER.md")


def changed(entry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The entry with other words about SKILL.md."""
    front = next(file for file in entry["resources"] if file["uri"] == entry["uri"])
    others = [file for file in entry["resources"] if file is not front]
    return {**entry, "resources": [{**front, **fields}, *others]}


async def test_a_skill_that_differs_from_its_entry_is_refused(tmp_path: Path) -> None:
    async with connect(server_of(tmp_path)) as client:
        (entry,) = await list_skills(client)
        with pytest.raises(SkillMismatch, match="digest"):
            await load_skill(client, changed(entry, digest="sha256:" + "0" * 64))
        with pytest.raises(SkillMismatch, match="bytes"):
            await load_skill(client, changed(entry, size=1))
        with pytest.raises(SkillMismatch, match="front matter"):
            await load_skill(client, {**entry, "frontmatter": {**entry["frontmatter"], "license": "MIT"}})
        skill = await load_skill(client, entry)
        (tmp_path / "pdf" / "references" / "FORMS.md").write_bytes(b"# Evil!\n")
        with pytest.raises(SkillMismatch, match="digest"):
            await skill.read("references/FORMS.md")


async def test_a_dynamic_skill_is_held_against_its_front_matter_only() -> None:
    skills, server = Skills(), Server("dynamic")
    server.add_extension(skills)
    count: list[int] = []

    @skills.skill(dynamic=True)
    def today() -> str:
        """Today's programme."""
        count.append(1)
        return f"{len(count)}"

    async with connect(server) as client:
        (entry,) = await list_skills(client)
        skill = await load_skill(client, entry)
        assert skill.text.endswith(str(len(count)))
        with pytest.raises(SkillMismatch, match="front matter"):
            await load_skill(client, {**entry, "frontmatter": {}})


ENTRY = {"uri": "skill://pdf/SKILL.md", "frontmatter": {"name": "pdf"}}
NO_SKILLS: dict[str, Any] = {
    "an object": {"skills": {}},
    "a text in the list": {"skills": ["pdf"]},
    "no URI": {"skills": [{"frontmatter": {}}]},
    "a number as URI": {"skills": [{**ENTRY, "uri": 1}]},
    "no front matter": {"skills": [{"uri": "skill://pdf/SKILL.md"}]},
    "a file without a URI": {"skills": [{**ENTRY, "resources": [{}]}]},
}


def answering(result: Any) -> Any:
    async def handler(ctx: Context, params: Any) -> Any:
        return result

    return handler


@pytest.mark.parametrize("page", NO_SKILLS.values(), ids=NO_SKILLS)
async def test_an_entry_that_is_none_is_an_error_of_the_server(page: dict[str, Any]) -> None:
    server = Server("odd")
    server.route("skills/list", answering(page))
    server.route("skills/get", answering({"skill": next(iter(page["skills"]), None)}))
    async with connect(server) as client:
        with pytest.raises(RemoteProtocolError):
            await list_skills(client)
        with pytest.raises(RemoteProtocolError):
            await load_skill(client, "skill://pdf/SKILL.md")


@pytest.mark.parametrize("contents", [[], [{}], [{"blob": "?"}], [{"blob": "é"}], [{"text": 1}], {}], ids=repr)
async def test_a_file_that_cannot_be_read_is_an_error_of_the_server(contents: Any) -> None:
    server = Server("odd")
    server.add_extension(Skills())
    server.route("resources/read", answering({"contents": contents}))
    async with connect(server) as client:
        with pytest.raises(RemoteProtocolError):
            await load_skill(client, ENTRY)
