"""Classes with named fields: one view of dataclass, attrs, TypedDict, NamedTuple and msgspec.Struct.

All of them become JSON objects, NamedTuple too, because names tell a reader more than positions.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from mcptrio._schema import docs
from mcptrio._schema.faults import Faults, Place, show
from mcptrio._schema.scalars import said
from mcptrio._schema.shape import Load, Shape
from mcptrio.errors import DeclarationError

MISSING: Final[Any] = object()
_EMPTY_FACTORIES: Final = (list, dict, set, tuple, frozenset)


class Field(msgspec.Struct, frozen=True):
    """One field: `name` for the constructor, `key` in JSON. `default` is MISSING if none can be shown."""

    name: str
    key: str
    type: Any
    required: bool
    default: Any = MISSING
    description: str | None = None
    init: bool = True


def is_record(cls: Any) -> bool:
    return isinstance(cls, type) and attributes_of(cls) is not None


def attributes_of(cls: type) -> list[tuple[str, str]] | None:
    """Return (attribute, JSON key) of every field, or None if the class is not a record. Resolves no annotations."""
    if attrs.has(cls):
        return [(a.name, a.alias or a.name) for a in attrs.fields(cls)]
    if hasattr(cls, "__dataclass_fields__"):
        import dataclasses

        return [(f.name, f.name) for f in dataclasses.fields(cls)]
    if _is_struct(cls):
        return list(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]  # Struct
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return [(name, name) for name in cls._fields]
    if is_typed_dict(cls):
        return [(name, name) for name in cls.__annotations__]
    return None


def is_typed_dict(cls: Any) -> bool:
    """Return whether a class is a TypedDict, of `typing` or of `typing_extensions`, which has its own class."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _is_struct(cls: type) -> bool:
    return hasattr(cls, "__struct_fields__")


def tag_of(cls: type) -> tuple[str, Any] | None:
    """Return the tag field and value of a tagged msgspec.Struct."""
    config = getattr(cls, "__struct_config__", None)
    return None if config is None or config.tag is None else (config.tag_field, config.tag)


