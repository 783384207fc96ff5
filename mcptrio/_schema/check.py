"""Check values against JSON Schemas that were written by hand, or that a peer sent.

Nothing is ever fetched: a `$ref` leads somewhere inside the schema or the schema is refused. Patterns run in linear
time, or with a bound on backtracking where they look around. The work of checking a value is bounded before it begins,
see `budget`. Schemas made by `build` need none of this: they come with their own readers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import field, frozen, validators

from mcptrio._schema.budget import REFERENCES, SchemaBudget, children_of, patterns_of
from mcptrio._schema.faults import MAX_FAULTS, Place, path, show
from mcptrio.errors import DeclarationError

DIALECTS: Final = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-04/schema",
    }
)
BACKTRACKS: Final = 10_000
MAX_DETAIL: Final = 2_000
"""Applied schemas up to which every fault is reported with its path: a report takes far longer than a check."""
_PATTERN_BYTES: Final = 4 * 1024 * 1024
"""Compiled size of all patterns of a peer's schema together; a thousand bytes take about five microseconds."""
_LEAST_PATTERN_BYTES: Final = 64 * 1024
_REPEATED: Final = re.compile(r"(\)?)\{(\d{1,9})(?:,(\d{0,9}))?\}")
_MASK: Final = "the value"  # messages would quote the value, however long or secret it is
_WHOLE: Final = 200  # maximum length of a message of the validator


@frozen(kw_only=True)
class SchemaLimits:
    """Bounds for a schema that comes from a peer."""

    max_nodes: int = field(default=20_000, validator=validators.ge(1))
    max_chars: int = field(default=1_000_000, validator=validators.ge(1))
    max_depth: int = field(default=64, validator=validators.ge(1))
    max_refs: int = field(default=500, validator=validators.ge(0))
    max_patterns: int = field(default=200, validator=validators.ge(0))
    max_repeats: int = field(default=2_000, validator=validators.ge(0))
    """Counted repetitions of the patterns, as the root of the sum of their squares: matching a pattern with 900 takes
    ten milliseconds."""


class Checker:
    """A compiled JSON Schema.

    Raises:
        DeclarationError: the schema is not valid, names an unknown dialect, refers outside itself, expands too far or
            breaks a limit.
    """

    __slots__ = ("_budget", "_iter_errors", "_validate", "fits", "schema")

    def __init__(self, schema: Mapping[str, Any], *, limits: SchemaLimits | None = None) -> None:
        self.schema = dict(schema)
        patterns = 0 if limits is None else _measure(self.schema, limits)
        _check_dialect(self.schema)
        self._budget = SchemaBudget(self.schema)
        import jsonschema_rs

        try:
            size = max(_PATTERN_BYTES // patterns, _LEAST_PATTERN_BYTES) if patterns else None
            options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS, size_limit=size)
            validator = jsonschema_rs.validator_for(self.schema, offline=True, pattern_options=options, mask=_MASK)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as exc:
            raise DeclarationError(_complaint(exc)) from None
        except (ValueError, TypeError, OverflowError, RecursionError) as exc:
            raise DeclarationError(f"the JSON Schema cannot be read: {_cut(str(exc))}") from None
        if limits is not None and self._budget.unresolved:
            raise DeclarationError(
                f"a `$ref` of the JSON Schema leads outside it: {show(self._budget.unresolved[0])}; "
                "refer to `#/$defs/…` inside the schema"
            )
        self.fits: Callable[[Any], bool] = validator.is_valid
        self._validate, self._iter_errors = validator.validate, validator.iter_errors

    def faults(self, value: Any, root: str = "arguments") -> list[str]:
        """Return one line for each fault of a value; an empty list if it is valid.

        A value that would take too much work to check is a fault. Of a large one the first fault is reported only.
        """
        try:
            cost = self._budget.measure(value)
        except DeclarationError as error:
            return [f"{root}: {error}"]
        if cost is None:
            return [f"{root}: too large to be checked against its schema"]
        try:
            if self.fits(value):
                return []
            if cost[0] > MAX_DETAIL:
                return self._first_fault(value, root)
            errors = list(itertools.islice(self._iter_errors(value), MAX_FAULTS + 1))
        except (ValueError, TypeError, RecursionError) as exc:  # NaN, a Python object, nesting without end
            return [f"{root}: is no JSON value that can be checked: {_cut(str(exc))}"]
        lines = [line for error in errors[:MAX_FAULTS] for line in _lines(error, root)]
        return [*lines, "and more"] if len(errors) > MAX_FAULTS else lines

    def _first_fault(self, value: Any, root: str) -> list[str]:
        from jsonschema_rs import ValidationError

        try:
            self._validate(value)
        except ValidationError as error:
            return [*_lines(error, root)[:MAX_FAULTS], "and perhaps more: the value is too large to report every fault"]
        return []


