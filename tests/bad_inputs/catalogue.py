"""Reads the catalogue: rows of bad inputs, each with several cases, each for every revision it names.

A file is a list of rows. A row says what comes in (`input`), why the reply is what it is (`basis`), and the reply:

    all = {status = 400, code = -32700}    for every revision
    L = {…}  N = {…}                       for the stateful ones over Streamable HTTP, and for 2026-07-28
    "2025-03-26" = {…}                     for one

A case takes its row's replies and may name its own. What a case does is said by one of these keys:

    body      the body of an otherwise good POST (`[row.bodies]` is short for many such cases)
    request   `{method = …, params = …, id = …}` of an otherwise good POST
    raw       the bytes of a whole connection
    action    the name of a function in `actions`, for what takes more than one step
    ws, line  frames of a WebSocket, lines on a pipe (see `sockets` and `pipes`)
    pipe      the name of a function in `pipes` that has a process to itself
    client    what a hostile server says (see `hostile`)
    sign_in   what is hostile of a protected server and its authorization server (see `sign_in`)

Texts know `$META` (the `_meta` member that a revision wants), `$HEAD` (the usual headers), `$PORT`, `$SESSION` and
`$DATE`.
Long bytes are written as parts: `[{text = "[", times = 100000}, {hex = "ff fe"}, {text = "é", encoding = "utf-16"}]`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from .speaker import DATES, META, MODERN, STATEFUL, Speaker

FOLDER = Path(__file__).parent
KINDS = ("body", "request", "raw", "action", "ws", "line", "pipe", "client", "sign_in")


@frozen(kw_only=True)
class Case:
    """One input, for one revision, and the reply to expect."""

    row: str
    name: str
    date: str
    kind: str
    data: dict[str, Any]
    expect: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.row}-{re.sub(r'[^A-Za-z0-9]+', '_', self.name).strip('_')}-{self.date}"


@frozen(kw_only=True)
class Row:
    id: str
    input: str
    basis: str
    cases: tuple[Case, ...]


def load() -> list[Row]:
    """Every row of every file."""
    return [read_row(raw) for path in sorted(FOLDER.glob("*.toml")) for raw in tomllib.loads(path.read_text())["row"]]


def read_row(raw: dict[str, Any]) -> Row:
    given = list(raw.get("case", ()))
    given += [{"name": name, "body": body} for name, body in raw.get("bodies", {}).items()]
    given += [{"name": name, "line": line} for name, line in raw.get("lines", {}).items()]
    cases = [case for one in given for case in _expand(raw, one)]
    if not cases:
        raise ValueError(f"row {raw['id']} has no case")
    ids = [case.id for case in cases]
    if len(set(ids)) != len(ids):
        raise ValueError(f"row {raw['id']} has two cases of one name: {ids}")
    return Row(id=raw["id"], input=raw["input"], basis=raw["basis"], cases=tuple(cases))


def _expand(row: dict[str, Any], case: dict[str, Any]) -> Iterator[Case]:
    shared = {key: row[key] for key in ("headers", "session", "may_log", "server", "method", "path") if key in row}
    data = {**shared, **case}
    kinds = [kind for kind in KINDS if kind in data] or ["body"]
    if len(kinds) != 1:
        raise ValueError(f"{row['id']} {case['name']}: exactly one of {KINDS} is needed, found {kinds}")
    own = _has_reply(case)
    for date in (*DATES, "any"):
        expect = _reply_for(date, case if own else row)
        if expect is not None:
            yield Case(row=row["id"], name=case["name"], date=date, kind=kinds[0], data=data, expect=expect)


def _has_reply(table: dict[str, Any]) -> bool:
    return any(key in table for key in ("all", "any", "L", "N", *DATES))


def _reply_for(date: str, table: dict[str, Any]) -> dict[str, Any] | None:
    if date == "any":  # no revision has a say: a byte that is wrong before one is known
        return table.get("any")
    found = table.get(date)
    if found is None:
        found = table.get("L") if date in STATEFUL else table.get("N") if date == MODERN else None
    return table.get("all") if found is None else found


# -- texts and parts


def to_bytes(value: Any, speaker: Speaker) -> bytes:
    """The bytes that a text or a list of parts stands for."""
    if isinstance(value, list):
        return b"".join(to_bytes(part, speaker) for part in value)
    if isinstance(value, dict):
        if "hex" in value:
            data = bytes.fromhex(value["hex"])
        else:
            data = fill(value["text"], speaker).encode(value.get("encoding", "utf-8"))
        return data * value.get("times", 1)
    return fill(value, speaker).encode()


def fill(text: str, speaker: Speaker) -> str:
    meta = json.dumps(META if speaker.modern else {})
    values = {
        "$META": f'"_meta":{meta}',
        "$PORT": str(speaker.port),
        "$SESSION": speaker.session or "",
        "$DATE": speaker.date,
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text
