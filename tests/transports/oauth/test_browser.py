"""Opening the sign-in page: one program, one argument, no shell."""

from __future__ import annotations

import subprocess
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


async def test_without_a_browser_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "command_for", lambda url: ["mcptrio-no-such-program", url])
    assert not await browser.open_page("https://as.example/")
