"""The built site works in a browser when it is opened from disk: every page, the search, the menu, both colour schemes.

It needs the extras `docs` and `browser`, and a Chromium that is installed. Without them these tests are skipped; where
the variable `REQUIRE_BROWSER` is set, they fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# The program is kept from reaching for the network by itself, which could be taken for a request of a page.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")


def missing() -> str | None:
    for module, extra in (("zensical", "docs"), ("playwright", "browser")):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install -e '.[{extra}]'"
    if not any(map(shutil.which, PROGRAMS)):
        return f"no Chromium is installed ({', '.join(PROGRAMS)})"
    return None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (reason := missing()) is not None:
        pytest.fail(reason) if os.environ.get("REQUIRE_BROWSER") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "docs/build.py", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"Open {folder}/index.html from disk")
    return folder


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, PROGRAMS)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        yield chromium
        chromium.close()


class Visit:
    """A page of a browser, with the complaints that it collects."""

    def __init__(self, browser: Any, site: Path, **options: Any) -> None:
        self.site = site
        self.page = browser.new_page(**options)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.complain(said.text))
        self.page.on("pageerror", lambda error: self.complain(str(error)))
        self.page.on("request", self.see)

    def complain(self, text: str) -> None:
        self.complaints.append(f"{self.page.url}: {text}")

    def see(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complain(f"requests {request.url}")

    def open(self, name: str) -> None:
        self.page.goto(f"file://{self.site}/{name}", wait_until="load")


def test_every_page_is_whole_on_a_narrow_screen(browser: Any, site: Path) -> None:
    visit = Visit(browser, site, viewport={"width": 400, "height": 800}, color_scheme="dark")
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert len(pages) > 50
    for page in pages:
        visit.open(str(page.relative_to(site)))
        wide = visit.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        empty = visit.page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)")
        assert (page.name, wide, empty) == (page.name, False, [])
    assert visit.complaints == []


def test_descriptions_of_settings_are_in_sight_on_a_narrow_screen(browser: Any, site: Path) -> None:
    visit = Visit(browser, site, viewport={"width": 400, "height": 800})
    visit.open("reference/settings.html")
    cells = visit.page.locator("table").first.locator("tbody td:last-child")
    assert cells.count() > 10
    assert all(box["x"] + box["width"] <= 400 for cell in cells.all() if (box := cell.bounding_box()) is not None)


def test_the_search_finds_pages_from_disk(browser: Any, site: Path) -> None:
    visit = Visit(browser, site)
    visit.open("index.html")
    visit.page.get_by_role("button", name="Search").first.click()
    visit.page.get_by_placeholder("Search").press_sequentially("elicitation")
    visit.page.get_by_text(re.compile(r"\d+ results")).wait_for(timeout=30_000)
    visit.page.get_by_placeholder("Search").fill("kubernetes probes")
    visit.page.get_by_role("option", name=re.compile("Probes")).first.click()
    visit.page.wait_for_url(re.compile("kubernetes.html"))
    assert visit.page.locator("h1").inner_text().startswith("Kubernetes")
    assert visit.complaints == []


def test_a_page_has_neighbours_and_two_colour_schemes(browser: Any, site: Path) -> None:
    visit = Visit(browser, site, color_scheme="light")
    visit.open("tutorial/first.html")
    body = visit.page.locator("body")
    assert body.get_attribute("data-md-color-scheme") == "default"
    visit.page.get_by_title("Switch to the dark colours").click()
    assert body.get_attribute("data-md-color-scheme") == "slate"
    visit.page.get_by_role("link", name=re.compile("Next")).click()
    visit.page.wait_for_url(re.compile(r"typed\.html"))
    assert body.get_attribute("data-md-color-scheme") == "slate"  # remembered
    visit.page.get_by_role("link", name=re.compile("Previous")).click()
    visit.page.wait_for_url(re.compile(r"first\.html"))
    assert visit.complaints == []
