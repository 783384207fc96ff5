import trio

from mcptrio import connect


async def main() -> None:
    async with connect(["mcptrio", "run", "server.py"]) as client:  # or a URL, or a Server object
        for tool in await client.list_tools():
            print(tool.name, "-", tool.description)
        result = await client.call_tool("book", {"title": "Emma"}, timeout=10)
        print(result.structured_content)


if __name__ == "__main__":
    trio.run(main)
