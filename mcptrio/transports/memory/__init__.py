"""In-process connections, for `connect(server)` and tests."""
