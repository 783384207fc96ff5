"""The deprecated HTTP+SSE transport (2024-11-05): one GET streams everything to the client, POSTs carry the rest."""
