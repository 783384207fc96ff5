"""A tool whose results are shown with a page of the server's own."""

from __future__ import annotations

from dataclasses import dataclass

from mcptrio import Context, Server
from mcptrio.extensions.apps import Csp, Ui, apps_of

server = Server("thermometer")

PAGE = """<!doctype html>
<title>Thermometer</title>
<output id="degrees">…</output>
<script type="module" src="https://static.example.org/thermometer.js"></script>
"""

thermometer = Ui(
    "ui://thermometer/page",
    html=PAGE,  # or Path("page.html"), or a function that gives the page
    csp=Csp(resources=["https://static.example.org"], connect=["https://api.example.org"]),
    prefers_border=True,
)


@dataclass
class Reading:
    room: str
    degrees: float


@server.tool(read_only=True, ui=thermometer)
async def temperature(room: str) -> Reading:
    """Read the thermometer of a room."""
    return Reading(room, 21.5)


@server.tool(read_only=True, ui=thermometer)
async def average(ctx: Context) -> str:
    """Say how warm it is, at more length where there is no page to show it."""
    return "21.5" if apps_of(ctx) else "It is 21.5 °C on average: warm enough."
