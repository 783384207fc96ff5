"""Resources: fixed URIs and URI templates, read through functions."""

from __future__ import annotations

import string
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
import trio
from msgspec import field

from mcptrio import types
from mcptrio._eras.shape import trim, trim_all
from mcptrio._schema.build import ArgumentFaults, dump
from mcptrio._struct import Entity, Options
from mcptrio._wire.converter import unstructure, write_fields
from mcptrio.errors import INVALID_PARAMS, DeclarationError, McpError
from mcptrio.server.context import Context
from mcptrio.server.features.hints import NO_CACHE, Cache, Hints
from mcptrio.server.features.invoke import Function, declare, function_name
from mcptrio.server.features.scopes import declared_scopes, page_key, require, shown_to
from mcptrio.server.registry import Registry
from mcptrio.types.base import as_optional_tuple

if TYPE_CHECKING:
    from mcptrio._wire.uri_template import UriTemplate
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


_LITERAL: Final = string.ascii_letters + string.digits + "-._~:/?#[]@!$&'()*+,;="  # RFC 3986, without the percent sign


class ResourceNotFound(McpError):
    """Raise it in a resource function when there is nothing under the URI that was asked for."""

    def __init__(self, uri: str | None = None) -> None:
        super().__init__(INVALID_PARAMS, "resource not found", None if uri is None else {"uri": uri})


class ResourceEntry(Entity):
    """A resource, or with `template` a family of them."""

    function: Function
    wire: dict[str, Any]
    """What is listed."""
    mime_type: str | None = None
    template: UriTemplate | None = None
    completers: dict[str, Function] = field(default_factory=dict)
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    cache: Cache = NO_CACHE
    any_path: bool = False

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """The values of a template's variables in a URI; None if it is none of its URIs."""
        from mcptrio.server.features.paths import leads_elsewhere  # few servers have templates

        found = None if self.template is None else self.template.match(uri)
        return None if found is None or (leads_elsewhere(found) and not self.any_path) else found


class ResourceOptions(Options, total=False):
    """What can be said of a resource beside its URI and function."""

    name: str
    """A short name for programs; without it the name of the function."""
    title: str
    """What people see instead of the name."""
    description: str
    """What it holds, for a model that chooses; without it the docstring."""
    mime_type: str
    """What the contents are, e.g. `"application/json"`; without it the type of the returned value decides
    (`text/plain`, `application/octet-stream`, `application/json`)."""
    size: int
    """How large it is in bytes, for hosts that estimate; left out it is not told."""
    annotations: Annotations
    """For whom it is, how important, and when it changed."""
    icons: Sequence[Icon]
    """Pictures that hosts may show beside it."""
    meta: Mapping[str, Any]
    """The `_meta` that clients get with it, for what an extension or a host of your own looks for."""
    visible: Callable[[Context], bool]
    """Who sees it and may read it, decided for each request."""
    scopes: Sequence[str]
    """What a caller must be allowed to, where callers are authenticated."""
    cache: Cache
    """How long clients may keep what they read; without it what `Server(cache=…)` says."""
    any_path: bool
    """Also give the function values that lead elsewhere in a file system: with `..`, absolute, with NUL, encoded twice.
    Otherwise a URI with such a value names nothing."""


def _template(uri: str) -> UriTemplate | None:
    """A URI as a template; None for the usual one, in which there is nothing to read."""
    if len(uri) < 1024 and not uri.strip(_LITERAL):
        return None
    from mcptrio._wire.uri_template import UriTemplate

    return UriTemplate(uri)


def declare_resource(
    uri: str, fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[ResourceOptions]
) -> ResourceEntry:
    """Make a resource or a template of a function; raises `DeclarationError` with a hint if it cannot be one."""
    try:
        scheme, colon, _ = uri.partition(":")
        if not colon or not scheme or not scheme[0].isalpha():
            raise DeclarationError("a resource's URI begins with a scheme, as in notes://today")
        function = declare(fn, names=names)
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
    if unknown := sorted(options.keys() - ResourceOptions.__annotations__.keys()):
        known = ", ".join(sorted(ResourceOptions.__annotations__))
        raise DeclarationError(f"resource {uri!r:.200}: there is no option {', '.join(unknown)}; there are {known}")
    if variables and "size" in options:
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
        scopes=declared_scopes(options.get("scopes", ())),
        cache=options.get("cache", NO_CACHE),
        any_path=options.get("any_path", False),
    )


