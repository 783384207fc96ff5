"""Opening the sign-in page: one program, one argument, no shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcptrio.transports.oauth import browser


@pytest.mark.parametrize(
    ("platform", "program"), [("linux", "xdg-open"), ("darwin", "open"), ("freebsd14", "xdg-open")]
)
def test_a_page_is_one_argument(platform: str, program: str) -> None:
    url = "https://as.example/a?x=$(id)&y=`id`;z='"
    assert browser.command_for(url, platform) == [program, url]
    assert browser.command_for(url, "win32") is None


async def test_neg_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    class Recorded:
        def __init__(self, command: Any, **settings: Any) -> None:
            ran.append((command, settings))

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(browser, "command_for", lambda url: ["xdg-open", url])
    assert await browser.open_page("https://as.example/;id")
    ((command, settings),) = ran
    assert command == ["xdg-open", "https://as.example/;id"]
    assert "shell" not in settings
    assert settings["start_new_session"]


async def test_without_a_browser_the_page_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "command_for", lambda url: ["mcptrio-no-such-program", url])
    assert not await browser.open_page("https://as.example/")


async def test_a_program_that_fails_has_not_opened_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "command_for", lambda url: [sys.executable, "-c", "raise SystemExit(3)"])
    assert not await browser.open_page("https://as.example/")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no FIFO")
async def test_a_browser_that_stays_in_the_foreground_has_opened_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setattr(browser, "_START_TIME", 0.05)
    monkeypatch.setattr(browser, "command_for", lambda url: ["sh", "-c", f"read line < {fifo}; exit 3"])
    assert await browser.open_page("https://as.example/")
    fifo.write_text("the user closes the browser\n")


async def test_on_windows_a_system_call_opens_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(browser, "command_for", lambda url: None)
    monkeypatch.setattr(os, "startfile", opened.append, raising=False)
    assert await browser.open_page("https://as.example/")
    assert opened == ["https://as.example/"]

    def no_browser(url: str) -> None:
        raise OSError("no application is associated with the file")

    monkeypatch.setattr(os, "startfile", no_browser, raising=False)
    assert not await browser.open_page("https://as.example/")
