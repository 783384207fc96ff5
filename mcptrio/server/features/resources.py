"""Resources: fixed URIs and URI templates, read through functions."""

from __future__ import annotations

import os
import re
import string
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

import trio
from msgspec import field

from mcptrio import types
from mcptrio._eras.shape import trim, trimmed
from mcptrio._schema.build import ArgumentFaults, dump
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_finite
from mcptrio._wire.objects.converter import unstructure, write_fields
from mcptrio.errors import INVALID_PARAMS, DeclarationError, MCPError, UrlElicitationRequired
from mcptrio.server.context import Context
from mcptrio.server.features.functions import Function, declare, for_revision, function_name
from mcptrio.server.features.lists import list_page
from mcptrio.server.features.options import check_options
from mcptrio.server.features.result_fields import NO_CACHE, Cache, ResultFields
from mcptrio.server.features.scopes import declared_scopes, is_visible, require_scopes
from mcptrio.server.registry import Registry
from mcptrio.types._fields import as_optional_tuple

if TYPE_CHECKING:
    from mcptrio._uri.match import Subject
    from mcptrio._uri.template import UriTemplate
    from mcptrio.types import (
        Annotations,
        BlobResourceContents,
        Icon,
        ListResourcesParams,
        ListResourceTemplatesParams,
        ReadResourceParams,
        ReadResourceResult,
        TextResourceContents,
    )


LONG_URI: Final = 2048
"""Characters; matching a longer URI against templates takes noticeable time."""
_LITERAL: Final = string.ascii_letters + string.digits + "-._~:/?#[]@!$&'()*+,;="  # RFC 3986, without the percent sign


class ResourceNotFound(MCPError):
    """The error for a resource function to raise if the resource does not exist. Default `uri`: the requested one."""

    def __init__(self, uri: str | None = None) -> None:
        super().__init__(INVALID_PARAMS, _not_found(uri), None if uri is None else {"uri": uri})


def _not_found(uri: str | None) -> str:
    return "resource not found" if uri is None else f"resource not found: {uri[:200]!r}"


class ResourceEntry(Entity):
    """A resource, or with `template` a family of them."""

    function: Function
    wire: dict[str, Any]
    """The resource object in the list."""
    mime_type: str | None = None
    template: UriTemplate | None = None
    completers: dict[str, Function] = field(default_factory=dict)
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    cache: Cache = NO_CACHE
    any_path: bool = False
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The JSON type of each variable's parameter, where it is an array or an object."""

    def match(self, uri: Subject) -> Mapping[str, Any] | None:
        """Return the values of a template's variables in a URI, or None if the URI does not match."""
        found = None if self.template is None else self.template.match(uri)
        if found is None or (not self.any_path and is_path_traversal(found)):
            return None
        # `{?tags*}` expands to `tags=a&tags=b` for a list: for such a parameter, `other=1` is another resource.
        if any(isinstance(found.get(name), _OTHER_KIND[kind]) for name, kind in self.kinds.items()):
            return None
        return found


_OTHER_KIND: Final[Mapping[str, type]] = {"array": dict, "object": list}


def _kind(schema: Mapping[str, Any]) -> str | None:
    """Return "array" or "object" if a schema allows one of the two and not the other."""
    found = {member.get("type") for member in (schema, *schema.get("anyOf", ()))} & _OTHER_KIND.keys()
    return found.pop() if len(found) == 1 else None


_TRAVERSAL: Final = (  # compiled on first use: few servers have templates
    r"\x00"
    r"|^[/\\]"  # absolute, or a network share
    r"|(?:^|[/\\])\.\.(?:[/\\]|$)"
    r"|^[A-Za-z]:"
    + ("" if os.name == "nt" else r"[/\\]")  # a drive letter; outside of Windows `a:1` is an ordinary name
    + r"|%(?:00|2e|2f|5c)"  # encoded twice: a handler that decodes again gets one of the above
)


def is_path_traversal(values: Mapping[str, Any]) -> bool:
    """Return whether any value of a template variable, joined to a folder, might name a file outside of it."""
    for value in values.values():
        texts = [value] if isinstance(value, str) else value.values() if isinstance(value, Mapping) else value
        if any(re.search(_TRAVERSAL, text, re.IGNORECASE) for text in texts):
            return True
    return False


