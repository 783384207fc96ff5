"""How the names of this package are imported: when they are asked for, and without the garbage collector."""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType


def import_at_once(name: str) -> ModuleType:
    """Import a module; what is made meanwhile goes to the collector's oldest generation without being looked through.

    That is where it would come to anyway, as modules stay, and after a search of some 5 % of a start. Nothing is kept
    from being collected. A process that has turned the collector off, or has frozen what it holds, is left as it is.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.unfreeze()  # "into the oldest generation", says its documentation
        gc.enable()