def hints_of(thing: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resolved annotations, with `Annotated` kept. `names` are visible where the thing was declared."""
    try:
        return typing.get_type_hints(thing, localns=dict(names) if names else None, include_extras=True)
    except NameError as exc:
        from mcptrio._hints import import_of

        statement = import_of(exc.name)
        advice = f": `{statement}`" if statement is not None else ", or declare it at the top of the module"
        raise DeclarationError(
            f"the annotation `{exc.name}` of `{thing.__name__}` cannot be found; "
            f"import it for real (not under TYPE_CHECKING){advice}"
        ) from exc
    except Exception as exc:  # an annotation is code: it may raise anything
        raise DeclarationError(f"an annotation of `{thing.__name__}` cannot be read: {exc}") from exc


def fields_of(cls: Any, names: Mapping[str, Any]) -> list[Field]:
    hints = hints_of(cls, names)
    said_so = docs.parse(own_doc(cls)).params
    return [replace(f, description=f.description or said_so.get(f.name)) for f in _reader_of(cls)(cls, hints)]


def _reader_of(cls: Any) -> Callable[[Any, dict[str, Any]], list[Field]]:
    if is_typed_dict(cls):
        return _typed_dict
    if attrs.has(cls):
        return _attrs
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass
    return _struct if _is_struct(cls) else _named_tuple


def _shown(factory: Any) -> Any:
    # Other factories may have side effects or depend on time: do not call them only for a description.
    return factory() if factory in _EMPTY_FACTORIES else MISSING


def _attrs(cls: Any, hints: dict[str, Any]) -> list[Field]:
    out = []
    for a in attrs.fields(cls):
        default: Any = MISSING if a.default is attrs.NOTHING else a.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
            default = MISSING if default.takes_self else _shown(default.factory)
        name, required = a.alias or a.name, a.default is attrs.NOTHING
        out.append(
            Field(name, name, hints.get(a.name, Any), required, default, a.metadata.get("description"), init=a.init)
        )
    return out


def _dataclass(cls: Any, hints: dict[str, Any]) -> list[Field]:
    import dataclasses

    if late := [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]:
        raise DeclarationError(f"`{cls.__name__}.{late[0]}` is an InitVar, which no value can show; make it a field")
    out = []
    for f in dataclasses.fields(cls):
        bare, made = f.default is dataclasses.MISSING, f.default_factory is not dataclasses.MISSING
        default = _shown(f.default_factory) if made else MISSING if bare else f.default
        out.append(
            Field(f.name, f.name, hints[f.name], bare and not made, default, f.metadata.get("description"), init=f.init)
        )
    return out


def _struct(cls: Any, hints: dict[str, Any]) -> list[Field]:
    out = []
    defaults = cls.__struct_defaults__
    first = len(cls.__struct_fields__) - len(defaults)
    for index, (name, key) in enumerate(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)):
        default = defaults[index - first] if index >= first else msgspec.NODEFAULT
        required = default is msgspec.NODEFAULT
        if hasattr(default, "factory"):
            default = _shown(default.factory)
        out.append(Field(name, key, hints[name], required, MISSING if required else default))
    return out


def _named_tuple(cls: Any, hints: dict[str, Any]) -> list[Field]:
    defaults = cls._field_defaults
    return [Field(n, n, hints.get(n, Any), n not in defaults, defaults.get(n, MISSING)) for n in cls._fields]


def _typed_dict(cls: Any, hints: dict[str, Any]) -> list[Field]:
    return [Field(name, name, hint, _is_required(cls, name, hint)) for name, hint in hints.items()]


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    # With string annotations Python 3.11 does not see NotRequired when it creates the class, and counts the key as
    # required: the resolved hint takes precedence.
    while (origin := typing.get_origin(hint)) is not None:
        if _called(origin, "NotRequired"):
            return False
        if _called(origin, "Required"):
            return True
        if origin is not typing.Annotated and not _called(origin, "ReadOnly"):
            break
        hint = typing.get_args(hint)[0]
    return name in cls.__required_keys__


def _called(form: Any, name: str) -> bool:
    """Return whether a special form has this name: typing and typing_extensions each have their own."""
    return getattr(form, "_name", None) == name


def own_doc(cls: Any) -> str | None:
    """Return the docstring that was written for this class; not one that dataclasses and tuples generate."""
    doc = vars(cls).get("__doc__")
    return None if doc is None or doc.startswith(f"{cls.__name__}(") else doc


def reader(cls: Any, fields: list[tuple[Field, Shape]], *, closed: bool) -> Load:
    """Return a function that reads one JSON object into an instance."""
    plan = [(f.key, f.name, shape.load, shape.exact, f.required) for f, shape in fields]
    known = frozenset(f.key for f, _ in fields)
    tag = tag_of(cls)
    tag_key, tag_value = tag or ("", None)
    make: Callable[..., Any] = dict if is_typed_dict(cls) else cls
    label = cls.__name__

    def load(value: Any, at: Place, faults: Faults) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            return faults.add(at, f"expected object ({label}), got {show(value)}")
        before = faults.count
        found: dict[str, Any] = {}
        for key, name, load_field, exact, required in plan:
            item = value.get(key, MISSING)
            if item is MISSING:
                if required:
                    faults.add((at, key), "required")
            elif type(item) is exact:
                found[name] = item
            else:
                found[name] = load_field(item, (at, key), faults)
        seen = len(found)
        if tag is not None:
            seen += tag_key in value
            if value.get(tag_key) != tag_value:
                faults.add((at, tag_key), f"expected {show(tag_value)}" if tag_key in value else "required")
        if closed and seen != len(value):
            for key in value:
                if key not in known and (tag is None or key != tag_key):
                    faults.add(at, f"unexpected field {show(key)}")
                    if faults.full:
                        break
        if faults.count != before:
            return None
        try:
            return make(**found)
        except (ValueError, TypeError) as exc:  # __post_init__ and attrs validators
            return faults.add(at, said(exc))

    return load
