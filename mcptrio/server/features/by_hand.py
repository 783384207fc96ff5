"""Tools whose schema was written by hand; imported where there is one, since jsonschema-rs comes with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from mcptrio._schema.build import Signature
from mcptrio._schema.check import Checker
from mcptrio.errors import DeclarationError
from mcptrio.server.features.invoke import is_context

__all__ = ["Checker", "by_hand"]


def by_hand(fn: Callable[..., Any], schema: Mapping[str, Any], names: Mapping[str, Any]) -> Signature:
    """The signature of a function whose input schema was written by hand: it takes the arguments as one object."""
    if schema.get("type") != "object":
        raise DeclarationError('an input schema must have "type": "object" at its root')
    try:
        signature = inspect.signature(fn, locals=dict(names), eval_str=True)
    except NameError as error:
        raise DeclarationError(f"the annotation `{error.name}` cannot be found; import it for real") from error
    parameters = signature.parameters
    injected = next((p.name for p in parameters.values() if is_context(p.annotation)), None)
    others = [p.name for p in parameters.values() if p.name != injected]
    if len(others) != 1:
        raise DeclarationError(
            "with input_schema= the function takes one parameter that gets the arguments as they came "
            f"(and a Context if it likes), not {len(others)}: {', '.join(others) or 'none'}"
        )
    (parameter,) = others

    def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {parameter: arguments}

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
