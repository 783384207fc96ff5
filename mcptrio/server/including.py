"""Two servers in one: what one declares, taken over by another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve
from msgspec.structs import replace

from mcptrio.server.features.prompts import PromptEntry
from mcptrio.server.features.resources import ResourceEntry
from mcptrio.server.features.tools import ToolEntry
from mcptrio.server.registry import check_name

if TYPE_CHECKING:
    from mcptrio.server.server import Server


def include(into: Server, other: Server, prefix: str) -> None:
    """Take over everything or nothing.

    Raises:
        DeclarationError: a name is taken already, or is none with the prefix; or an extension of both cannot be one.
    """
    tools = [_renamed_tool(entry, prefix) for entry in other.tools.registry]
    prompts = [_renamed_prompt(entry, prefix) for entry in other.prompts.registry]
    resources = [*other.resources.registry.items(), *other.resources.templates.items()]
    shared = [
        (own, extension)
        for extension in other.extensions
        if (own := into.extensions.get(extension.identifier)) is not None and own is not extension
    ]
    for own, extension in shared:
        own.check_absorb(extension)
    for tool in tools:
        into.tools.registry.check_free(check_name("tool", tool.name))
    for prompt in prompts:
        into.prompts.registry.check_free(check_name("prompt", prompt.prompt.name))
    for uri, entry in resources:
        into.resources.registry_for(entry).check_free(uri)
    for own, extension in shared:
        own.absorb(extension)
    for extension in other.extensions:
        if into.extensions.get(extension.identifier) is None:
            into.add_extension(extension)
    for tool in tools:
        into.tools.registry.add(tool.name, into._extended(tool))
    for prompt in prompts:
        into.prompts.registry.add(prompt.prompt.name, prompt)
    for uri, entry in resources:
        into.resources.add(uri, _renamed_resource(entry, prefix))


def _renamed_tool(entry: ToolEntry, prefix: str) -> ToolEntry:
    name = prefix + entry.name
    return replace(entry, name=name, wire={**entry.wire, "name": name})


def _renamed_prompt(entry: PromptEntry, prefix: str) -> PromptEntry:
    prompt = evolve(entry.prompt, name=prefix + entry.prompt.name)
    return replace(entry, prompt=prompt, wire={**entry.wire, "name": prompt.name})


def _renamed_resource(entry: ResourceEntry, prefix: str) -> ResourceEntry:
    return replace(entry, wire={**entry.wire, "name": prefix + entry.wire["name"]})
