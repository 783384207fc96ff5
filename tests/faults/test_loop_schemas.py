"""No schema of a server, and no result that is checked against it, keeps the event loop of a client busy for long."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pytest
import trio

from mcptrio.client.features.peer_schema import compile_schema
from mcptrio.errors import DeclarationError

from .loop_probe import at_most, open_probe
from .test_loop import LIMIT

Json = dict[str, Any]


def chain(keyword: str, length: int = 40, places: int = 1) -> Json:
    """Return a schema whose definitions refer to the next one twice, from so many places."""
    defs: Json = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(length)
    }
    members = {f"v{n}": {"title": str(n), "$ref": "#/$defs/d0"} for n in range(places)}
    return {"type": "object", "properties": members, "$defs": {**defs, f"d{length}": {"type": "string"}}}


def of(**schema: Any) -> Json:
    return {"type": "object", "properties": {"v": schema}}


def matching(pattern: str) -> Json:
    return of(type="string", pattern=pattern)


CASES: Final[dict[str, tuple[Json, Any]]] = {
    "a chain": (chain("allOf"), {"v0": "x"}),
    "a chain that many members begin": (chain("anyOf", length=9, places=300), {"v0": "x"}),
    "many members": (
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(4_000)}}, {"p1": "x"},
    ),
    "one costly pattern": (matching(r"^\p{L}{1,64}$"), {"v": "x" * 1_000}),
    "many costly patterns": (
        {"type": "object", "patternProperties": {rf"(?i)\w{{{n},900}}x": {} for n in range(200)}}, {"a" * 900: 1},
    ),
    "many patterns that repeat": (
        {"type": "object", "patternProperties": {rf"\w{{{n},400}}x": {} for n in range(200)}}, {"a" * 900: 1},
    ),
    "patterns that many groups repeat": (matching("(((a{100}){100}){100})"), {"v": "a" * 1_000}),
    "a pattern that looks ahead": (matching("(?=(x+x+)+y)(x+x+)+y"), {"v": "x" * 60_000}),
    "a name that a pattern looks ahead in": (
        {"type": "object", "patternProperties": {"(?=x*y)x": {}}}, {"x" * 60_000: 1},
    ),
    "a pattern that refers back": (matching(r"^(a*)*\1b$"), {"v": "a" * 60 + "!"}),
    "alternatives": (
        of(items={"anyOf": [{"const": n} for n in range(50)]}), {"v": [49] * 60_000},
    ),
    "lists to compare with": (
        of(items={"enum": [[0] * 20 + [n] for n in range(300)]}), {"v": [[0] * 20 + [299]] * 4_000},
    ),
}  # fmt: skip


@pytest.mark.defect("S3")
@pytest.mark.parametrize("name", CASES)
@at_most(LIMIT)
async def test_a_schema_of_a_server_does_not_block_the_loop_of_a_client(name: str) -> float:
    schema, value = CASES[name]
    await compile_schema({"type": "object"})  # loads what is imported late
    with trio.fail_after(60):
        async with open_probe() as probe:
            with suppress(DeclarationError):
                (await compile_schema(schema)).faults(value)
    return probe.longest


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\w{1,255}$", r"^[a-z0-9-]{1,63}$", r"^.{1,500}$", r"^\p{L}{1,64}$", r"^(?!x)\w+$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$", r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$", r"^(?=.*[a-z])(?=.*\d).{8,64}$",
    ],
)  # fmt: skip
async def test_an_ordinary_pattern_of_a_server_is_used(pattern: str) -> None:
    checker = await compile_schema(matching(pattern))
    assert "must match" in str(checker.faults({"v": ""}))


async def test_a_pattern_that_is_given_up_is_a_fault() -> None:
    checker = await compile_schema(matching(r"^(a*)*\1b$"))
    (fault,) = checker.faults({"v": "a" * 60 + "!"})
    assert fault.startswith("arguments.v: ")
