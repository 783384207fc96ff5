"""Matching a URI against a template, which RFC 6570 leaves open.

A template is read as a *head* and an optional *tail*:

* The head has literals, simple variables (`{id}`, `{a,b}`, `{list*}`) and at most one `{+path}`, with literals between
  them. A simple variable is never empty and never reaches across `/`, `?`, `#` or, alone, a `,`. It ends at the first
  place where the literal after it stands; behind `{+path}` the same holds from the right.
* The tail has `{/a}`, `{?q}` (or `{&q}` behind a literal query) and `{#f}`, in this order, each at most once. It may be
  missing from a URI, and then its variables are missing from the match.

A template in which one URI could mean several things is refused when it is declared: neighbouring variables, a variable
that occurs twice, literals behind the tail, prefixes (`{a:3}`), `{.a}`, `{;a}`, `{+a,b}` and `{+a*}`.

What was matched is data: a decoded value may hold anything, `/` and `..` included.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from mcptrio._wire.uri_syntax import TRIPLET, Expression, Variable, encode, triplets
from mcptrio.errors import DeclarationError

MAX_URI: Final = 64 * 1024

Value: TypeAlias = str | list[str] | dict[str, str]

TAIL: Final = ("/", "?", "&", "#")


class Matcher(Struct, frozen=True):
    """A template in the shape that can be matched: literals around head variables, then the tail.

    `literals` is one longer than `head`. `wild` is the place of `{+path}` in `head`, or the length of `head`.
    """

    literals: tuple[str, ...]
    head: tuple[Expression, ...]
    wild: int
    path: Expression | None
    query: tuple[Variable, ...]
    literal_query: int | None  # how long the text from `?` on is, where the template has `?x=1{&y}`
    fragment: str | None

    @classmethod
    def build(cls, text: str, parts: tuple[str | Expression, ...]) -> Matcher:
        """Bring a template into this shape.

        Raises:
            DeclarationError: a URI could be read in several ways.
        """
        try:
            literals, head, tail = _split(parts)
            _check_head(head)
            by_operator = _check_tail(literals, head, tail)
        except _Ambiguous as reason:
            raise DeclarationError(f"the URI template {text!a} cannot be matched: {reason}") from None
        wild = [index for index, part in enumerate(head) if part.operator == "+"]
        last = literals[-1]
        return cls(
            literals=tuple(literals),
            head=tuple(head),
            wild=wild[0] if wild else len(head),
            path=by_operator.get("/"),
            query=tuple(v for part in tail if part.operator in ("?", "&") for v in part.variables),
            literal_query=len(last) - last.index("?") if "&" in by_operator and "?" in last else None,
            fragment=by_operator["#"].variables[0].name if "#" in by_operator else None,
        )

    def match(self, uri: str) -> dict[str, Value] | None:
        if len(uri) > MAX_URI or not uri.isprintable():
            return None
        if not uri.isascii():  # an IRI: taken for the URI that it stands for
            uri = "".join(c if c.isascii() else triplets(c) for c in uri)
        folded = _fold(uri)
        values: dict[str, Value] = {}
        try:
            return values if "%" not in folded and self._match(folded, values) else None
        except UnicodeDecodeError:
            return None

    def _match(self, rest: str, values: dict[str, Value]) -> bool:
        if self.fragment is not None:
            rest, mark, fragment = rest.partition("#")
            if mark:
                values[self.fragment] = _unfold(fragment)
        if self.query:
            start = rest.find("?")
            if self.literal_query is not None and start >= 0:
                start = rest.find("&", start + self.literal_query)
            if start >= 0:
                if not self._match_query(rest[start + 1 :], values):
                    return False
                rest = rest[:start]
        if self.path is not None:
            # No head variable has a slash in it, so those of the literals come first.
            pieces = rest.split("/")
            own = 1 + sum(literal.count("/") for literal in self.literals)
            if not _assign(self.path, pieces[own:], values, optional=True):
                return False
            rest = "/".join(pieces[:own])
        return self._match_head(rest, values)

    def _match_query(self, query: str, values: dict[str, Value]) -> bool:
        plain = {_fold(variable.name): variable.name for variable in self.query if not variable.explode}
        exploded = next((variable.name for variable in self.query if variable.explode), None)
        others: list[tuple[str, str]] = []
        for pair in query.split("&"):
            key, _, text = pair.partition("=")
            name, value = plain.get(key), _unfold(text)
            if name is None:
                others.append((_unfold(key), value))
            elif name in values:
                return False
            else:
                values[name] = value
        if not others:
            return True
        if exploded is None:
            return False
        if all(name == exploded for name, _ in others):
            values[exploded] = [value for _, value in others]
        else:
            values[exploded] = dict(others)
        return len(values[exploded]) == len(others)

    def _match_head(self, text: str, values: dict[str, Value]) -> bool:
        if not self.head:
            return text == self.literals[0]
        first, last = self.literals[0], self.literals[-1]
        start, end = len(first), len(text) - len(last)
        if start > end or not text.startswith(first) or not text.endswith(last):
            return False
        left = min(self.wild, len(self.head) - 1)
        for index in range(left):  # each ends where its literal first stands
            stop = text.find(self.literals[index + 1], start, end)
            if stop < 0 or not _take(self.head[index], text[start:stop], values):
                return False
            start = stop + len(self.literals[index + 1])
        for index in range(len(self.head) - 1, left, -1):  # behind {+path}, the same from the right
            stop = text.rfind(self.literals[index], start, end)
            if stop < 0 or not _take(self.head[index], text[stop + len(self.literals[index]) : end], values):
                return False
            end = stop
        return _take(self.head[left], text[start:end], values)


# -- bringing a template into shape


class _Ambiguous(Exception):
    """Why a template cannot be matched."""


def _split(parts: tuple[str | Expression, ...]) -> tuple[list[str], list[Expression], list[Expression]]:
    """The literals, the expressions between them, and the tail."""
    literals, head, tail = [""], list[Expression](), list[Expression]()
    names: set[str] = set()
    for part in parts:
        text = part if isinstance(part, str) else part.text
        if tail and (isinstance(part, str) or part.operator not in TAIL):
            raise _Ambiguous(f"{text!a} follows {tail[-1].text}, which may be missing")
        if isinstance(part, str):
            literals[-1] = _fold(encode(part, reserved=True))
            continue
        if part.operator in (".", ";"):
            raise _Ambiguous(f"{text} cannot be told from what stands before it; write the character outside")
        for variable in part.variables:
            if variable.name in names:
                raise _Ambiguous(f"{variable.name} occurs twice")
            if variable.prefix is not None:
                raise _Ambiguous(f"{text} holds only a part of its value")
            names.add(variable.name)
        if part.operator in TAIL:
            tail.append(part)
            continue
        if head and not literals[-1]:
            raise _Ambiguous(f"no literal stands between {head[-1].text} and {text}")
        head.append(part)
        literals.append("")
    return literals, head, tail


def _check_head(head: list[Expression]) -> None:
    if sum(part.operator == "+" for part in head) > 1:
        raise _Ambiguous("only one {+variable} can be told from what stands around it")
    for part in head:
        _check_list(part)


def _check_tail(literals: list[str], head: list[Expression], tail: list[Expression]) -> dict[str, Expression]:
    order = [TAIL.index(part.operator) for part in tail]
    if sorted(set(order)) != order:
        raise _Ambiguous("the order is {/path}, {?query} or {&query}, {#fragment}, each at most once")
    found = {part.operator: part for part in tail}
    if sum(v.explode for operator in ("?", "&") if operator in found for v in found[operator].variables) > 1:
        raise _Ambiguous("only one variable of a query can be a list or a mapping")
    for operator in ("/", "#"):
        if operator in found:
            _check_list(found[operator])
    if "/" in found and any(part.operator == "+" for part in head):
        raise _Ambiguous(f"{{+…}} would swallow {found['/'].text}")
    whole = "".join(literals)
    if "#" in whole and tail:
        raise _Ambiguous(f"{tail[0].text} follows a literal #")
    if "?" in found and "?" in whole:
        raise _Ambiguous(f"a literal has a ? already, so write {{&…}} for {found['?'].text}")
    if "&" in found and "?" not in found and "?" not in literals[-1]:
        raise _Ambiguous(f"{found['&'].text} needs {{?…}} or a literal query right before it")
    return found


def _check_list(part: Expression) -> None:
    several = len(part.variables) > 1
    exploded = any(variable.explode for variable in part.variables)
    if part.operator in ("+", "#") and (several or exploded):
        raise _Ambiguous(f"the values of {part.text} may contain commas")
    if several and exploded:
        raise _Ambiguous(f"in {part.text} it is open where a list ends")


# -- reading a URI


def _fold(text: str) -> str:
    """The text with one character beyond ASCII for each percent-encoded byte.

    So no search can end within a triplet, and `%2f` is `%2F`. A percent sign that is left over has no digits.
    """
    return TRIPLET.sub(lambda found: chr(0x100 + int(found[0][1:], 16)), text)


def _unfold(text: str) -> str:
    return text if text.isascii() else bytes(ord(c) & 0xFF for c in text).decode()


def _take(expression: Expression, text: str, values: dict[str, Value]) -> bool:
    """Give a piece of the head to its variables."""
    if not text:
        return False
    if expression.operator == "+":
        values[expression.variables[0].name] = _unfold(text)
        return True
    if "/" in text:
        return False
    return _assign(expression, text.split(","), values, optional=False)


def _assign(expression: Expression, pieces: list[str], values: dict[str, Value], *, optional: bool) -> bool:
    if any("?" in piece or "#" in piece for piece in pieces):
        return False
    if expression.variables[0].explode:
        if pieces:
            values[expression.variables[0].name] = [_unfold(piece) for piece in pieces]
        return True
    if len(pieces) > len(expression.variables) or (len(pieces) < len(expression.variables) and not optional):
        return False
    for variable, piece in zip(expression.variables, pieces, strict=False):
        values[variable.name] = _unfold(piece)
    return True
