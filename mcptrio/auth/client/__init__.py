"""OAuth 2.1 as a client, as pure flows: each says what to fetch, and is told what came of it."""
