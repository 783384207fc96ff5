"""Python functions to JSON Schema: describe a function for a peer, and bind JSON arguments to its parameters.

Everything is computed once, when the function is declared; a call only runs the readers made here.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from mcptrio._schema import docs, records
from mcptrio._schema.dump import dump
from mcptrio._schema.faults import ArgumentFaults, Faults, show
from mcptrio._schema.records import MISSING
from mcptrio._schema.shape import JsonSchema, Shape
from mcptrio._schema.shapes import Shapes, object_schema
from mcptrio._struct import Entity
from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    from mcptrio._schema.check import Checker

__all__ = ["ArgumentFaults", "OutputSchema", "Reader", "Signature", "describe", "dump", "output_schema", "schema_of"]

Bind = Callable[[Mapping[str, Any]], dict[str, Any]]
ROOT: Final = "arguments"
WRAPPED: Final = "x-fastmcp-wrap-result"
"""Tells FastMCP clients to unwrap the property `result`."""
_LISTS: Final = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)


class Signature(Struct, frozen=True, kw_only=True):
    """The parameters and the result of a function.

    `bind` turns JSON arguments into keyword arguments; omitted ones keep the function's own default. `bind_text` does
    the same for arguments that are all strings (prompts, resource templates): `"7"` becomes 7 for an `int`. Both raise
    `ArgumentFaults`. `injected` names the parameter that gets the context; it is not part of the schema.
    """

    input_schema: JsonSchema
    bind: Bind
    bind_text: Bind
    injected: str | None
    description: str | None
    returns: Any
    is_async: bool


def describe(
    fn: Callable[..., Any],
    *,
    injected: Callable[[Any], bool],
    names: Mapping[str, Any] | None = None,
    closed: bool = True,
) -> Signature:
    """Read a function's signature, annotations and docstring.

    `injected` returns whether an annotation is that of the context. `names` resolves string annotations that the module
    does not know (the locals of a function that declares tools inside itself). With `closed` unknown arguments and
    fields are refused, otherwise they are ignored.

    Raises:
        DeclarationError: a parameter cannot be described; the text says how to fix it.
    """
    plain = _unwrapped(fn)
    title = getattr(plain, "__qualname__", repr(plain)).rpartition("<locals>.")[2]
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise DeclarationError(f"`{title}` yields, and there is one answer; return it, as a list if it has parts")
    hints = records.hints_of(plain, names or {})
    doc = docs.parse(inspect.getdoc(plain))
    shapes = Shapes(closed=closed, names=names)
    context: str | None = None
    parameters: list[tuple[str, Shape, bool]] = []
    fill: dict[str, Callable[[], Any]] = {}
    for parameter in inspect.signature(fn).parameters.values():
        name = parameter.name
        hint = hints.get(name, MISSING)
        if hint is not MISSING and _is_injected(hint, injected):
            if context is not None:
                raise DeclarationError(f"`{title}` takes the context twice, as `{context}` and `{name}`; keep one")
            context = name
            continue
        _check_parameter(title, parameter, hint)
        default: Any = MISSING if parameter.default is parameter.empty else parameter.default
        optional = default is not MISSING
        if _is_pydantic_field(default):
            field, hint = default, typing.Annotated[hint, default]
            optional, default = not field.is_required(), MISSING if field.default_factory else field.default
            if optional:  # otherwise the function would get the Field object
                fill[name] = functools.partial(field.get_default, call_default_factory=True)
        try:
            shape = shapes.noted(hint, doc.params.get(name), default)
            if default is not MISSING:
                _check_default(shape, default)
        except DeclarationError as exc:
            raise DeclarationError(f"parameter `{name}` of `{title}`: {exc}") from exc
        parameters.append((name, shape, not optional))
    schema = object_schema([(name, shape.schema, needed) for name, shape, needed in parameters], None, closed=closed)
    bind = _binder(parameters, closed=closed)
    if fill:
        bind = _filled(bind, fill)
    return Signature(
        input_schema=shapes.root(schema),
        bind=bind,
        bind_text=_text_binder(parameters, bind),
        injected=context,
        description=doc.text,
        returns=hints.get("return", inspect.Signature.empty),
        is_async=inspect.iscoroutinefunction(plain),
    )


def _unwrapped(fn: Any) -> Any:
    """Return the function whose annotations count: inside a partial, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn):
        return fn
    if isinstance(fn, type) or not callable(fn):
        raise DeclarationError(f"{fn!r} is not a function; wrap it in one with annotated parameters")
    return fn.__call__