class Resources(Entity):
    """The resources and templates of a server."""

    threads: trio.CapacityLimiter
    hints: Hints
    page_size: int | None = None
    template_page_size: int | None = None
    registry: Registry[ResourceEntry] = field(default_factory=lambda: Registry("resource"))
    templates: Registry[ResourceEntry] = field(default_factory=lambda: Registry("template"))

    def add(self, uri: str, entry: ResourceEntry) -> None:
        self.registry_for(entry).add(uri, entry)

    def registry_for(self, entry: ResourceEntry) -> Registry[ResourceEntry]:
        return self.registry if entry.template is None else self.templates

    def remove(self, uri: str) -> None:
        (self.templates if self.templates.get(uri) is not None else self.registry).remove(uri)

    # -- lists

    def list_all(self, ctx: Context, params: ListResourcesParams) -> Any:
        return self._list(ctx, self.registry, params.cursor, self.page_size, "resource", "resources")

    def list_templates(self, ctx: Context, params: ListResourceTemplatesParams) -> Any:
        return self._list(ctx, self.templates, params.cursor, self.template_page_size, "template", "resourceTemplates")

    def _list(
        self, ctx: Context, registry: Registry[ResourceEntry], cursor: str | None, size: int | None, kind: str, key: str
    ) -> Any:
        era = ctx._call.start.era

        def page() -> dict[str, Any]:
            entries, following = registry.page(cursor, size, shown_to(ctx))
            shown: dict[str, Any] = {key: trim_all(era, kind, [entry.wire for entry in entries])}
            if following is not None:
                shown["nextCursor"] = following
            what = "templates" if kind == "template" else "resources"
            return self.hints.finish_list(what, shown, era, varies=scopes is not None)

        scopes = page_key(ctx, registry)
        return page() if scopes is False else registry.cached_page((era.date, cursor, scopes), page)

    # -- resources/read

    def find(self, ctx: Context, uri: str) -> tuple[ResourceEntry, dict[str, Any]] | None:
        """The entry that serves `uri`, with the values of its template's variables."""
        entry = self.registry.get(uri)
        if entry is not None:
            return (entry, {}) if entry.visible is None or entry.visible(ctx) else None
        for entry in self.templates:
            found = entry.match(uri)
            if found is not None and (entry.visible is None or entry.visible(ctx)):
                return entry, dict(found)
        return None

    def entry_of(self, uri: str) -> ResourceEntry | None:
        """The entry that serves `uri` to anybody."""
        entry = self.registry.get(uri)
        if entry is not None:
            return entry
        return next((e for e in self.templates if e.match(uri) is not None), None)

    async def read(self, ctx: Context, params: ReadResourceParams) -> Any:
        uri = params.uri
        found = self.find(ctx, uri)
        if found is None:
            raise self.not_found(ctx, uri)
        entry, values = found
        require(ctx, entry)
        try:
            kwargs = entry.function.signature.bind_text(values)
        except ArgumentFaults as error:
            raise McpError(INVALID_PARAMS, "\n".join(error.faults), {"uri": uri}) from None
        try:
            value = await entry.function(ctx, kwargs, self.threads)
        except ResourceNotFound:
            raise self.not_found(ctx, uri) from None
        wire = unstructure(read_result(entry.mime_type, uri, value))
        era = ctx._call.start.era
        wire["contents"] = [trim(era, "contents", item) for item in wire["contents"]]
        if era.features.cache_hints:
            entry.cache.add_to(wire)
        return wire

    def not_found(self, ctx: Context, uri: str) -> McpError:
        return McpError(ctx._call.start.era.resource_not_found, "resource not found", {"uri": uri})


def read_result(mime_type: str | None, uri: str, value: Any) -> ReadResourceResult:
    """What a resource function returned, as the protocol has it."""
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
            text = msgspec.json.encode(dump(value)).decode()
            return types.TextResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)
