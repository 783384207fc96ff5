"""Skills in a client: list them, load one, and refuse files that differ from the listed entry."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from mcptrio.client.client import Client
from mcptrio.errors import DeclarationError, MCPTrioError, RemoteProtocolError
from mcptrio.extensions.skills.catalog import SKILL, digest
from mcptrio.extensions.skills.frontmatter import read_front_matter
from mcptrio.types import TextResourceContents


class SkillMismatch(MCPTrioError):
    """A file of a skill differs from its entry: it was changed or tampered with, and must not be used."""


@frozen
class LoadedSkill:
    """A skill whose SKILL.md matches its entry. Its other files are checked when they are read."""

    client: Client
    entry: Mapping[str, Any]
    text: str
    """The text of SKILL.md."""

    async def read(self, relative: str) -> bytes:
        """Read a file of the skill by its path from the skill's folder.

        Raises:
            SkillMismatch: it differs from the listed file, or is not listed.
        """
        return await _read(self.client, self.entry, self.entry["uri"].removesuffix(SKILL) + relative)


async def list_skills(client: Client) -> list[dict[str, Any]]:
    """Return the entries of all skills of a server, without reading files.

    Raises:
        RemoteProtocolError: an entry is not one of a skill.
    """

    async def fetch(params: dict[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
        page = await client.request("skills/list", params)
        cursor, skills = page.get("nextCursor"), page.get("skills", [])
        if not isinstance(skills, list):
            raise RemoteProtocolError("skills/list: skills must be an array")
        return [_check_entry(skill) for skill in skills], cursor if isinstance(cursor, str) else None

    return [skill async for skill in client._pages("skills/list", fetch)]


async def load_skill(client: Client, skill: str | Mapping[str, Any]) -> LoadedSkill:
    """Read the SKILL.md of a skill, given by an entry of `list_skills` or by a URI.

    Raises:
        SkillMismatch: size, digest or front matter differ from the entry.
        RemoteProtocolError: the server has sent something else than a skill or its file.
    """
    said = (await client.request("skills/get", {"uri": skill})).get("skill") if isinstance(skill, str) else skill
    entry = _check_entry(said)
    uri = entry["uri"]
    data = await _read(client, entry, uri)
    try:
        text = data.decode("utf-8")
        front_matter = read_front_matter(text)
    except (UnicodeDecodeError, DeclarationError) as error:
        raise SkillMismatch(f"{uri}: {error}") from error
    # SEP-2640: hosts MUST compare the front matter field by field
    if front_matter != entry["frontmatter"]:
        raise SkillMismatch(f"{uri}: its front matter differs from the listed one")
    return LoadedSkill(client, entry, text)


def _check_entry(entry: Any) -> Any:
    """Return the entry of a skill if it has the members that are read here."""
    if not _has_uri(entry):
        raise RemoteProtocolError("a skill must be an object with a URI")
    if not isinstance(entry.get("frontmatter"), Mapping):
        raise RemoteProtocolError(f"{entry['uri']}: frontmatter must be an object")
    files = entry.get("resources")  # a list, or another value for a dynamic skill
    if isinstance(files, list) and not all(_has_uri(file) for file in files):
        raise RemoteProtocolError(f"{entry['uri']}: its resources must be objects with URIs")
    return entry


def _has_uri(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("uri"), str)


async def _read(client: Client, entry: Mapping[str, Any], uri: str) -> bytes:
    listed = entry.get("resources")
    known = {file["uri"]: file for file in listed} if isinstance(listed, list) else None
    if known is not None and uri not in known:
        raise SkillMismatch(f"{uri} is not among the files of the skill")
    result = await client.read_resource(uri, cached=False)
    if not result.contents:
        raise RemoteProtocolError(f"{uri} has no contents")
    found = result.contents[0]
    try:
        data = found.text.encode() if isinstance(found, TextResourceContents) else b64decode(found.blob)
    except ValueError as error:
        raise RemoteProtocolError(f"{uri}: {error}") from error
    if known is not None:
        expected = known[uri]
        if expected.get("size", len(data)) != len(data):
            raise SkillMismatch(f"{uri} has {len(data)} bytes, not {expected['size']}")
        if expected.get("digest") != digest(data):
            raise SkillMismatch(f"the digest of {uri} differs from the listed one")
    return data