def _is_injected(hint: Any, injected: Callable[[Any], bool]) -> bool:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated or origin in (typing.Union, types.UnionType):
        args = typing.get_args(hint)[:1] if origin is typing.Annotated else typing.get_args(hint)
        return any(_is_injected(arg, injected) for arg in args)
    cls = origin or hint
    return isinstance(cls, type) and injected(cls)


def _check_parameter(title: str, parameter: inspect.Parameter, hint: Any) -> None:
    name = parameter.name
    hint_at_wraps = "; if a decorator made it, put `@functools.wraps(fn)` above its inner function"
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            raise DeclarationError(
                f"`{title}` takes `*{name}`; arguments have names, so take `{name}: list[…]` instead{hint_at_wraps}"
            )
        case parameter.VAR_KEYWORD:
            raise DeclarationError(
                f"`{title}` takes `**{name}`; name each one, or take `{name}: dict[str, …]` instead{hint_at_wraps}"
            )
        case parameter.POSITIONAL_ONLY:
            raise DeclarationError(f"`{name}` of `{title}` is positional-only; arguments have names, so remove the `/`")
    if hint is MISSING:
        raise DeclarationError(f"`{name}` of `{title}` has no annotation; {_annotate(name)}")


def _check_default(shape: Shape, default: Any) -> None:
    """Reject a default that the parameter itself would refuse. A default without a JSON form, such as a marker, is
    allowed."""
    try:
        json = dump(default)
    except ValueError:
        return
    faults = Faults()
    shape.load(json, "default", faults)
    if faults.count:
        hint = "; write `… | None` to allow None" if default is None else ""
        raise DeclarationError(f"its {faults.texts[0]}{hint}")


def _annotate(name: str) -> str:
    match name:
        case "self" | "cls":
            return "declare the method of an object, which has no such parameter: `server.tool(thing.method)`"
        case "ctx" | "context":
            return f"write `{name}: Context`"
        case _:
            return f"write for example `{name}: str`"


def _is_pydantic_field(default: Any) -> bool:
    return type(default).__name__ == "FieldInfo" and type(default).__module__ == "pydantic.fields"


def _binder(parameters: list[tuple[str, Shape, bool]], *, closed: bool) -> Bind:
    exact = {name: shape.exact for name, shape, _ in parameters if shape.exact is not None}.get
    required = frozenset(name for name, _, needed in parameters if needed)
    plan = [(name, shape.load, shape.exact, needed) for name, shape, needed in parameters]
    known = frozenset(name for name, _, _ in parameters)
    size = len(parameters)

    def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in arguments.items():
            if exact(name) is not type(value):
                return read(arguments)
        if len(arguments) == size or required <= arguments.keys():
            return dict(arguments)
        return read(arguments)

    def read(arguments: Mapping[str, Any]) -> dict[str, Any]:
        faults = Faults()
        found: dict[str, Any] = {}
        try:
            for name, load, exact_type, needed in plan:
                value = arguments.get(name, MISSING)
                if value is MISSING:
                    if needed:
                        faults.add((ROOT, name), "required")
                elif type(value) is exact_type:
                    found[name] = value
                else:
                    found[name] = load(value, (ROOT, name), faults)
        except RecursionError:
            raise ArgumentFaults((f"{ROOT}: nested too deeply",)) from None
        if closed and len(found) != len(arguments):
            for name in arguments:
                if name not in known:
                    faults.add(ROOT, f"unexpected field {show(name)}")
                    if faults.full:
                        break
        if faults.count:
            raise faults.error()
        return found

    return bind


