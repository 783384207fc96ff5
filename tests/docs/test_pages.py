"""The documentation agrees with the code: nothing is out of date, no link is broken, every command exists."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mcptrio
from mcptrio import HttpConfig, Limits
from mcptrio._peer.states import ANY_BUT_INITIALIZE, OPENING
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio._wire.lines import MAX_LINE
from mcptrio.auth.server import BearerAuth
from mcptrio.cli import COMMANDS
from mcptrio.cli.command import app_for
from mcptrio.cli.settings import read_settings
from mcptrio.cli.target import with_command
from mcptrio.extensions.tasks import Tasks
from mcptrio.stores import StoreLimits

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    before = list(sys.path)
    try:
        return load(ROOT / "docs" / "generate.py")
    finally:
        sys.path[:] = before


PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def fences(text: str) -> list[tuple[str, str]]:
    return [(found["language"], found["body"]) for found in _FENCE.finditer(text)]


@every_page
def test_generated_parts_of_a_page_are_up_to_date(page: Path, generate: ModuleType) -> None:
    text = page.read_text()
    assert generate.fill(text) == text, f"{page.relative_to(ROOT)} is out of date: run python docs/generate.py"


def test_the_diagrams_are_up_to_date(generate: ModuleType) -> None:
    drawn = {file: text for file, text in generate.files().items() if file.suffix == ".svg"}
    assert len(drawn) >= 5
    assert [file.name for file, text in drawn.items() if file.read_text() != text] == []


def test_every_diagram_is_shown_and_nothing_is_loaded_from_elsewhere() -> None:
    docs = ROOT / "docs"
    shown = "".join(page.read_text() for page in docs.rglob("*.md"))
    assert [
        file.name for file in docs.rglob("*.svg") if f"{file.name})" not in shown and "assets" not in file.parts
    ] == []
    assert re.findall(r"!\[[^\]]*\]\(https?:", shown) == []
    assert "mermaid" not in shown


@pytest.mark.parametrize("chart", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda file: file.name)
def test_a_drawing_is_readable_on_light_and_dark_pages(chart: Path) -> None:
    text = chart.read_text()
    assert "prefers-color-scheme: dark" in text or chart.parent.name == "assets"


@every_page
def test_every_piece_of_python_comes_from_a_file_that_tests_run(page: Path, generate: ModuleType) -> None:
    text = re.sub(r"<!-- table: .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)  # signatures, from the code
    marked = [part["what"] for part in generate._PART.finditer(text) if part["what"].partition(":")[0].endswith(".py")]
    assert sum(language == "python" for language, _ in fences(text)) == len(marked)
    for what in marked:
        file = ROOT / what.partition(":")[0]
        assert file.is_file()
        assert file.parent in (ROOT / "examples", ROOT / "docs" / "snippets")


@every_page
def test_no_link_is_broken(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    for found in _LINK.finditer(text):
        path, _, anchor = found["target"].partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{found['target']} does not exist"
        if anchor:
            headings = [slug(line) for line in target.read_text().splitlines() if line.startswith("#")]
            assert anchor in headings, f"{found['target']}: there are {headings}"


def slug(heading: str) -> str:
    bare = re.sub(r"[^\w\s-]", "", heading.lstrip("# ").lower())
    return re.sub(r"[\s]+", "-", bare.strip())


@every_page
def test_every_command_that_is_shown_exists(page: Path, generate: ModuleType) -> None:
    commands = load(ROOT / "dev.py").COMMANDS
    for language, body in fences(page.read_text()):
        if language == "json":
            json.loads(body)
        if language not in ("sh", "console"):
            continue
        lines = body.replace("\\\n", " ").splitlines()
        if language == "console":  # the others are output
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            program, *arguments = shlex.split(line)
            if program == "mcptrio":
                understand(*arguments)
            elif program == "make":
                assert arguments[0] in commands
            else:
                assert program.rpartition("/")[2] in {
                    "cd",
                    "echo",
                    "export",
                    "git",
                    "mkdir",
                    "openssl",
                    "pip",
                    "python",
                    "python3",
                    "hypercorn",
                    "uvicorn",
                    "mcptrio",
                    "source",
                }, line
                for file in (part.partition(":")[0] for part in arguments if part.startswith("examples/")):
                    assert (ROOT / file).is_file()


def understand(command: str, *arguments: str) -> None:
    """Fails where the command line would."""
    if command == "run":
        read_settings(arguments, {})
    elif command != "--version":
        assert command in COMMANDS
        app_for(command).parse_args([command, *with_command(arguments)], print_error=False, exit_on_error=False)


def test_the_reference_has_every_public_name() -> None:
    text = "".join((ROOT / "docs" / "reference" / f"{name}.md").read_text() for name in ("api", "errors"))
    missing = [name for name in mcptrio.__all__ if f"### `{name}`" not in text and f"| `{name}` |" not in text]
    assert missing == []


def test_every_setting_is_explained_in_a_sentence(generate: ModuleType) -> None:
    """Its type and its default do not say when to change it."""
    settings = {
        f"{name}.{field}": words
        for name, module in generate.tables.CONFIGS.items()
        for field, _, words in generate.tables.documented(getattr(importlib.import_module(module), name))
    }
    assert len(settings) > 150
    assert [name for name, words in settings.items() if not re.match(r"[A-Z`].{20,}\.$", words)] == []


def test_every_class_of_settings_has_its_table(generate: ModuleType) -> None:
    public = {name for name in mcptrio.__all__ if name.endswith(("Config", "Limits", "Options"))}
    assert public
    assert public <= set(generate.tables.CONFIGS)
    text = "".join((ROOT / "docs" / "reference" / f"{name}.md").read_text() for name in ("settings", "options"))
    elsewhere = {"Tasks": "tasks", "Csp": "apps"}  # next to their subject
    for name in generate.tables.CONFIGS:
        page = (ROOT / "docs" / "howto" / f"{elsewhere[name]}.md").read_text() if name in elsewhere else text
        assert f"<!-- table: settings {name} -->" in page, name


def test_the_diagram_has_every_move_of_the_table(generate: ModuleType) -> None:
    text = generate.tables.states()
    for state, moves in OPENING.items():
        for method, after in moves.items():
            word = method if method != ANY_BUT_INITIALIZE else "anything but initialize"
            part = text.partition(f"[{state.name}")[2]
            assert word in (part.partition("]")[0] if after is state else part.partition("]")[2].partition("\n[")[0])


def test_every_page_can_be_found_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "news"]
    assert [page for page in pages if page not in menu] == []
    named = re.findall(r"[\w/-]+\.md", menu)
    assert [page for page in named if not (docs / page).is_file()] == []


def test_language_models_get_every_page_as_markdown(tmp_path: Path) -> None:
    llms = load(ROOT / "docs" / "llms.py")
    llms.write(tmp_path)
    index, whole = (tmp_path / "llms.txt").read_text(), (tmp_path / "llms-full.txt").read_text()
    docs = ROOT / "docs"
    pages = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "news")
    assert [page for page in pages if f"]({page}): " not in index] == []
    assert [page for page in pages if f"<!-- {page} -->" not in whole] == []
    assert [page for page in pages if not (tmp_path / page).read_text().startswith("# ")] == []
    assert re.findall(r"<!-- (?:docs/snippets|examples|table|end).*", whole) == []
    assert "await ctx.elicit(" in whole


def test_the_security_page_tells_the_defaults_that_the_code_has() -> None:
    http, limits = HttpConfig(), Limits()
    store, tasks, lines = StoreLimits(), Tasks(), JsonLimits()
    token = BearerAuth(resource="https://example.org/mcp", issuers=["https://login.example.org"])
    mib = 2**20
    expected = [
        f"| {http.host} | `host`",
        f"{http.max_header_bytes // 1024} KiB, {http.max_headers} fields, within {http.header_timeout:g} s",
        f"{http.max_body // mib} MiB, within {http.body_timeout:g} s; on stdio a line of {MAX_LINE // mib} MiB",
        f"{http.max_body_memory // mib} MiB in total; further",
        f"{lines.max_depth} levels, {lines.max_nodes:,} values, batches of {lines.max_batch}",
        f"| connections | {http.max_connections:,} |",
        f"disconnected after {http.write_timeout:g} s",
        f"{limits.max_sessions:,}, and {http.max_sessions_per_principal} of one principal",
        f"ended after {limits.idle_timeout / 60:g} minutes idle, after {limits.confirm_timeout:g} s if the client",
        f"{limits.running} running and {limits.waiting} waiting in a session",
        f"{http.max_calls:,} in the process, and {http.max_calls_per_principal} of one principal",
        f"{limits.call_timeout:g} s without progress, {limits.call_timeout_hard / 60:g} minutes in total",
        f"{limits.parked_max:,}, for {limits.parked_ttl / 60:g} minutes",
        f"{store.stream_events:,} events or {store.stream_bytes // mib} MiB per stream",
        f"{store.total_bytes // mib} MiB in total, for",
        f"for {store.stream_age / 60:g} minutes after the end of a stream",
        f"{tasks.max_running:,} running, {store.tasks:,} or {store.task_bytes // mib} MiB stored",
        f"checked again after {token.cache:g} s, {token.clock_skew:g} s of clock skew",
    ]
    page = (ROOT / "docs" / "howto" / "security.md").read_text()
    assert [text for text in expected if text not in page] == []
    assert (http.allowed_hosts, http.allowed_origins, http.rate, http.legacy_sse, http.health) == (
        *(None, None, None),
        *(False, True),
    )


def test_news_fragments_are_named_after_their_kind() -> None:
    news = [file for file in (ROOT / "docs" / "news").iterdir() if file.name != "README.md"]
    assert [
        file.name for file in news if not re.fullmatch(r"[\w-]+\.(feature|fix|change|removal)\.md", file.name)
    ] == []


@every_page
def test_a_line_holds_one_sentence(page: Path) -> None:
    """So that a change of one sentence is a change of one line."""
    text = re.sub(r"<!-- table: .*?<!-- end -->", "", _FENCE.sub("", page.read_text()), flags=re.DOTALL)
    crowded = [
        line
        for line in text.splitlines()
        if not re.match(r"[|>#*-]|\d+\.", line) and re.search(r"[a-z`)]\. [A-Z`]", line)
    ]
    assert crowded == []


@every_page
def test_every_name_in_a_piece_of_code_is_imported_or_defined_on_its_page(page: Path) -> None:
    """A reader can follow a page from the top without guessing where a name comes from."""
    text = re.sub(r"<!-- table: .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
    known = set(dir(builtins)) | {"__name__"}
    for language, body in fences(text):
        if language == "python":
            tree = ast.parse(body)
            known |= bound(tree)
            unknown = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known
            assert unknown == set(), f"in the block that begins with {body.partition(chr(10))[0]!r}"


def bound(tree: ast.AST) -> set[str]:
    """Return the names that a piece of code defines, imports or takes as parameters."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchAs(name=str(name)):
                names.add(name)
    return names


