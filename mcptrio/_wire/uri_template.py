"""URI templates (RFC 6570): expanded into URIs at all four levels, and matched backwards by rules of our own."""

from __future__ import annotations

from typing import Any, Final

from mcptrio._struct import Entity
from mcptrio._wire.uri_match import TAIL, Matcher, Value
from mcptrio._wire.uri_syntax import Expression, encode, expand, parse
from mcptrio.errors import DeclarationError

__all__ = ["UriTemplate", "Value"]

MAX_VARIABLES: Final = 256


class UriTemplate(Entity):
    """A URI with variables in it, as in `orders://{order_id}{?lines*}`.

    Raises:
        DeclarationError: the text is no template of RFC 6570.
    """

    text: str
    _parts: tuple[str | Expression, ...] = ()
    _matcher: Matcher | None = None

    def __post_init__(self) -> None:
        self._parts = tuple(parse(self.text))
        if len(self.variables) > MAX_VARIABLES:
            raise DeclarationError(f"a URI template may have at most {MAX_VARIABLES} variables")

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, in the order in which they first occur."""
        return tuple(
            dict.fromkeys(v.name for part in self._parts if isinstance(part, Expression) for v in part.variables)
        )

    @property
    def optional_variables(self) -> frozenset[str]:
        """The variables that may be missing from a match: those of `{/a}`, `{?a}`, `{&a}` and `{#a}`."""
        expressions = (part for part in self._parts if isinstance(part, Expression))
        return frozenset(v.name for part in expressions if part.operator in TAIL for v in part.variables)

    def expand(self, /, **values: Any) -> str:
        """Put values in: texts, numbers, lists and mappings of them; None or nothing at all leaves a variable out.

        Raises:
            ValueError: a value of another kind, or a list or mapping for a variable with a prefix.
        """
        return "".join(
            encode(part, reserved=True) if isinstance(part, str) else expand(part, values) for part in self._parts
        )

    def require_matchable(self) -> None:
        """Refuse a template whose URIs could be read in several ways; to be called where one is declared.

        Raises:
            DeclarationError: it cannot be matched; the text says why.
        """
        if self._matcher is None:
            self._matcher = Matcher.build(self.text, self._parts)

    def match(self, uri: str) -> dict[str, Value] | None:
        """The values that make this template into `uri`, or None. The cost is linear in the length of the URI.

        Raises:
            DeclarationError: see `require_matchable`.
        """
        self.require_matchable()
        assert self._matcher is not None
        return self._matcher.match(uri)
