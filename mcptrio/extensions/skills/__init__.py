"""Skills over MCP (`io.modelcontextprotocol/skills`, SEP-2640): instructions for agents, served as resources.

    server.add_extension(Skills.from_folder("skills"))      # every folder below it that holds a SKILL.md

    skills = Skills()
    server.add_extension(skills)

    @skills.skill(license="MIT")
    def git_workflow() -> str:
        "Follow this team's conventions for branches and commits."
        return "# How we branch ..."

A folder is looked at again when clients list skills, so edits are seen without a restart. Reading folders needs PyYAML
(`pip install mcptrio[skills]`).

For clients there is `mcptrio.extensions.skills.loading`: `list_skills(client)` and `load_skill(client, entry)`, which
checks every file against its size, its digest and the front matter that was listed.
"""

from mcptrio.extensions.skills.catalog import File, Skill
from mcptrio.extensions.skills.extension import IDENTIFIER, Skills
from mcptrio.extensions.skills.files import safe_join, safe_read

__all__ = ["IDENTIFIER", "File", "Skill", "Skills", "safe_join", "safe_read"]
