"""The MCP endpoint over HTTP: what a request means. Nothing here knows a socket or ASGI."""
