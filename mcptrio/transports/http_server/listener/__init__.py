"""The listener: sockets, TLS, HTTP/1.1 framing, limits and deadlines. Nothing here knows MCP."""
