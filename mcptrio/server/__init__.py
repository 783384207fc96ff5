"""The MCP server: declare tools, resources and prompts, and serve them."""
