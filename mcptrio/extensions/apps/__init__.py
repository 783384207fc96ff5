"""MCP Apps (`io.modelcontextprotocol/ui`): results of a tool are shown with a page of the server's own.

    dashboard = Ui("ui://weather/dashboard", html=Path("dashboard.html"), csp=Csp(connect=["https://api.example.com"]))

    @server.tool(ui=dashboard)
    async def weather(city: str) -> Report: ...

The page runs in a sandbox of the host. It may load from, and connect to, only what `csp` names. A host that knows no
apps shows the result of the tool as ever; `apps_of(ctx)` says which it is.
"""

from mcptrio.extensions.apps.extension import IDENTIFIER, MIME_TYPE, Apps, apps_of
from mcptrio.extensions.apps.page import Csp, Ui

__all__ = ["IDENTIFIER", "MIME_TYPE", "Apps", "Csp", "Ui", "apps_of"]