def _filled(bind: Bind, fill: Mapping[str, Callable[[], Any]]) -> Bind:
    """Fill in the defaults that are written as `= Field(3, …)`."""

    def bind_and_fill(arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = bind(arguments)
        return {**{name: make() for name, make in fill.items() if name not in found}, **found}

    return bind_and_fill


def _text_binder(parameters: list[tuple[str, Shape, bool]], bind: Bind) -> Bind:
    shapes = {name: shape for name, shape, _ in parameters}

    def bind_text(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return bind({name: _from_text(shapes.get(name), value) for name, value in arguments.items()})

    return bind_text


def _from_text(shape: Shape | None, text: Any) -> Any:
    """Return the JSON value that a string stands for, if the parameter does not take the string itself."""
    if shape is None or type(text) is not str or shape.exact is str:
        return text
    if "string" in shape.kinds:
        faults = Faults()
        shape.load(text, ROOT, faults)
        if not faults.count:
            return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


class Reader:
    """A reader of JSON values of one type, with its schema."""

    __slots__ = ("_shape", "schema")

    def __init__(self, type_: Any, *, names: Mapping[str, Any] | None = None, output: bool = False) -> None:
        shapes = Shapes(closed=False, names=names, output=output)
        self._shape = shapes.of(type_)
        self.schema: JsonSchema = shapes.root(self._shape.schema)

    def read(self, value: Any, *, root: str) -> Any:
        """Return the typed value.

        Raises:
            ArgumentFaults: it does not fit; `root` is the first word of every path.
        """
        faults = Faults()
        try:
            out = self._shape.load(value, root, faults)
        except RecursionError:
            raise ArgumentFaults((f"{root}: nested too deeply",)) from None
        if faults.count:
            raise faults.error()
        return out


def schema_of(type_: Any) -> JsonSchema:
    """Return the JSON Schema of a type."""
    return Reader(type_).schema


class OutputSchema(Entity, kw_only=True):
    """The conversion of a tool's return value to `structuredContent`.

    `schema` is the tool's `outputSchema`, always of an object; with `wrap` the value is its property `result`, since
    its own type is not an object. `own_schema` is the schema of the value itself.
    """

    schema: JsonSchema
    wrap: bool
    own_schema: JsonSchema
    _checker: Checker | None = None

    def structured(self, value: Any) -> dict[str, Any]:
        """Return the `structuredContent` of a value."""
        out = dump(value)
        return {"result": out} if self.wrap else out

    def faults(self, json: Any) -> list[str]:
        """Check the JSON form of a value against the schema that clients see."""
        if self._checker is None:
            from mcptrio._schema.check import Checker  # imported at the first result that is not trusted

            self._checker = Checker(self.own_schema)
        return self._checker.faults(json, root="result")


def output_schema(
    annotation: Any,
    *,
    is_content: Callable[[Any], bool] = lambda type_: False,
    names: Mapping[str, Any] | None = None,
) -> OutputSchema | None:
    """Return the output schema of a return annotation; None if the result is text, content blocks or unknown.

    Raises:
        DeclarationError: the annotation has no JSON form.
    """
    if annotation is inspect.Signature.empty or not _is_structured(annotation, is_content):
        return None
    try:
        schema = Reader(annotation, names=names, output=True).schema
    except DeclarationError as exc:
        raise DeclarationError(f"the return value: {exc}; or annotate it with Any to send it as text") from exc
    if schema.get("type") == "object":
        return OutputSchema(schema=schema, wrap=False, own_schema=schema)
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    defs = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"], WRAPPED: True, **defs}
    return OutputSchema(schema=wrapped, wrap=True, own_schema=schema)


def _is_structured(annotation: Any, is_content: Callable[[Any], bool]) -> bool:
    if annotation in (Any, str, None, type(None), object) or is_content(annotation):
        return False
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if (origin or annotation) in _LISTS and all(arg in (Any, object, ...) for arg in args):
        return False  # its item types are known only at run time, and may be content blocks
    if origin is typing.Annotated:
        return _is_structured(args[0], is_content)
    if origin in (typing.Union, types.UnionType):
        # one content member makes the whole union content; `str | None` stays text
        return not any(_holds_content(arg, is_content) for arg in args) and any(
            _is_structured(arg, is_content) for arg in args
        )
    return not _holds_content(annotation, is_content)


def _holds_content(annotation: Any, is_content: Callable[[Any], bool]) -> bool:
    """Return whether an annotation is content blocks, or a list or union of them; a record with one in a field is
    not."""
    if is_content(annotation):
        return True
    return any(_holds_content(arg, is_content) for arg in typing.get_args(annotation) if arg is not ...)
