"""A page: the source of its HTML and its permissions, validated when it is declared."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal

from attrs import field, frozen

from mcptrio._settings import as_tuple, check_fields, check_value
from mcptrio.errors import DeclarationError

# The syntax of a Content-Security-Policy source: a scheme and a host, perhaps with a wildcard and a port. It excludes
# characters that could end a directive and begin another.
_ORIGIN: Final = re.compile(r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")

Html = str | Path | Callable[..., Any]
"""The page itself (a string that begins with `<`), a file that holds it, or a function that returns it."""


def _origins(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise DeclarationError(f"expected several origins, got the single string {values!r}; put it in a list")
    check_value("origins", values, Iterable[str])
    origins = tuple(values)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise DeclarationError(
                f"{origin!r:.200} is not an origin: write https://host or https://host:port, no path"
            )
    return origins


@frozen(kw_only=True)
class Csp:
    """The origins that a page may use; none by default."""

    connect: tuple[str, ...] = field(default=(), converter=_origins)
    """For requests from scripts (fetch, WebSocket)."""
    resources: tuple[str, ...] = field(default=(), converter=_origins)
    """For images, scripts, styles, fonts and media; `https://*.example.com` names subdomains."""
    frames: tuple[str, ...] = field(default=(), converter=_origins)
    """For frames inside the page."""
    base_uris: tuple[str, ...] = field(default=(), converter=_origins)
    """For the document's base URI."""

    def wire(self) -> dict[str, list[str]]:
        named = {
            "connectDomains": self.connect,
            "resourceDomains": self.resources,
            "frameDomains": self.frames,
            "baseUriDomains": self.base_uris,
        }
        return {name: list(origins) for name, origins in named.items() if origins}


def _names(values: Iterable[str]) -> tuple[str, ...]:
    names: tuple[str, ...] = as_tuple(values)
    return names


def _html(value: Html | os.PathLike[str] | None) -> Html | None:
    return Path(value) if isinstance(value, os.PathLike) else value


def _callers(values: Iterable[Literal["model", "app"]] | None) -> tuple[Literal["model", "app"], ...] | None:
    callers: tuple[Literal["model", "app"], ...] | None = as_tuple(values)
    return callers


@frozen(eq=False)
class Ui:
    """A page for the results of tools. Several tools may share one."""

    uri: str
    html: Html | None = field(default=None, converter=_html, kw_only=True)
    """None: the resource is declared elsewhere."""
    name: str | None = field(default=None, kw_only=True)
    description: str | None = field(default=None, kw_only=True)
    csp: Csp | None = field(default=None, kw_only=True)
    permissions: tuple[str, ...] = field(default=(), converter=_names, kw_only=True)
    """Browser permissions of the page: camera, microphone, geolocation, clipboardWrite. A host may deny them."""
    domain: str | None = field(default=None, kw_only=True)
    """A dedicated origin for the page, if the host supports it; the format depends on the host."""
    prefers_border: bool | None = field(default=None, kw_only=True)
    visibility: tuple[Literal["model", "app"], ...] | None = field(default=None, converter=_callers, kw_only=True)
    """The callers of the tool: the model, the page, or (by default) both."""

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        # SEP-1865: the URI MUST begin with ui://
        if not self.uri.startswith("ui://") or len(self.uri) == len("ui://") or set(self.uri) & set("{} \t\r\n"):
            raise DeclarationError(f"{self.uri!r:.200} is not the URI of a page: write ui://name/of/the/page")
        unknown = [name for name in self.permissions if name not in PERMISSIONS]
        if unknown:
            raise DeclarationError(
                f"{self.uri}: no permission {', '.join(unknown)}; there are {', '.join(PERMISSIONS)}"
            )
        if self.visibility == ():
            raise DeclarationError(f'{self.uri}: visibility holds "model", "app" or both')
        if self.domain is not None and not _DOMAIN.fullmatch(self.domain):
            raise DeclarationError(f"{self.uri}: {self.domain!r:.200} is not a domain")
        if isinstance(self.html, str) and not self.html.lstrip().startswith("<"):
            raise DeclarationError(f"{self.uri}: html= is a page, not a path; for a file write html=Path(...)")
        if isinstance(self.html, Path) and not self.html.is_file():
            raise DeclarationError(f"{self.uri}: there is no file {self.html}")

    def tool_meta(self) -> dict[str, Any]:
        """Return the `_meta.ui` of a tool."""
        meta: dict[str, Any] = {"resourceUri": self.uri}
        if self.visibility is not None:
            meta["visibility"] = list(self.visibility)
        return meta

    def resource_meta(self) -> dict[str, Any]:
        """Return the `_meta.ui` of the resource and of its contents."""
        meta: dict[str, Any] = {}
        if self.csp is not None:
            meta["csp"] = self.csp.wire()
        if self.permissions:
            meta["permissions"] = {name: {} for name in self.permissions}
        if self.domain is not None:
            meta["domain"] = self.domain
        if self.prefers_border is not None:
            meta["prefersBorder"] = self.prefers_border
        return meta
