from mcptrio import Server, ToolError

server = Server("library", version="1.0.0", instructions="Look books up by their title.")
BOOKS = {"Emma": ("Jane Austen", 1815), "Ulysses": ("James Joyce", 1922)}


@server.tool(read_only=True)
async def book(title: str) -> dict[str, str | int]:
    """Look up one book by its title."""
    if title not in BOOKS:
        raise ToolError(f"There is no {title!r}. Known are {', '.join(BOOKS)}.")
    author, year = BOOKS[title]
    return {"title": title, "author": author, "year": year}
