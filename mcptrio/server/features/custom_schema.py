"""Tools with a hand-written input schema; imported only for them, because jsonschema-rs comes with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from mcptrio._schema.build import Signature
from mcptrio._schema.check import Checker
from mcptrio.errors import DeclarationError
from mcptrio.server.features.functions import is_context

_OTHER_PROPERTIES: Final = frozenset({"patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef"})
"""Keywords that may describe properties which `properties` does not name."""


def custom_signature(fn: Callable[..., Any], schema: Mapping[str, Any], names: Mapping[str, Any]) -> Signature:
    """Make the signature of a function whose input schema was written by hand: it takes the arguments as one object.

    Raises:
        DeclarationError: the function or the schema cannot be used.
    """
    if schema.get("type") != "object":
        raise DeclarationError('an input schema must have "type": "object" at its root')
    _check_properties(schema, schema, "")
    try:
        signature = inspect.signature(fn, locals=dict(names), eval_str=True)
    except NameError as error:
        from mcptrio._hints import import_of

        statement = import_of(error.name)
        advice = f": `{statement}`" if statement is not None else ""
        raise DeclarationError(f"the annotation `{error.name}` cannot be found; import it for real{advice}") from error
    parameters = signature.parameters
    injected = next((p.name for p in parameters.values() if is_context(p.annotation)), None)
    others = [p.name for p in parameters.values() if p.name != injected]
    if len(others) != 1:
        raise DeclarationError(
            "with input_schema= the function takes one parameter that gets the arguments as an object "
            f"(and may take a Context), not {len(others)}: {', '.join(others) or 'none'}"
        )
    (parameter,) = others

    def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {parameter: _with_defaults(schema, arguments)}

    doc = inspect.getdoc(fn)
    return Signature(
        input_schema=dict(schema),
        bind=bind,
        bind_text=bind,
        injected=injected,
        description=doc.partition("\n\n")[0] if doc else None,
        returns=signature.return_annotation,
        is_async=inspect.iscoroutinefunction(fn),
    )


def _properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = schema.get("properties")
    for name, described in found.items() if isinstance(found, Mapping) else ():
        if isinstance(described, Mapping):
            yield name, described


def _check_properties(schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> None:
    """Check that required properties exist and that defaults are valid, also in nested objects."""
    known = schema.get("properties") or {}
    unknown = [name for name in schema.get("required") or () if name not in known]
    if unknown and not schema.keys() & _OTHER_PROPERTIES:
        where = f" of {path[:-1]}" if path else ""
        raise DeclarationError(
            f"`required`{where} names {', '.join(unknown)}, which `properties` does not have; add it there"
        )
    for name, described in _properties(schema):
        if "default" in described:
            common = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
            if faults := Checker({**common, **described}).faults(described["default"], root=f"{path}{name}"):
                raise DeclarationError(f"the default of a property is not valid: {faults[0]}")
        _check_properties(described, root, f"{path}{name}.")


def _with_defaults(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of properties that were left out, also in nested objects."""
    filled = dict(arguments)
    for name, described in _properties(schema):
        if name not in filled:
            if "default" in described:
                filled[name] = deepcopy(described["default"])
        elif isinstance(filled[name], Mapping):
            filled[name] = _with_defaults(described, filled[name])
    return filled
