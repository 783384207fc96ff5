"""Authorization of HTTP servers: drives the checks of `mcptrio.auth.server` and fetches what they need."""
