"""OAuth 2.1 for clients, as pure flows: each yields the steps to perform, and gets their results."""
