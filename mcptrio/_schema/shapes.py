"""Annotations to shapes: the dispatch over every type that a signature may contain."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcptrio._schema import containers, docs, models, records, scalars
from mcptrio._schema.dump import dump
from mcptrio._schema.listing import inlined
from mcptrio._schema.notes import Notes
from mcptrio._schema.records import MISSING
from mcptrio._schema.shape import ANY_KIND, JsonSchema, Shape
from mcptrio.errors import DeclarationError

_WRAPPERS: Final = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}
_ARRAYS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.deque: collections.deque,
}
_SETS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_OBJECTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_SUPPORTED_TYPES: Final = (
    "use a dataclass, an attrs class, a TypedDict, a NamedTuple, a msgspec.Struct, a pydantic model, an Enum, or a "
    "plain type such as str, int or list[str]"
)


class Shapes:
    """A factory of shapes that share one `$defs`.

    With `closed` a record refuses unknown fields: arguments do, results and forms do not. With `output` the schema is
    for values that are written, not read: a pydantic model may differ in both. `names` take precedence over the
    module's names in string annotations.
    """

    def __init__(self, *, closed: bool, names: Mapping[str, Any] | None = None, output: bool = False) -> None:
        self.closed = closed
        self.output = output
        self.names = names or {}
        self.defs: dict[str, JsonSchema] = {}
        self._named: dict[Any, Shape] = {}  # records and aliases, also unfinished ones: a type may contain itself
        self._inside_itself: set[Any] = set()

    def of(self, type_: Any) -> Shape:
        """Return the shape of a type.

        Raises:
            DeclarationError: the type, or one inside it, has no JSON form.
        """
        shape = scalars.plain(type_) or self._special(type_)
        if shape is None and isinstance(type_, type):
            shape = self._class(type_)
        if shape is None:
            raise DeclarationError(f"`{_name(type_)}` has no JSON form; {_SUPPORTED_TYPES}")
        return shape

    # -- typing's own forms

    def _special(self, type_: Any) -> Shape | None:
        origin, args = typing.get_origin(type_), typing.get_args(type_)
        if origin is None:
            return self._bare(type_)
        if origin is typing.Annotated:
            return self._annotated(args[0], Notes().read(type_.__metadata__), type_)
        if origin is typing.Literal:
            return scalars.literal(args)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(args)
        if getattr(origin, "_name", None) in _WRAPPERS:
            return self.of(args[0])
        if hasattr(origin, "__value__"):  # a generic `type` alias
            return self._alias(
                type_, _substituted(origin.__value__, dict(zip(origin.__type_params__, args, strict=False)))
            )
        if origin is tuple:
            return self._tuple(args)
        return self._container(origin, args) or self._class(origin, args, type_)

    def _bare(self, type_: Any) -> Shape | None:
        if hasattr(type_, "__supertype__"):  # NewType
            return self.of(type_.__supertype__)
        if hasattr(type_, "__value__") and hasattr(type_, "__type_params__"):
            return self._alias(type_, type_.__value__)
        if isinstance(type_, typing.TypeVar):
            if type_.__constraints__:
                return self._union(type_.__constraints__)
            return self.of(type_.__bound__ or Any)
        if type_ is typing.LiteralString:
            return self.of(str)
        if type_ is tuple:
            return self._tuple((Any, ...))
        return self._container(type_, ()) if isinstance(type_, collections.abc.Hashable) else None

    def _annotated(self, base: Any, notes: Notes, whole: Any) -> Shape:
        if notes.foreign:
            return models.shape_of(whole, self.defs, output=self.output)
        if notes.limits and typing.get_origin(base) in (typing.Union, types.UnionType):
            limits, rest = notes.split()
            members = [self.of(member) for member in typing.get_args(base)]
            for name, bound in limits.limits:
                if not any(Notes(limits=[(name, bound)]).only_for(m).limits for m in members):
                    raise DeclarationError(f"`{name}={bound!r}` means nothing for `{_name(base)}`")
            return rest.apply(containers.union([limits.only_for(m).apply(m) for m in members]))
        return notes.apply(self.of(base))

    def noted(self, type_: Any, description: str | None, default: Any = MISSING) -> Shape:
        """Return the shape of a field or parameter, with its description and default."""
        shape = self.of(type_)
        extra: JsonSchema = {}
        if description and "description" not in shape.schema:
            extra["description"] = description
        if default is not MISSING:
            with contextlib.suppress(ValueError):  # a default without a JSON form is not shown, but still works
                extra["default"] = dump(default)
        return shape.like(schema={**shape.schema, **extra}) if extra else shape

    def _alias(self, alias: Any, value: Any) -> Shape:
        """Return the shape of a `type` alias: inlined, or under its name if it contains itself."""
        if alias in self._named:
            self._inside_itself.add(alias)
            return self._named[alias]
        name = self._free_name(_name(alias))
        ref = Shape({"$ref": f"#/$defs/{name}"}, None, label=_name(alias), kinds=ANY_KIND)
        self._named[alias] = ref
        self.defs[name] = {}
        shape = self.of(value)
        ref.load = shape.load
        if alias in self._inside_itself:
            self.defs[name] = shape.schema
            return shape.like(schema=ref.schema)
        del self._named[alias], self.defs[name]
        return shape

    def _union(self, args: tuple[Any, ...]) -> Shape:
        members = [self.of(member) for member in args if getattr(member, "__name__", "") != "UnsetType"]
        return members[0] if len(members) == 1 else containers.union(members)

    def _tuple(self, args: tuple[Any, ...]) -> Shape:
        if len(args) == 2 and args[1] is ...:
            return containers.array(self.of(args[0]), tuple)
        return containers.row([self.of(arg) for arg in args if arg != ()])

    def _container(self, origin: Any, args: tuple[Any, ...]) -> Shape | None:
        if origin in _ARRAYS:
            return containers.array(self.of(args[0] if args else Any), _ARRAYS[origin])
        if origin in _SETS:
            item = args[0] if args else str
            if getattr(typing.get_origin(item) or item, "__hash__", None) is None:
                raise DeclarationError(f"`{_name(item)}` cannot be put into a set; use a list")
            return containers.array(self.of(item), _SETS[origin], unique=True)
        if origin in _OBJECTS:
            key, value = args or (str, Any)
            return containers.mapping(self.of(key), self.of(value))
        return None

    # -- classes

    def _class(self, cls: Any, args: tuple[Any, ...] = (), alias: Any = None) -> Shape | None:
        if not isinstance(cls, type):
            return None
        if models.is_model(cls):
            return models.shape_of(cls, self.defs, output=self.output)
        if issubclass(cls, enum.Enum):
            return scalars.enumeration(cls)
        if records.is_record(cls):
            return self._record(cls, args, alias or cls)
        return scalars.formatted(cls) or scalars.subclassed(cls)

    def _record(self, cls: Any, args: tuple[Any, ...], key: Any) -> Shape:
        if (known := self._named.get(key)) is not None:
            return known
        name = self._free_name(_name(key))
        shape = Shape({"$ref": f"#/$defs/{name}"}, None, label=cls.__name__, kinds=frozenset({"object"}))
        self._named[key] = shape
        self.defs[name] = {}  # reserves the name while the fields are read
        bound = _bindings(cls, args)
        made: list[tuple[records.Field, Shape]] = []
        for field in records.fields_of(cls, {cls.__name__: cls, **self.names}):
            try:
                type_ = cls if field.type is typing.Self else _substituted(field.type, bound)
                made.append((field, self.noted(type_, field.description, field.default)))
            except DeclarationError as exc:
                raise DeclarationError(f"{cls.__name__}.{field.name}: {exc}") from None
        given = [(f, s) for f, s in made if f.init]
        shape.tags.update((f.key, s.choices) for f, s in given if s.choices)
        shape.load = records.reader(cls, given, closed=self.closed)
        shown = [(f.key, s.schema, f.required) for f, s in (given if self.closed else made)]
        if (tag := records.tag_of(cls)) is not None:
            shape.tags[tag[0]] = (tag[1],)
            shown.insert(0, (tag[0], scalars.literal([tag[1]]).schema, True))
        self.defs[name] = object_schema(shown, docs.parse(records.own_doc(cls)).text, closed=self.closed)
        return shape

    def _free_name(self, name: str) -> str:
        name = "".join(c if c.isalnum() else "_" for c in name).strip("_")
        free, n = name, 1
        while free in self.defs:
            n += 1
            free = f"{name}_{n}"
        return free

    # -- whole schemas

    def root(self, schema: JsonSchema) -> JsonSchema:
        """Return a standalone schema; only definitions that contain themselves stay in `$defs`."""
        if schema.keys() == {"$ref"}:  # the root of an input or output schema says that it is an object
            schema = self.defs[schema["$ref"].rpartition("/")[2]]
        return inlined({**schema, "$defs": self.defs} if self.defs else dict(schema))


def object_schema(
    properties: list[tuple[str, JsonSchema, bool]], description: str | None, *, closed: bool
) -> JsonSchema:
    out: JsonSchema = {"type": "object"}
    if description:
        out["description"] = description
    out["properties"] = {key: schema for key, schema, _ in properties}
    if required := [key for key, _, needed in properties if needed]:
        out["required"] = required
    if closed:
        out["additionalProperties"] = False
    return out


def _bindings(cls: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
    """Return the value of each type variable of a generic record, including those of its bases."""
    bound: dict[Any, Any] = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    for base in cls.__mro__:
        for generic in vars(base).get("__orig_bases__", ()):
            parameters = getattr(typing.get_origin(generic), "__parameters__", ())
            for variable, arg in zip(parameters, typing.get_args(generic), strict=False):
                bound.setdefault(variable, _substituted(arg, bound))
    return bound


def _substituted(type_: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(type_, typing.TypeVar):
        return bound.get(type_, type_)
    if not isinstance(type_, type) and (parameters := getattr(type_, "__parameters__", ())):
        return type_[tuple(bound.get(p, p) for p in parameters)]
    return type_


def _name(type_: Any) -> str:
    if typing.get_origin(type_) is not None:
        return str(type_).replace("typing.", "").rpartition(".")[2] if "[" not in str(type_) else _generic_name(type_)
    return getattr(type_, "__name__", None) or str(type_)


def _generic_name(type_: Any) -> str:
    origin = typing.get_origin(type_)
    head = "Union" if origin in (typing.Union, types.UnionType) else _name(origin)
    return f"{head}[{', '.join(_name(arg) for arg in typing.get_args(type_))}]"
