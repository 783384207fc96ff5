"""MCP Apps (`io.modelcontextprotocol/ui`): results of a tool are shown with a page of the server.

    dashboard = Ui("ui://weather/dashboard", html=Path("dashboard.html"), csp=Csp(connect=["https://api.example.com"]))

    @server.tool(ui=dashboard)
    async def weather(city: str) -> Report: ...

The page runs in a sandbox of the host. It may load from, and connect to, only the origins in `csp`. A host without
support for apps shows the plain result of the tool; `apps_of(ctx)` returns whether the client supports them.
"""

from mcptrio.extensions.apps.extension import IDENTIFIER, MIME_TYPE, Apps, apps_of
from mcptrio.extensions.apps.page import Csp, Ui

__all__ = ["IDENTIFIER", "MIME_TYPE", "Apps", "Csp", "Ui", "apps_of"]
