"""Values of template variables that would lead a careless handler out of the folder that it serves."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

_ELSEWHERE: Final = (
    r"\x00"
    r"|^[/\\]"  # absolute, or a share
    r"|(?:^|[/\\])\.\.(?:[/\\]|$)"
    r"|^[A-Za-z]:"
    + ("" if os.name == "nt" else r"[/\\]")  # a drive; elsewhere `a:1` is a name like any other
    + r"|%(?:00|2e|2f|5c)"  # encoded once more: whoever decodes again gets one of the above
)


def leads_elsewhere(values: Mapping[str, Any]) -> bool:
    """Whether any value, joined to a folder, might name something outside of it."""
    for value in values.values():
        if isinstance(value, str):
            if re.search(_ELSEWHERE, value, re.IGNORECASE):
                return True
        elif leads_elsewhere(value if isinstance(value, Mapping) else dict(enumerate(value))):  # type: ignore[arg-type]
            return True
    return False
