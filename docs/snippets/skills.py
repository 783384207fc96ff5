"""Serving skills, from a folder and from functions, and loading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcptrio import Server, connect
from mcptrio.extensions.skills import Skills
from mcptrio.extensions.skills.loading import list_skills, load_skill


def make_server(folder: Path) -> Server:
    """Every folder below this one that holds a SKILL.md is a skill."""
    server = Server("handbook")
    server.add_extension(Skills.from_folder(folder))
    return server


server = Server("team")
skills = Skills()
server.add_extension(skills)


@skills.skill(license="MIT")
def git_workflow() -> str:
    """Follow this team's conventions for branches and commits."""
    return "# Branches\n\nOne branch for each change, named after it.\n"


skills.add_skill(
    "reports/monthly",
    {"name": "monthly", "description": "Write the monthly report."},
    "Fill in template.md and send it to the board.\n",
    files={"template.md": "# Report of MONTH\n"},
)


async def load(target: Any) -> dict[str, str]:
    """The instructions of every skill; nothing is used that differs from what was listed."""
    async with connect(target) as client:
        entries = await list_skills(client)
        loaded = [await load_skill(client, entry) for entry in entries]
        return {skill.entry["frontmatter"]["name"]: skill.text for skill in loaded}


async def template(target: Any) -> str:
    """One file of one skill."""
    async with connect(target) as client:
        skill = await load_skill(client, "skill://reports/monthly/SKILL.md")
        return (await skill.read("template.md")).decode()
