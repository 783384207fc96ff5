"""A read-only server with typed arguments and results; it needs no account and no other package.

    mcptrio run examples/weather.py                          over stdio, for a host on this machine
    mcptrio run examples/weather.py --transport http         for many clients, at http://127.0.0.1:8000/mcp

The temperatures are made up from each city's climate, the same every time; the hours of daylight are real.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal
from zlib import crc32

from mcptrio import Server, ToolError

# latitude, mean temperature in January and in July (°C)
CITIES = {
    "Cairo": (30.0, 14, 28),
    "Lisbon": (38.7, 11, 23),
    "Nairobi": (-1.3, 20, 17),
    "Oslo": (59.9, -4, 18),
    "Sydney": (-33.9, 23, 13),
    "Tokyo": (35.7, 5, 26),
}
server = Server("weather", version="1.0.0", instructions=f"There is a forecast for {', '.join(CITIES)}.")


@dataclass
class Day:
    date: date
    low: float
    high: float
    sky: str
    daylight_hours: float


@dataclass
class Forecast:
    city: str
    unit: str
    days: list[Day]


@server.tool(read_only=True)
async def forecast(city: str, days: int = 3, units: Literal["metric", "imperial"] = "metric") -> Forecast:
    """Tell the weather of the coming days.

    Args:
        city: The English name of a city.
        days: How many days, from today; 1 to 14.
        units: Degrees Celsius or Fahrenheit.
    """
    if city not in CITIES:
        raise ToolError(f"No weather for {city!r}. There is some for {', '.join(CITIES)}.")
    if not 1 <= days <= 14:
        raise ToolError("Ask for 1 to 14 days.")
    coming = [date.today() + timedelta(days=n) for n in range(days)]
    return Forecast(city, "°C" if units == "metric" else "°F", [one_day(city, day, units) for day in coming])


def one_day(city: str, day: date, units: str) -> Day:
    latitude, january, july = CITIES[city]
    season = math.cos(2 * math.pi * (day.timetuple().tm_yday - 15) / 365)
    chance = crc32(f"{city} {day}".encode()) % 100
    mean = (january + july) / 2 + season * (january - july) / 2 + chance / 20 - 2.5
    sky = "clear" if chance < 50 else "cloudy" if chance < 75 else "snow" if mean < 1 else "rain"
    low, high = (round(t if units == "metric" else t * 9 / 5 + 32, 1) for t in (mean - 4, mean + 4))
    tilt = math.radians(-23.44) * math.cos(2 * math.pi * (day.timetuple().tm_yday + 10) / 365)
    noon = max(-1.0, min(1.0, -math.tan(math.radians(latitude)) * math.tan(tilt)))
    return Day(day, low, high, sky, round(24 * math.acos(noon) / math.pi, 1))


if __name__ == "__main__":
    server.run()