class ResourceOptions(TypedDict, total=False):
    """Options of a resource or a resource template."""

    name: str
    """A short name for programs, unique among the resources of a server; default: the name of the function."""
    title: str
    """A display name for users."""
    description: str
    """The description that the model reads; default: the docstring."""
    mime_type: str
    """The MIME type, for example `"application/json"`; default: by the type of the returned value (`text/plain`,
    `application/octet-stream`, `application/json`)."""
    size: int
    """The size in bytes, which hosts use for estimates; default: not sent."""
    annotations: Annotations
    """The audience, the priority and the time of the last change."""
    icons: Sequence[Icon]
    """Icons that hosts may show."""
    meta: Mapping[str, Any]
    """The resource's `_meta`, for extensions or for your own host."""
    visible: Callable[[Context], bool]
    """Predicate that decides for each request whether the caller may see and read the resource; not async. If it
    raises, the resource is hidden and the log says why. Subscriptions end when it says no."""
    scopes: Sequence[str]
    """Scopes the caller must hold; ignored if callers are not authenticated."""
    cache: Cache
    """Cache lifetime of the contents; default: stale at once."""
    runs: Literal["trio", "asyncio"]
    """The event loop that the async function runs in: `"trio"` (default), or `"asyncio"` for a function that awaits
    asyncio libraries. Its context works there too."""
    any_path: bool
    """Also accept variable values that could leave a folder in a file system: with `..`, absolute, with NUL, encoded
    twice. By default a URI with such a value does not exist."""


def _template(uri: str) -> UriTemplate | None:
    """Parse a URI as a template; return None for an ordinary URI without variables."""
    if len(uri) < 1024 and not uri.strip(_LITERAL):
        return None
    from mcptrio._uri.template import UriTemplate

    return UriTemplate(uri)


def declare_resource(
    uri: str, fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[ResourceOptions]
) -> ResourceEntry:
    """Make a resource or a template from a function.

    Raises:
        DeclarationError: the URI, the function or an option cannot be used; the text says how to fix it.
    """
    check_options(options, ResourceOptions.__annotations__, kind="resource", name=uri)
    try:
        scheme, colon, _ = uri.partition(":")
        if not colon or not scheme or not scheme[0].isalpha():
            raise DeclarationError("a resource's URI begins with a scheme, as in notes://today")
        function = declare(fn, runs=options.get("runs"), names=names)
        schema = function.signature.input_schema
        parameters, required = set(schema.get("properties", {})), set(schema.get("required", ()))
        template = _template(uri)
        variables = set() if template is None else set(template.variables)
        if variables - parameters:
            lacking = ", ".join(sorted(variables - parameters))
            raise DeclarationError(f"the template has {lacking}, which the function does not take; add a parameter")
        if required - variables:
            lacking = ", ".join(sorted(required - variables))
            where = "the template" if variables else "the URI, which has no variables,"
            raise DeclarationError(f"the function needs {lacking}, which {where} does not give; add {{{lacking}}}")
        if template is not None and variables:
            template.require_matchable()
    except DeclarationError as error:
        raise DeclarationError(f"resource {uri!r:.200}: {error}") from error
    if variables and options.get("size") is not None:
        raise DeclarationError(f"resource {uri!r:.200}: a template has no size of its own")
    about = {
        "uri_template" if variables else "uri": uri,
        "name": options.get("name") or function_name(fn),
        "title": options.get("title"),
        "description": options.get("description", function.signature.description),
        "mime_type": options.get("mime_type"),
        "size": options.get("size"),
        "icons": as_optional_tuple(options.get("icons")),
        "annotations": options.get("annotations"),
        "meta": options.get("meta"),
    }
    return ResourceEntry(
        function=function,
        wire=write_fields(about),
        mime_type=options.get("mime_type"),
        template=template if variables else None,
        visible=options.get("visible"),
        scopes=declared_scopes(options.get("scopes") or ()),
        cache=options.get("cache") or NO_CACHE,
        any_path=options.get("any_path") or False,
        kinds={name: kind for name in variables if (kind := _kind(schema["properties"][name])) is not None},
    )


