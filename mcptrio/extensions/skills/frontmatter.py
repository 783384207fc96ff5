"""The front matter of a SKILL.md: YAML at its start, read as JSON, and the rules for its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from mcptrio.errors import DeclarationError

MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
RESERVED: Final = "io.modelcontextprotocol/"
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HEAD: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def read_front_matter(text: str) -> dict[str, Any]:
    """Read the front matter at the start of a text.

    Raises:
        DeclarationError: there is none, it cannot be read, or it breaks a rule.
    """
    head = _HEAD.match(text)
    if head is None:
        raise DeclarationError("it must begin with YAML between two lines of ---")
    yaml, loader = _yaml()
    try:
        fields = yaml.load(head[1], Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DeclarationError(f"its front matter cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise DeclarationError("its front matter must be a mapping")
    return check_front_matter(fields)


def check_front_matter(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields; raise `DeclarationError` if they break a rule of the Agent Skills specification."""
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        hint = f"1 to {MAX_NAME} lower-case letters and digits, with single hyphens between them"
        raise DeclarationError(f"its name must be {hint}, not {name!r:.100}")
    if not isinstance(description, str) or not 0 < len(description) <= MAX_DESCRIPTION:
        raise DeclarationError(f"its description must be a text of 1 to {MAX_DESCRIPTION} characters")
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and any(str(key).startswith(RESERVED) for key in metadata):
        raise DeclarationError(f"its metadata has keys that begin with {RESERVED}, which is reserved")
    _check_json(fields)
    return fields


def _check_json(value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise DeclarationError(f"its front matter has a key that is not a text: {key!r:.100}")
            _check_json(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_json(inner)
    elif not isinstance(value, str | int | float | bool | None):
        raise DeclarationError(f"its front matter has a value that JSON lacks: {value!r:.100}")


def write_front_matter(fields: Mapping[str, Any]) -> str:
    """Write front matter as text. JSON is YAML, so each field is one line."""
    lines = [f"{_inline(name)}: {_inline(value)}\n" for name, value in fields.items()]
    return f"---\n{''.join(lines)}---\n\n"


def _inline(value: Any) -> str:
    # Characters that JSON keeps and YAML reads as line ends, or not at all
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


@cache
def _yaml() -> tuple[Any, Any]:
    """Return PyYAML and a safe loader with the scalars of YAML 1.2.

    Its own are those of YAML 1.1, where `no` is false and `2026-07-28` is a date. Hosts compare with JSON, so both must
    read the same. Aliases are refused, since they can grow without bound.
    """
    try:
        import yaml
    except ImportError as error:  # pragma: no cover - depends on what is installed
        raise DeclarationError(
            'skills in folders need PyYAML: pip install "mcptrio[skills]", or in a checkout pip install ".[skills]"'
        ) from error

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not allowed")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            if len(set(map(str, keys))) != len(keys):
                raise yaml.YAMLError("a key occurs twice")
            return super().construct_mapping(node, deep)

    def whole(loader: Any, node: Any) -> int:
        text = str(loader.construct_scalar(node))
        return int(text, 0) if text[1:2] in ("x", "o") else int(text)

    plain = (
        ("tag:yaml.org,2002:null", r"(?:~|null|Null|NULL|)", "~nN\0"),
        ("tag:yaml.org,2002:bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
        ("tag:yaml.org,2002:int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)", "-+0123456789"),
        (
            "tag:yaml.org,2002:float",
            r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
            "-+.0123456789",
        ),
    )
    Loader.yaml_implicit_resolvers = {}
    for tag, pattern, first in plain:
        Loader.add_implicit_resolver(tag, re.compile(pattern + r"\Z"), ["" if c == "\0" else c for c in first])
    Loader.add_constructor("tag:yaml.org,2002:int", whole)
    return yaml, Loader
