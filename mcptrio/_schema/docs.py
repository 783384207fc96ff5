"""Docstrings: the descriptions of a function or class and of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Final

import msgspec

# Text that looks like a section of a Google, NumPy, Sphinx or Epydoc docstring. Without one there is nothing to parse,
# and the parser need not be imported.
_SECTIONS: Final = (
    r"^\s*(?:(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes|Returns?|"
    r"Yields?|Raises|Examples?|Notes?|Warns)\s*:?\s*$|[:@](?:param|arg|key|type|returns?|raises?|var|ivar)\b)"
)


class Doc(msgspec.Struct, frozen=True):
    """A parsed docstring: `text` is the short and long description, `params` the description of each parameter or
    attribute."""

    text: str | None
    params: Mapping[str, str]


def parse(docstring: str | None) -> Doc:
    if not docstring or not docstring.strip():
        return Doc(None, {})
    one_line = "\n" not in docstring and not docstring.startswith((":", "@"))  # as usual
    if one_line or re.search(_SECTIONS, docstring, re.MULTILINE) is None:
        return Doc(inspect.cleandoc(docstring), {})
    import docstring_parser

    try:
        parsed = docstring_parser.parse(inspect.cleandoc(docstring))
    except docstring_parser.ParseError:
        return Doc(inspect.cleandoc(docstring), {})  # free text that only resembled a section
    text = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    params = {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}
    return Doc(text or None, params)