def is_within(schema: Any, limits: SchemaLimits) -> bool:
    """Return whether a schema keeps limits; it may be invalid."""
    try:
        _measure(schema, limits)
    except DeclarationError:
        return False
    return True


def _measure(schema: Any, limits: SchemaLimits) -> int:
    """Refuse a schema that is too large, without recursion; return the number of its patterns."""
    nodes = chars = refs = patterns = repeats = 0
    pending: list[tuple[Any, int]] = [(schema, 1)]
    while pending:
        node, depth = pending.pop()
        nodes += 1
        if depth > limits.max_depth:
            raise DeclarationError(f"the JSON Schema is nested deeper than {limits.max_depth} levels")
        if isinstance(node, Mapping):
            refs += sum(key in node for key in REFERENCES)
            for pattern in patterns_of(node):
                patterns += 1
                repeats += _repeats(pattern) ** 2
            chars += sum(len(str(key)) for key in node)
        elif isinstance(node, str):
            chars += len(node)
        pending += [(child, depth + 1) for child in children_of(node)]
        if nodes > limits.max_nodes or chars > limits.max_chars or refs > limits.max_refs:
            raise DeclarationError(
                f"the JSON Schema is too big: at most {limits.max_nodes} values, {limits.max_chars} characters "
                f"and {limits.max_refs} references are taken"
            )
        if patterns > limits.max_patterns or repeats > limits.max_repeats**2:
            raise DeclarationError(
                f"the patterns of the JSON Schema are too many (at most {limits.max_patterns}), or repeat too much, as "
                "in `.{0,9999}`: use `maxLength`"
            )
    return patterns


def _repeats(pattern: str) -> int:
    """Return how often the counted repetitions of a pattern repeat, at most; those of groups multiply."""
    single, groups = 1, 1
    for group, least, most in _REPEATED.findall(pattern):
        times = int(most or least)
        if group:
            groups = min(groups * max(times, 1), 10**9)
        else:
            single += times
    return single * groups


def _check_dialect(schema: Mapping[str, Any]) -> None:
    dialect = schema.get("$schema")
    if dialect is not None and (not isinstance(dialect, str) or dialect.rstrip("#") not in DIALECTS):
        raise DeclarationError(
            f"`$schema` names the dialect {show(dialect)}, which is not known; "
            "leave it out for 2020-12, or use 2020-12, 2019-09, draft-07, draft-06 or draft-04"
        )


def _complaint(exc: Any) -> str:
    message = str(getattr(exc, "message", exc))
    if "retriev" in message.lower() or "does not exist" in message or "resolv" in message.lower():
        return f"a `$ref` of the JSON Schema leads nowhere: {_cut(message)}; refer to `#/$defs/…` inside the schema"
    place: Place = "schema"
    for step in getattr(exc, "instance_path", ()):
        place = (place, step)
    return f"the JSON Schema is not valid: {path(place)}: {_cut(message)}"


def _lines(error: Any, root: str) -> list[str]:
    place: Place = root
    for step in error.instance_path:
        place = (place, step)
    kind = error.kind
    match kind.name:
        case "required":
            return [f"{path((place, kind.property))}: required"]
        case "additionalProperties" | "unevaluatedProperties":
            return [f"{path(place)}: unexpected field {show(name)}" for name in kind.unexpected]
        case "type":
            return [f"{path(place)}: expected {' or '.join(kind.types)}, got {show(error.instance)}"]
        case "enum":
            return [f"{path(place)}: expected {_options(kind.options)}, got {show(error.instance)}"]
        case "const":
            return [f"{path(place)}: expected {show(kind.expected_value)}, got {show(error.instance)}"]
        case "pattern" if hasattr(kind, "pattern"):  # otherwise matching was given up
            return [f"{path(place)}: must match {_cut(kind.pattern)}, got {show(error.instance)}"]
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            return [f"{path(place)}: must be {_BOUNDS[kind.name]} {kind.limit}, got {show(error.instance)}"]
    return [f"{path(place)}: {_cut(error.message.removeprefix(_MASK).strip())}, got {show(error.instance)}"]


_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def _options(options: Any) -> str:
    if not isinstance(options, list | tuple):
        return _cut(str(options))
    return " or ".join(show(option) for option in options[:20]) + (" or others" if len(options) > 20 else "")


def _cut(text: str) -> str:
    return text if len(text) <= _WHOLE else text[: _WHOLE - 1] + "…"
