"""The signatures that `inspect` shows."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio.cli.arguments import typed
from mcptrio.cli.inspect import signature

DEFINITIONS = {
    "Size": {"type": "string", "enum": ["s", "l"]},
    "Alias": {"$ref": "#/$defs/Size"},
    "Circle": {"$ref": "#/$defs/Circle"},
    "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Tree"}, {"type": "string"}]},
    "a/b": {"type": "integer"},
}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"$ref": "#/$defs/Size"}, "s|l"),
        ({"$ref": "#/$defs/Alias"}, "s|l"),
        ({"$ref": "#/$defs/a~1b"}, "integer"),
        ({"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]}, "s|l|null"),
        ({"$ref": "#/$defs/Circle"}, "any"),
        ({"$ref": "#/$defs/Nowhere"}, "any"),
        ({"$ref": "https://example.org/schema"}, "any"),
        ({"$ref": "#/$defs/Tree"}, "any|string"),
    ],
)
def test_references_are_resolved(schema: dict[str, Any], shown: str) -> None:
    whole = {"properties": {"x": schema}, "required": ["x"], "$defs": DEFINITIONS}
    assert signature(whole) == f"x: {shown}"


def test_an_argument_has_the_type_behind_its_reference() -> None:
    whole = {"properties": {"name": {"$ref": "#/$defs/Name"}}, "$defs": {"Name": {"type": "string"}}}
    assert typed({"name": "5"}, whole) == {"name": "5"}
