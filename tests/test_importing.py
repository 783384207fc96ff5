"""What is imported is not looked through by the garbage collector meanwhile, and can be collected all the same."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcptrio._importing import import_at_once

MODULE = "many_things_that_stay"


@pytest.fixture(autouse=True)
def thawed() -> None:
    """Tests of `mcptrio run` in this process may have left it frozen."""
    gc.unfreeze()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / f"{MODULE}.py").write_text("kept = [[] for _ in range(50_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield MODULE
    sys.modules.pop(MODULE, None)


@pytest.fixture
def searches() -> Iterator[list[int]]:
    """The generations that were searched while the test ran."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


def test_nothing_is_searched_while_a_module_is_imported(module: str, searches: list[int]) -> None:
    assert len(import_at_once(module).kept) == 50_000
    assert searches == []
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_was_there_meanwhile_can_still_be_collected(module: str) -> None:
    ring = weakref.ref(Ring())
    import_at_once(module)
    gc.collect()
    assert ring() is None


def test_the_collector_is_on_again_after_an_import_that_failed() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_at_once("mcptrio.no_such_module")
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off(module: str) -> None:
    gc.disable()
    try:
        import_at_once(module)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_process_has_frozen_stays_frozen(module: str) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        import_at_once(module)
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
