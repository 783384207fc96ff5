"""The fast engine: plain requests for the endpoint are answered without ASGI."""
