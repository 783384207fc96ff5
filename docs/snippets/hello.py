from typing import Literal

from mcptrio import Server

server = Server("weather", version="1.0.0")


@server.tool(read_only=True)
async def forecast(city: str, days: Literal[1, 2, 3] = 1) -> list[str]:
    """Forecast the weather, one line per day."""
    return [f"{city}, day {day}: sunny" for day in range(1, days + 1)]
