"""The server side: declaring tools, resources and prompts, and serving them."""
