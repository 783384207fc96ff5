"""Trio and asyncio in one program: Trio as a guest of an asyncio loop, and calls in both directions."""
