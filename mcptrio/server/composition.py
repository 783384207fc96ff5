"""`server.include(other)`: copy the declarations of one server to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve
from msgspec.structs import replace

from mcptrio.server.features.prompts import PromptEntry
from mcptrio.server.features.resources import ResourceEntry
from mcptrio.server.features.tool_declaration import ToolEntry
from mcptrio.server.registry import check_name

if TYPE_CHECKING:
    from mcptrio.server.app import App


def include(into: App, other: App, prefix: str) -> None:
    """Include everything or nothing.

    Raises:
        DeclarationError: a name is taken already, or is not valid with the prefix; or an extension cannot be added.
    """
    tools = [_renamed_tool(entry, prefix) for entry in other.tools.registry]
    prompts = [_renamed_prompt(entry, prefix) for entry in other.prompts.registry]
    resources = [
        (uri, _renamed_resource(entry, prefix))
        for uri, entry in (*other.resources.registry.items(), *other.resources.templates.items())
    ]
    in_both = [
        (own, extension)
        for extension in other.extensions
        if (own := into.extensions.get(extension.identifier)) is not None and own is not extension
    ]
    new = [extension for extension in other.extensions if into.extensions.get(extension.identifier) is None]
    # Check everything first, so that a refusal changes nothing.
    for own, extension in in_both:
        own.check_absorb(extension)
    for extension in new:
        into.check_extension(extension)
    for tool in tools:
        into.tools.registry.check_free(check_name("tool", tool.name))
    for prompt in prompts:
        into.prompts.registry.check_free(check_name("prompt", prompt.prompt.name))
    for uri, resource in resources:
        into.resources.check_free(uri, resource)
    extended = [_extended(tool, into, other) for tool in tools]

    for own, extension in in_both:
        own.absorb(extension)
    for extension in new:
        into.add_extension(extension)
    for tool in extended:
        into.tools.registry.add(tool.name, tool)
    for prompt in prompts:
        into.prompts.registry.add(prompt.prompt.name, prompt)
    for uri, resource in resources:
        into.resources.add(uri, resource)


def _extended(entry: ToolEntry, into: App, other: App) -> ToolEntry:
    """Apply the extension options of a tool with the extensions that it will have."""
    for option, value in entry.extra.items():
        extension = into.extensions.for_option(option) or other.extensions.for_option(option)
        assert extension is not None
        entry = extension.tool(entry, option, value)
    return entry


def _renamed_tool(entry: ToolEntry, prefix: str) -> ToolEntry:
    name = prefix + entry.name
    return replace(entry, name=name, wire={**entry.wire, "name": name})


def _renamed_prompt(entry: PromptEntry, prefix: str) -> PromptEntry:
    prompt = evolve(entry.prompt, name=prefix + entry.prompt.name)
    return replace(entry, prompt=prompt, wire={**entry.wire, "name": prompt.name})


def _renamed_resource(entry: ResourceEntry, prefix: str) -> ResourceEntry:
    return replace(entry, wire={**entry.wire, "name": prefix + entry.wire["name"]})
