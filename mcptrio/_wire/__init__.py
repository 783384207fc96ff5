"""Bytes to frames and back: JSON-RPC, lines, server-sent events, headers, RESP3, and classes as JSON objects."""
