"""The reference of public names: the signature, the docstring and the members of each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_overloads

import attrs
import msgspec
from tables import documented

# Public by spelling, but called by the runtime only.
FOR_THE_RUNTIME = {
    "Changes.end",
    "admit",
    "attach",
    "filter",
    "finish",
    "put_everything",
    "raise_if_refused",
}
MADE_BY_THE_RUNTIME = {
    "Context",
    "SessionHandle",
    "Elicited",
    "HttpInfo",
    "Change",
    "Changes",
    "Clients",
    "Completable",
    "LoadedSkill",
}


FIRST = ("Server", "Context", "SessionHandle", "Elicited", "HttpInfo", "connect", "Client")


def api() -> str:
    """Signature, docstring and public members of every name of `mcptrio`; the exceptions are on a page of their own."""
    import mcptrio

    def is_error(name: str) -> bool:
        thing = getattr(mcptrio, name)
        return isinstance(thing, type) and issubclass(thing, Exception)

    others = [name for name in mcptrio.__all__ if name not in FIRST and not is_error(name)]
    return "\n\n".join(describe(name, getattr(mcptrio, name)) for name in (*FIRST, *others))


def names(module: str, *only: str) -> str:
    """The public names of another module, or some of them, with what is documented of their members."""
    import mcptrio

    found = import_module(module)
    own = [name for name, thing in vars(found).items() if getattr(thing, "__module__", None) == module]
    listed = only or getattr(found, "__all__", [name for name in own if name[0] != "_" and not name.isupper()])
    return "\n\n".join(
        describe(name, getattr(found, name), documented_only=True) for name in listed if name not in mcptrio.__all__
    )


def describe(name: str, thing: Any, *, documented_only: bool = False) -> str:
    parts = [f"### `{name}`"]
    if isinstance(thing, str):
        return "\n\n".join([*parts, f"`{thing!r}`"])
    if not isinstance(thing, type):
        return "\n\n".join([*parts, spell(name, thing), prose(thing)])
    struct = issubclass(thing, msgspec.Struct)
    own = thing if struct else thing.__dict__.get("__init__")
    has_fields = struct or attrs.has(thing)
    if getattr(thing, "_is_protocol", False):  # of `typing.Protocol`: its constructor says nothing
        parts.append(f"```python\nclass {name}(Protocol)\n```")
    elif own is not None and name not in MADE_BY_THE_RUNTIME:
        parts.append(spell(name, own))
    parts.append(prose(thing))
    if own is not None and not has_fields and own.__doc__:
        parts.append(prose(own))
    if (has_fields and name in MADE_BY_THE_RUNTIME) or hasattr(thing, "__total__"):  # a TypedDict
        parts.append("\n".join(f"- `{field}`: `{kind}`. {words}".rstrip() for field, kind, words in documented(thing)))
    return "\n\n".join(part for part in (*parts, *members(name, thing, documented_only)) if part)


def members(owner: str, cls: type, documented_only: bool = False) -> Iterator[str]:
    seen: set[str] = set()
    for base in (cls, *(b for b in cls.__mro__[1:] if b.__module__.startswith(("mcptrio.server", "mcptrio.client")))):
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen | FOR_THE_RUNTIME or f"{owner}.{name}" in FOR_THE_RUNTIME:
                continue
            seen.add(name)
            member = member.__func__ if isinstance(member, classmethod) else member
            if documented_only and not getattr(member, "__doc__", None):
                continue
            title = f"#### `{owner}.{name}`"
            if inspect.isfunction(member):
                yield f"{title}\n\n{spell(name, member)}\n\n{prose(member)}".strip()
            elif isinstance(member, property) and member.fget is not None:
                kind = inspect.signature(member.fget).return_annotation
                yield f"{title}\n\n`{spelled(kind)}`\n\n{prose(member)}".strip()


def spell(name: str, fn: Any) -> str:
    """Return a code block with the signature of a function or class, or with those of its overloads."""
    shapes = get_overloads(fn) if inspect.isfunction(fn) else []
    return "```python\n" + "\n".join(signature(name, shape) for shape in shapes or [fn]) + "\n```"


def signature(name: str, fn: Any) -> str:
    """Spell a signature on one line, or with one parameter on each line where that is too long."""
    word = "class" if name[0].isupper() else "async def" if inspect.iscoroutinefunction(fn) else "def"
    given = inspect.signature(fn)
    shown: list[str] = []
    kind = None
    for parameter in given.parameters.values():
        if parameter.name in ("self", "cls") and not shown:
            continue
        if kind is parameter.POSITIONAL_ONLY and parameter.kind is not kind:
            shown.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            shown.append("*")
        kind = parameter.kind
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "") + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {spelled(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            made = parameter.default is attrs.NOTHING or " at 0x" in repr(parameter.default)
            text += f" = {'...' if made else repr(parameter.default)}"
        shown.append(text)
    if kind is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    back = given.return_annotation
    tail = "" if back is given.empty or word == "class" else f" -> {spelled(back)}"
    line = f"{word} {name}({', '.join(shown)}){tail}"
    return line if len(line) <= 88 else f"{word} {name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){tail}"


def spelled(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def prose(thing: Any) -> str:
    """A docstring as Markdown: its `Args:` and `Raises:` become lists."""
    doc = inspect.getdoc(thing) or ""
    out: list[str] = []
    for line in doc.splitlines():
        if line in ("Args:", "Raises:"):
            out += [f"{line[:-1]}:", ""]
        elif line.startswith("    ") and ": " in line and out and not line.startswith("     "):
            name, _, words = line.strip().partition(": ")
            out.append(f"- `{name}`: {words}")
        else:
            out.append(line)
    return "\n".join(out).strip()
