"""The stdio transport: one message per line on standard input and output."""
