"""`UriTemplate`: an RFC 6570 template that expands to URIs and matches URIs (by the rules in `match`)."""

from __future__ import annotations

from typing import Any, Final

from mcptrio._struct import Entity
from mcptrio._uri.match import TAIL, Matcher, Subject, Value
from mcptrio._uri.syntax import Expression, encode, expand, parse
from mcptrio.errors import DeclarationError

__all__ = ["UriTemplate", "Value"]

MAX_VARIABLES: Final = 256


class UriTemplate(Entity):
    """A parsed RFC 6570 template such as `orders://{order_id}{?lines*}`.

    Raises:
        DeclarationError: the text is not a valid RFC 6570 template.
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
        """The names of the variables, in order of first occurrence."""
        return tuple(
            dict.fromkeys(v.name for part in self._parts if isinstance(part, Expression) for v in part.variables)
        )

    @property
    def optional_variables(self) -> frozenset[str]:
        """The variables that a match may lack: those of `{/a}`, `{?a}`, `{&a}` and `{#a}`."""
        expressions = (part for part in self._parts if isinstance(part, Expression))
        return frozenset(v.name for part in expressions if part.operator in TAIL for v in part.variables)

    def expand(self, /, **values: Any) -> str:
        """Expand the template with strings, numbers, and lists or mappings of them; None leaves a variable out.

        Raises:
            ValueError: a value has another type, or a variable with a prefix modifier got a list or mapping.
        """
        return "".join(
            encode(part, reserved=True) if isinstance(part, str) else expand(part, values) for part in self._parts
        )

    def require_matchable(self) -> None:
        """Reject an ambiguous template. Call it where a template is declared, so that the error appears there.

        Raises:
            DeclarationError: the template cannot be matched; the text says why.
        """
        if self._matcher is None:
            self._matcher = Matcher.build(self.text, self._parts)

    def match(self, uri: str | Subject) -> dict[str, Value] | None:
        """Return the values that expand this template to `uri`, or None. Takes time linear in the length of the URI.

        Raises:
            DeclarationError: see `require_matchable`.
        """
        self.require_matchable()
        assert self._matcher is not None
        return self._matcher.match(Subject(uri) if isinstance(uri, str) else uri)
