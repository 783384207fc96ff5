"""The skills extension of a server: `skills/list`, `skills/get`, `resources/directory/read`, and files as resources."""

from __future__ import annotations

import inspect
import logging
import os
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from mimetypes import guess_type
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, overload

import trio
from attrs import define, field, frozen

from mcptrio._actors.extension import Extension
from mcptrio._actors.router import Route
from mcptrio._eras.shape import trim
from mcptrio.errors import INVALID_PARAMS, DeclarationError, MCPError
from mcptrio.extensions.skills.catalog import SCHEME, SKILL, File, Folder, Skill, file_of, make_skill
from mcptrio.extensions.skills.files import UnsafePath
from mcptrio.extensions.skills.frontmatter import check_front_matter, write_front_matter
from mcptrio.server.context import Context
from mcptrio.server.features.resources import ResourceNotFound
from mcptrio.server.features.result_fields import NO_CACHE, Cache
from mcptrio.types import BlobResourceContents, PaginatedParams, Params, TextResourceContents

logger = logging.getLogger("mcptrio.skills")

IDENTIFIER: Final = "io.modelcontextprotocol/skills"
DIRECTORY: Final = "inode/directory"
_FILES: Final = SCHEME + "{+path}"
_FILES_NAME: Final = "skill-files"
F = TypeVar("F", bound=Callable[..., Any])


@frozen(kw_only=True)
class GetSkillParams(Params):
    """The parameters of `skills/get`: the URI of a SKILL.md."""

    uri: str


@frozen(kw_only=True)
class ReadDirectoryParams(PaginatedParams):
    """The parameters of `resources/directory/read`: the URI of a folder."""

    uri: str


