"""A server's output is harmless to a terminal; questions come one at a time."""

from __future__ import annotations

import io
import json
import os
import unicodedata
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mcptrio.cli.callbacks import TerminalElicitation
from mcptrio.cli.connection import make_client
from mcptrio.cli.content import pieces_of, show
from mcptrio.cli.options import ConnectionOptions
from mcptrio.cli.terminal import Terminal, clean, escape_json, to_json
from mcptrio.errors import RemoteProtocolError
from mcptrio.types import (
    AudioContent,
    BlobResourceContents,
    ElicitParams,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    left = {unicodedata.category(char) for char in clean(text) if char not in "\n\t\u200c\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 👩‍💻\n\tx", "plain é 漢 👩‍💻\n\tx"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\rb"),
        ("\x9b31m", "\\x9b31m"),
        ("evil\u202egpj", "evil\\u202egpj"),
    ],
)
def test_removed_control_characters_stay_visible(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.defect("S15")
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_escaped_json_is_harmless_and_means_the_same(value: object) -> None:
    shown = escape_json(to_json(value).decode())
    assert json.loads(shown) == value
    left = {unicodedata.category(char) for char in shown if char not in "\n\u200c\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def silent(*, interactive: bool = True) -> Terminal:
    """A terminal that keeps what is written to it."""
    return Terminal(
        out=Console(file=io.StringIO(), width=200), err=Console(file=io.StringIO(), width=200), interactive=interactive
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pipe in place of the keyboard; gives the end to write to."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield write_end
        with suppress(OSError):
            os.close(write_end)


async def test_lines_are_read_as_they_come_and_the_end_declines(typing: int) -> None:
    terminal = silent()
    os.write(typing, b"first\nsecond\nthi")
    assert await terminal.ask("a") == "first"
    assert await terminal.ask("b") == "second"
    os.write(typing, "rd é\n".encode())
    assert await terminal.ask("c") == "third é"
    os.close(typing)
    assert await terminal.ask("d") is None
    terminal.close()


async def test_a_question_can_be_cancelled(typing: int) -> None:
    terminal = silent()
    with trio.move_on_after(0.01) as scope:
        await terminal.ask("anybody?")
    assert scope.cancelled_caught
    terminal.close()


FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_two_questions_do_not_mix(typing: int) -> None:
    terminal = silent()
    person = TerminalElicitation(terminal, lambda: "the server")
    answers: list[object] = []

    async def ask(message: str) -> None:
        answers.append(await person.elicit(ElicitParams(message=message, requested_schema=FORM)))

    os.write(typing, b"1\n\n2\n\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "one")
        nursery.start_soon(ask, "two")
    assert answers == [{"n": 1}, {"n": 2}]
    shown = written(terminal.err)
    assert shown.index("Send this?") < max(shown.index("one"), shown.index("two"))
    terminal.close()


async def test_without_a_person_every_question_is_declined() -> None:
    terminal = silent(interactive=False)
    person = TerminalElicitation(terminal, lambda: "the server")
    assert await person.elicit(ElicitParams(message="a\nb", requested_schema=FORM)) == "decline"
    assert await person.elicit(ElicitParams(message="Pay", mode="url", url="https://x/")) == "decline"
    first, second = written(terminal.err).splitlines()
    assert first == "mcptrio: the server asked: a b; declined, because stdin is not a terminal"
    assert "Pay (https://x/)" in second
    terminal.close()


@pytest.mark.parametrize("answer", [None, "", "forty-two"])
def test_sampling_is_declared_only_with_an_answer(answer: str | None) -> None:
    client = make_client("http://127.0.0.1:9/mcp", ConnectionOptions(sample=answer), silent())
    declared = client._service.callbacks.capabilities(stateful=True)
    assert ("sampling" in declared) is (answer is not None)
    assert "elicitation" in declared
    assert "roots" not in declared


def test_every_kind_of_content_has_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(err=Console(file=io.StringIO()), interactive=False)
    blocks = [
        TextContent(text="text"),
        ImageContent(data="AAAA", mime_type="image/png"),
        AudioContent(data="AAAA", mime_type="audio/wav"),
        ResourceLink(uri="x://1", name="one"),
        ResourceLink(uri="x://1", name="x://1"),
        EmbeddedResource(resource=TextResourceContents(uri="x://1", text="inner")),
        EmbeddedResource(resource=BlobResourceContents(uri="x://1", blob="AAAA")),
        UnknownContent(type="smell", data={}),
    ]
    show(terminal, pieces_of(blocks))
    terminal.close()
    assert capfd.readouterr().out.splitlines() == [
        "text",
        "[image/png, 3 bytes; save it with --output FILE]",
        "[audio/wav, 3 bytes; save it with --output FILE]",
        "x://1 (one)",
        "x://1",
        "inner",
        "[binary, 3 bytes, x://1; save it with --output FILE]",
        "content of unknown type 'smell'",
    ]


def test_invalid_base64_is_an_error_of_the_server() -> None:
    with pytest.raises(RemoteProtocolError, match="not valid base64"):
        pieces_of([ImageContent(data="?", mime_type="image/png")])
