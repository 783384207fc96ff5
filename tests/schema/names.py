"""Names for parametrised cases that are the same in every process: no addresses, no order of sets."""

from __future__ import annotations

import re
from typing import Any


def shown(value: Any) -> str:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:40]
