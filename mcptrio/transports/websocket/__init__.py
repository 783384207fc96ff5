"""The WebSocket transport: one JSON-RPC message per text message."""
