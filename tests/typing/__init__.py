"""The public API as type checkers see it: files that mypy and pyright check, and what mypy cannot know of them."""
