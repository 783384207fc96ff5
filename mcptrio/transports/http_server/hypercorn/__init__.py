"""The ordinary engine: a standard ASGI application, served by Hypercorn behind the listener."""