READ_ONLINE = [page for page in PAGES if page.name == "README.md" or (ROOT / "docs" in page.parents)]


@pytest.mark.parametrize("page", [page for page in READ_ONLINE if "news" not in page.parts], ids=lambda page: page.stem)
def test_a_page_begins_with_a_sentence_that_says_what_it_is_about(page: Path) -> None:
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(), flags=re.DOTALL).strip()
    title, _, rest = text.partition("\n\n")
    assert re.match(r"# \S", title)
    assert re.match(r"[A-Za-z`\[].{15,}[.:]$", rest.partition("\n")[0])


OLD_WORDS = re.compile(  # (?<![a-z]) instead of \b: the names of tests count, too
    r"(?<![a-z])(whoever|whomever|nobody|anew|in[ _]vain|rubbish|mend|mends|mended|mending|dear|dearer|beside)(?![a-z])"
    r'|(?<![a-z])(is|are|was|were)[ _]told(?![a-z])|"""(The same|What|Who) ',
    re.IGNORECASE,
)


def test_all_texts_are_written_in_plain_english() -> None:
    texts = [
        *ROOT.glob("*.md"),
        ROOT / "dev.py",
        *(page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts),  # generated from docstrings
        *(
            file
            for folder in ("mcptrio", "docs", "examples", "tests", "benchmarks")
            for file in (ROOT / folder).rglob("*")
            if file.suffix in (".py", ".toml") or (file.suffix == ".md" and folder != "docs")
        ),
    ]
    found = {
        f"{text.relative_to(ROOT)}:{number}": line
        for text in texts
        for number, line in enumerate(text.read_text().splitlines(), 1)
        if OLD_WORDS.search(line) and "whoever|whomever" not in line  # the pattern itself
    }
    assert found == {}