class Resources(Entity):
    """The resources and templates of a server."""

    result_fields: ResultFields
    page_size: int | None = None
    template_page_size: int | None = None
    registry: Registry[ResourceEntry] = field(default_factory=lambda: Registry("resource"))
    templates: Registry[ResourceEntry] = field(default_factory=lambda: Registry("template"))

    def add(self, uri: str, entry: ResourceEntry) -> None:
        """Add a resource or template.

        Raises:
            DeclarationError: its URI or its name is taken.
        """
        self.check_free(uri, entry)
        self.registry_for(entry).add(uri, entry)

    def check_free(self, uri: str, entry: ResourceEntry) -> None:
        """Raise `DeclarationError` if there is a resource, or a template, with the same URI or the same name."""
        registry = self.registry_for(entry)
        registry.check_free(uri)
        name = entry.wire["name"]
        for taken, other in registry.items():
            if other.wire["name"] == name:  # hosts refer to resources by name, in menus and in mentions
                raise DeclarationError(
                    f"resource {uri!r:.200}: the name {name!r} is taken by {taken!r:.200}; pass another name="
                )

    def registry_for(self, entry: ResourceEntry) -> Registry[ResourceEntry]:
        return self.registry if entry.template is None else self.templates

    def remove(self, uri: str) -> None:
        (self.templates if self.templates.get(uri) is not None else self.registry).remove(uri)

    # -- lists

    def list_all(self, ctx: Context, params: ListResourcesParams) -> Any:
        return list_page(
            ctx, self.registry, params.cursor, self.page_size, self.result_fields, trimmed("resource"), kind="resources"
        )

    def list_templates(self, ctx: Context, params: ListResourceTemplatesParams) -> Any:
        size, fields, show = self.template_page_size, self.result_fields, trimmed("template")
        return list_page(
            ctx, self.templates, params.cursor, size, fields, show, kind="templates", key="resourceTemplates"
        )

    # -- resources/read

    def find(self, ctx: Context, uri: str) -> tuple[ResourceEntry, Mapping[str, Any]] | None:
        """Return the entry that serves `uri` to this caller, with the values of its template's variables."""
        for found in self._candidates(uri):
            if is_visible(found[0], ctx):
                return found
        return None

    def scoped_entry_of(self, uri: str) -> ResourceEntry | None:
        """Return the first entry that serves `uri`, visible or not; None if no entry requires a scope."""
        registries = (self.registry, self.templates)
        if not any(each.find_once("scoped", lambda found: any(entry.scopes for entry in found)) for each in registries):
            return None  # no scopes: avoid matching a long URI twice
        return next((entry for entry, _ in self._candidates(uri)), None)

    def _candidates(self, uri: str) -> Iterator[tuple[ResourceEntry, Mapping[str, Any]]]:
        entry = self.registry.get(uri)
        if entry is not None:
            yield entry, {}
        elif len(self.templates):
            from mcptrio._uri.match import Subject

            subject = Subject(uri)  # normalised once for all templates
            for entry in self.templates:
                if (values := entry.match(subject)) is not None:
                    yield entry, values

    async def find_readable(self, ctx: Context, uri: str) -> tuple[ResourceEntry, Mapping[str, Any]]:
        """Return what `find` returns, for a request that uses it.

        Raises:
            MCPError: there is no such resource for this caller.
            RemoteProtocolError: the caller lacks a scope.
        """
        if len(uri) <= LONG_URI:
            found = self.find(ctx, uri)
        else:  # one after the other, so that a batch of such requests does not block the event loop
            async with ctx._session.data.setdefault("long URIs", trio.Lock()):
                found = self.find(ctx, uri)
        if found is None:
            raise self.not_found(ctx, uri)
        require_scopes(ctx, found[0].scopes)
        return found

    async def read(self, ctx: Context, params: ReadResourceParams) -> Any:
        uri = params.uri
        if uri.startswith("result://"):
            from mcptrio.server.features.large_results import kept_result

            if (kept := await kept_result(uri, ctx)) is not None:
                return kept
        entry, values = await self.find_readable(ctx, uri)
        ctx._call.entry = entry.wire["uri"] if entry.template is None else entry.wire["uriTemplate"]
        try:
            kwargs = entry.function.signature.bind_text(values)
        except ArgumentFaults as error:
            raise MCPError(INVALID_PARAMS, "\n".join(error.faults), {"uri": uri}) from None
        try:
            value = await entry.function(ctx, kwargs)
        except ResourceNotFound:
            raise self.not_found(ctx, uri) from None
        except UrlElicitationRequired as error:
            raise for_revision(error, ctx) from None
        wire = unstructure(read_result(entry.mime_type, uri, value))
        era = ctx._call.start.era
        wire["contents"] = [trim(era, "contents", item) for item in wire["contents"]]
        if era.features.cache_hints:
            entry.cache.add_to(wire)
        return wire

    def not_found(self, ctx: Context, uri: str) -> MCPError:
        return MCPError(ctx._call.start.era.resource_not_found, _not_found(uri), {"uri": uri})


def read_result(mime_type: str | None, uri: str, value: Any) -> ReadResourceResult:
    """Convert the return value of a resource function to a protocol result."""
    if isinstance(value, types.ReadResourceResult):
        return value
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(item, types.TextResourceContents | types.BlobResourceContents) for item in value)
    ):
        return types.ReadResourceResult(contents=value)
    return types.ReadResourceResult(contents=[_contents(mime_type, uri, value)])


def _contents(mime_type: str | None, uri: str, value: Any) -> TextResourceContents | BlobResourceContents:
    match value:
        case types.TextResourceContents() | types.BlobResourceContents():
            return value
        case str():
            return types.TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)
        case bytes() | bytearray() | memoryview():
            blob = b2a_base64(value, newline=False).decode("ascii")
            return types.BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)
        case _:
            text = encode_finite(dump(value)).decode()
            return types.TextResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)