@define(eq=False, repr=False, kw_only=True)
class Skills(Extension):
    """The skills of a server. One instance serves one server."""

    identifier: ClassVar[str] = IDENTIFIER

    page_size: int = 50
    cache: Cache = NO_CACHE
    """Cache lifetime of lists and entries."""
    fresh_for: float = 1.0
    """Minimum seconds between two scans of the folders."""
    _folders: list[Folder] = field(factory=list, init=False)
    _given: dict[str, Skill] = field(factory=dict, init=False)
    _skills: dict[str, Skill] = field(factory=dict, init=False)
    """By the URI of SKILL.md, in order."""
    _files: dict[str, tuple[Skill, str]] = field(factory=dict, init=False)
    _children: dict[str, dict[str, dict[str, Any]]] = field(factory=dict, init=False)
    """Folder -> its direct children, as resources."""
    _servers: list[Any] = field(factory=list, init=False)
    _faults: set[str] = field(factory=set, init=False)
    """The errors of the last scan."""
    _scanned: float = field(default=0.0, init=False)
    _scanning: trio.Lock = field(factory=trio.Lock, init=False)

    # -- declaring

    @classmethod
    def from_folder(
        cls,
        path: str | os.PathLike[str],
        *,
        prefix: str = "",
        page_size: int = 50,
        cache: Cache = NO_CACHE,
        fresh_for: float = 1.0,
    ) -> Skills:
        """Make the extension from every folder below `path` that holds a SKILL.md, nested ones included.

        Raises:
            DeclarationError: there is no such folder, or a skill in it breaks a rule.
        """
        skills = cls(page_size=page_size, cache=cache, fresh_for=fresh_for)
        skills.add_folder(path, prefix=prefix)
        return skills

    def add_folder(self, path: str | os.PathLike[str], *, prefix: str = "") -> None:
        """Add the skills below a folder; their paths get the prefix."""
        root = Path(path).resolve()
        if not root.is_dir():
            raise DeclarationError(f"there is no folder {root}")
        folder = Folder(root, prefix)
        for found in folder.scan():
            if isinstance(found, DeclarationError):
                raise found
        self._folders.append(folder)
        self._rebuild(self._scan())

    # mypy cannot match an implementation with an optional positional-only parameter and `**`
    @overload
    def skill(self, fn: F, /) -> F: ...
    @overload
    def skill(self, *, path: str | None = None, dynamic: bool = False, **front_matter: Any) -> Callable[[F], F]: ...

    def skill(  # type: ignore[misc]
        self, fn: Any = None, /, *, path: str | None = None, dynamic: bool = False, **front_matter: Any
    ) -> Any:
        """Declare a skill with a function that returns its instructions; its docstring is the description.

        The function is called once, when it is declared; with `dynamic=True` for each reader, and then clients have no
        digest to check it with. Other arguments are fields of the front matter.
        """

        def decorate(fn: F) -> F:
            fields = dict(front_matter)
            fields.setdefault("name", (path or fn.__name__.replace("_", "-")).rpartition("/")[2])
            fields.setdefault("description", inspect.getdoc(fn))
            self.add_skill(path or fields["name"], fields, fn, dynamic=dynamic)
            return fn

        return decorate if fn is None else decorate(fn)

    def add_skill(
        self,
        path: str,
        front_matter: Mapping[str, Any],
        body: str | Callable[[], str],
        *,
        files: Mapping[str, str | bytes] | None = None,
        dynamic: bool = False,
    ) -> None:
        """Declare a skill by its front matter, its instructions, and other files by their relative paths.

        Raises:
            DeclarationError: it breaks a rule, or there is one at that path.
        """
        try:
            fields = check_front_matter(dict(front_matter))
        except DeclarationError as error:
            raise DeclarationError(f"skill {path!r:.200}: {error}") from error
        head = write_front_matter(fields)

        def text() -> str:
            return head + (body if isinstance(body, str) else body())

        front = file_of(text().encode())
        if dynamic:
            front = File(size=front.size, digest=front.digest, read=lambda: text().encode())
        given = {name: data.encode() if isinstance(data, str) else data for name, data in (files or {}).items()}
        whole = {SKILL: front, **{name: file_of(data) for name, data in given.items()}}
        skill = make_skill(path, whole, fields, dynamic=dynamic)
        if skill.uri in self._skills:
            raise DeclarationError(f"there is a skill {path!r} already")
        self._given[skill.uri] = skill
        self._rebuild(self._scan())

    # -- declared to the server

    def settings(self) -> Mapping[str, Any]:
        return {"directoryRead": True}

    def routes(self) -> Iterable[Route]:
        return (
            Route("skills/list", PaginatedParams, self.list_all),
            Route("skills/get", GetSkillParams, self.get),
            Route("resources/directory/read", ReadDirectoryParams, self.read_directory),
        )

    def bind(self, server: Any) -> None:
        if not self._servers:  # a server that includes the first one takes over its resources
            for uri in self._skills:
                server._app.resources.registry.check_free(uri)
            server.add_resource(_FILES, self._read_file, name=_FILES_NAME, description="The files of the skills.")
            self._register(server, {}, self._skills)
        self._servers.append(server)

    def check_absorb(self, other: Extension) -> None:
        assert isinstance(other, Skills)
        raise DeclarationError("both servers have skills; add the folders of one to the other before including it")

    # -- scanning

    def _scan(self) -> dict[str, Skill]:
        """Read all skills as they are now. A skill that breaks a rule is not served until it is corrected.

        Its earlier entry would promise digests that its files no longer have.
        """
        found = dict(self._given)
        faults = set()
        for folder in self._folders:
            for skill in folder.scan():
                if isinstance(skill, DeclarationError):
                    faults.add(str(skill))
                else:
                    found.setdefault(skill.uri, skill)
        for fault in sorted(faults - self._faults):  # each is logged once, not once per scan
            logger.error("%s; the skill is not served until it is corrected", fault)
        self._faults = faults
        return dict(sorted(found.items()))

    async def _look_again(self) -> None:
        async with self._scanning:
            if not self._folders or trio.current_time() - self._scanned < self.fresh_for:
                return
            found = await trio.to_thread.run_sync(self._scan)
            self._scanned = trio.current_time()
            if found != self._skills:
                self._rebuild(found)

    def _rebuild(self, found: dict[str, Skill]) -> None:
        before, self._skills = self._skills, found
        self._files = {s.uri_of(relative): (s, relative) for s in reversed(found.values()) for relative in s.files}
        self._children = {}
        for skill in found.values():
            self._children.setdefault(skill.root, {})
            for relative in skill.files:
                self._add_child(skill, relative)
        names = [skill.front_matter["name"] for skill in found.values()]
        for name in {name for name in names if names.count(name) > 1}:
            logger.warning("several skills have the name %r; hosts can only distinguish them by their paths", name)
        for server in self._servers:
            self._register(server, before, found)

    def _add_child(self, skill: Skill, relative: str) -> None:
        parts = relative.split("/")
        for depth in range(1, len(parts)):
            inner = "/".join(parts[:depth])
            outer = skill.uri_of("/".join(parts[: depth - 1])) if depth > 1 else skill.root
            uri = skill.uri_of(inner)
            self._children.setdefault(outer, {})[uri] = {"uri": uri, "name": parts[depth - 1], "mimeType": DIRECTORY}
            self._children.setdefault(uri, {})
        folder = skill.uri_of("/".join(parts[:-1])) if len(parts) > 1 else skill.root
        uri = skill.uri_of(relative)
        self._children[folder][uri] = self._resource(uri, skill, relative)

    def _resource(self, uri: str, skill: Skill, relative: str) -> dict[str, Any]:
        file = skill.files[relative]
        about: dict[str, Any] = {"uri": uri, "name": relative.rpartition("/")[2], "mimeType": mime_type(relative)}
        owner = self._skills.get(uri)
        if owner is not None:
            about.update(name=owner.front_matter["name"], description=owner.front_matter["description"])
        if not skill.dynamic:
            about["size"] = file.size
        return about

    def _register(self, server: Any, before: Mapping[str, Skill], found: Mapping[str, Skill]) -> None:
        """Register each SKILL.md as a resource with the name of its skill, or its path or URI if that name is taken.

        Skills may have one name in two folders, and this runs during a request when a folder has changed.
        """
        resources = server._app.resources
        for uri, skill in before.items():
            if found.get(uri) != skill and resources.registry.get(uri) is not None:
                server.remove_resource(uri)
        files = resources.templates.get(_FILES)
        # A server that includes the first one has given the template its prefix.
        prefix = "" if files is None else files.wire["name"].removesuffix(_FILES_NAME)
        taken = {entry.wire["name"] for entry in resources.registry}
        for uri, skill in found.items():
            if before.get(uri) != skill:
                fields = skill.front_matter
                names = (prefix + fields["name"], prefix + skill.path)
                name = next((name for name in names if name not in taken), prefix + uri)
                taken.add(name)
                about = {"name": name, "description": fields["description"], "mime_type": "text/markdown"}
                server.add_resource(uri, self._read_front, **about)

    # -- the methods

    async def list_all(self, ctx: Context, params: PaginatedParams) -> Any:
        await self._look_again()
        page, following = _page(list(self._skills), params.cursor, self.page_size)
        return self._listed(ctx, {"skills": [self._skills[uri].entry() for uri in page]}, following)

    async def get(self, ctx: Context, params: GetSkillParams) -> Any:
        await self._look_again()
        skill = self._skills.get(params.uri)
        if skill is None:
            raise MCPError(INVALID_PARAMS, "there is no such skill", {"uri": params.uri})
        return self._listed(ctx, {"skill": skill.entry()}, None)

    async def read_directory(self, ctx: Context, params: ReadDirectoryParams) -> Any:
        await self._look_again()
        inside = self._children.get(params.uri)
        if inside is None:
            raise MCPError(INVALID_PARAMS, "there is no such folder", {"uri": params.uri})
        page, following = _page(sorted(inside), params.cursor, self.page_size)
        children = [trim(ctx._call.start.era, "resource", inside[uri]) for uri in page]
        return self._listed(ctx, {"resources": children}, following)

    def _listed(self, ctx: Context, wire: dict[str, Any], following: str | None) -> dict[str, Any]:
        if following is not None:
            wire["nextCursor"] = following
        if ctx._call.start.era.features.cache_hints:
            self.cache.add_to(wire)
        return wire

    # -- resources/read

    async def _read_front(self, ctx: Context) -> Any:
        return await self._read(ctx)

    async def _read_file(self, path: str, ctx: Context) -> Any:
        return await self._read(ctx)

    async def _read(self, ctx: Context) -> Any:
        """Read a file by its URI. Only known URIs are served: no path is made from the client's text."""
        uri = str(ctx._call.start.params["uri"])
        found = self._files.get(uri)
        if found is None:
            await self._look_again()
            found = self._files.get(uri)
        if found is None:
            raise ResourceNotFound(uri)
        skill, relative = found
        try:
            data = await trio.to_thread.run_sync(skill.files[relative].read)
        except (OSError, UnsafePath) as error:
            logger.warning("%s cannot be read: %s", uri, error)
            raise ResourceNotFound(uri) from None
        kind = mime_type(relative)
        try:
            return TextResourceContents(uri=uri, mime_type=kind, text=data.decode("utf-8"))
        except UnicodeDecodeError:
            return BlobResourceContents(uri=uri, mime_type=kind, blob=b64encode(data).decode("ascii"))


def mime_type(relative: str) -> str:
    if relative.endswith(".md"):
        return "text/markdown"
    return guess_type(relative, strict=False)[0] or "text/plain"


def _page(uris: Sequence[str], cursor: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """Return the page after the URI in the cursor. URIs are sorted, so that one may have been removed meanwhile."""
    if cursor is not None:
        try:
            after = urlsafe_b64decode(cursor.encode("ascii")).decode()
        except ValueError:
            after = ""
        if not after.startswith(SCHEME):
            raise MCPError(INVALID_PARAMS, "unknown cursor: start again from the first page")
        uris = [uri for uri in uris if uri > after]
    page = uris[:size]
    more = len(uris) > size
    return page, urlsafe_b64encode(page[-1].encode()).decode() if more else None
