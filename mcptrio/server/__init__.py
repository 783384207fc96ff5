"""The MCP server: declare tools, resources and prompts, and serve them. `Server` itself is in `mcptrio`."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name[0].isupper():  # not a submodule
        from mcptrio._hints import missing_name

        raise missing_name(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
