from mcptrio import Server

server = Server("orders")
known: set[str] = set()


@server.on_broadcast("reports")
async def reports_changed(names: list[str]) -> None:
    """Runs in every worker, with the names of all reports."""
    if "weekly" in names and "weekly" not in known:
        server.add_tool(weekly)
    known.update(names)


async def weekly() -> str:
    """Return the report of the week."""
    return "a quiet week"


@server.tool
async def publish(names: list[str]) -> str:
    """Offer reports, in every worker."""
    server.broadcast("reports", names)
    return "published"
