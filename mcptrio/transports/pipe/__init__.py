"""Pipes that carry whole messages, shared by stdio, WebSocket and in-memory connections."""
