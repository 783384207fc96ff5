"""Match a URI against a template. RFC 6570 does not define matching; these are the rules used here.

A template has a *head* and an optional *tail*:

* The head has literals, simple variables (`{id}`, `{a,b}`, `{list*}`) and at most one `{+path}`, with literals between
  them. A simple variable is never empty and contains no `/`, `?`, `#` nor, if it is alone in its braces, `,`. It ends
  at the first occurrence of the next literal; after `{+path}`, variables are matched from the right in the same way.
* The tail has `{/a}`, `{?q}` (or `{&q}` after a literal query) and `{#f}`, in this order, each at most once. A URI may
  lack it, and then its variables are missing from the match.

An ambiguous template is rejected when it is declared: adjacent variables, a variable that occurs twice, literals after
the tail, prefixes (`{a:3}`), `{.a}`, `{;a}`, `{+a,b}` and `{+a*}`.

Matched values are untrusted data: a decoded value may contain anything, including `/` and `..`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from mcptrio._struct import Entity
from mcptrio._uri.syntax import Expression, Variable, encode
from mcptrio.errors import DeclarationError

MAX_URI: Final = 64 * 1024
"""Bytes of a URI; a longer one matches no template."""

MAX_PARAMETERS: Final = 1024
"""Query parameters of a URI; one with more matches no template."""

Value: TypeAlias = str | list[str] | dict[str, str]

TAIL: Final = ("/", "?", "&", "#")


class Subject(Entity):
    """A URI to match against several templates: it is normalised once, when the first template needs it."""

    uri: str
    _folded: str | None = None

    @property
    def folded(self) -> str:
        """The URI with each percent-encoded or non-ASCII byte as one character; empty if it cannot match anything."""
        if self._folded is None:
            uri = self.uri
            good = len(uri) <= MAX_URI and uri.isprintable() and (uri.isascii() or len(uri.encode()) <= MAX_URI)
            folded = _fold(uri) if good else ""
            self._folded = "" if "%" in folded else folded  # a malformed triplet
        return self._folded


class Matcher(Struct, frozen=True):
    """A template in matchable form: literals around the head variables, then the tail.

    `prefix` is the ASCII text that every match begins with. `literals` is one longer than `head`. `wild` is the index
    of `{+path}` in `head`, or the length of `head`.
    """

    prefix: str
    literals: tuple[str, ...]
    head: tuple[Expression, ...]
    wild: int
    path: Expression | None
    query: tuple[Variable, ...]
    literal_query: int | None  # length of the text from `?` on, for a template with `?x=1{&y}`
    fragment: str | None

    @classmethod
    def build(cls, text: str, parts: tuple[str | Expression, ...]) -> Matcher:
        """Build the matchable form of a template.

        Raises:
            DeclarationError: the template is ambiguous.
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
            prefix=_ascii_start(literals[0]),
            literals=tuple(literals),
            head=tuple(head),
            wild=wild[0] if wild else len(head),
            path=by_operator.get("/"),
            query=tuple(v for part in tail if part.operator in ("?", "&") for v in part.variables),
            literal_query=len(last) - last.index("?") if "&" in by_operator and "?" in last else None,
            fragment=by_operator["#"].variables[0].name if "#" in by_operator else None,
        )

    def match(self, subject: Subject) -> dict[str, Value] | None:
        """Return the values of the variables, or None if the URI does not match."""
        # The cheap test goes first: most templates of a server differ in their prefix, and normalising a long URI
        # is the expensive part.
        if not subject.uri.startswith(self.prefix) or not (folded := subject.folded):
            return None
        values: dict[str, Value] = {}
        try:
            return values if self._match(folded, values) else None
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
            # Head variables contain no slash, so the first slashes are those of the literals.
            own = 1 + sum(literal.count("/") for literal in self.literals)
            pieces = rest.split("/", own)
            if len(pieces) > own:
                if not _assign(self.path, pieces.pop(), "/", values, optional=True):
                    return False
                rest = "/".join(pieces)
        return self._match_head(rest, values)

    def _match_query(self, query: str, values: dict[str, Value]) -> bool:
        plain = {_fold(variable.name): variable.name for variable in self.query if not variable.explode}
        exploded = next((variable.name for variable in self.query if variable.explode), None)
        others: list[tuple[str, str]] = []
        if query.count("&") >= MAX_PARAMETERS:
            return False
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
        for index in range(left):  # each ends at the first occurrence of its literal
            stop = text.find(self.literals[index + 1], start, end)
            if stop < 0 or not _take(self.head[index], text[start:stop], values):
                return False
            start = stop + len(self.literals[index + 1])
        for index in range(len(self.head) - 1, left, -1):  # after {+path}: from the right
            stop = text.rfind(self.literals[index], start, end)
            if stop < 0 or not _take(self.head[index], text[stop + len(self.literals[index]) : end], values):
                return False
            end = stop
        return _take(self.head[left], text[start:end], values)


# -- building the matchable form


class _Ambiguous(Exception):
    """The reason why a template cannot be matched."""


def _split(parts: tuple[str | Expression, ...]) -> tuple[list[str], list[Expression], list[Expression]]:
    """Split a template into its literals, the expressions between them, and the tail."""
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


# -- matching


_FOLDED: Final = {f"{byte:02x}": chr(0x100 + byte) for byte in range(256)}
_FOLDED.update({text[0] + text[1].upper(): c for text, c in tuple(_FOLDED.items())})
_FOLDED.update({text[0].upper() + text[1]: c for text, c in tuple(_FOLDED.items())})
_HIGH: Final = {byte: chr(0x100 + byte) for byte in range(0x80, 0x100)}
_BYTES: Final = {0x100 + byte: byte for byte in range(256)}


def _fold(text: str) -> str:
    """Replace each percent-encoded or non-ASCII byte (UTF-8) by one character above U+00FF.

    Then no search can end inside a triplet, and `%2f` equals `%2F`. A remaining percent sign is a malformed triplet.
    """
    if not text.isascii():  # an IRI: its non-ASCII characters stand for their percent-encoded bytes
        text = text.encode().decode("latin-1").translate(_HIGH)
    first, *pieces = text.split("%")
    return first + "".join([_FOLDED.get(piece[:2], f"%{piece[:2]}") + piece[2:] for piece in pieces])


def _unfold(text: str) -> str:
    return text if text.isascii() else text.translate(_BYTES).encode("latin-1").decode()


def _ascii_start(folded: str) -> str:
    return next((folded[:index] for index, c in enumerate(folded) if not c.isascii()), folded)


def _take(expression: Expression, text: str, values: dict[str, Value]) -> bool:
    """Assign a part of the head to the variables of its expression."""
    if not text:
        return False
    if expression.operator == "+":
        values[expression.variables[0].name] = _unfold(text)
        return True
    return "/" not in text and _assign(expression, text, ",", values, optional=False)


def _assign(expression: Expression, text: str, separator: str, values: dict[str, Value], *, optional: bool) -> bool:
    if "?" in text or "#" in text:
        return False
    variables = expression.variables
    if variables[0].explode:
        values[variables[0].name] = [_unfold(piece) for piece in text.split(separator)]
        return True
    count = text.count(separator) + 1
    if count > len(variables) or (count < len(variables) and not optional):
        return False
    for variable, piece in zip(variables, text.split(separator), strict=False):
        values[variable.name] = _unfold(piece)
    return True
