"""Skills and their files: found in folders or given by functions, with sizes and digests."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from attrs import define, field, frozen

from mcptrio.errors import DeclarationError
from mcptrio.extensions.skills.files import UnsafePath, safe_parts, safe_read
from mcptrio.extensions.skills.frontmatter import read_front_matter

logger = logging.getLogger("mcptrio.skills")

SKILL: Final = "SKILL.md"
SCHEME: Final = "skill://"
# SEP-2640: the maximum that hosts accept
MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 2**20
_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})


@frozen(kw_only=True)
class File:
    """One file of a skill."""

    size: int
    digest: str
    read: Callable[[], bytes]
    """Blocking: called in a thread."""
    stamp: tuple[int, int, int] | None = None
    """Inode, size and modification time of the file when its digest was computed."""


@frozen(kw_only=True)
class Skill:
    """A folder of files with instructions for an agent; SKILL.md is the first to be read."""

    path: str
    """Its path among the skills of the server; the last part is its name."""
    front_matter: Mapping[str, Any]
    files: Mapping[str, File]
    """Relative path -> file."""
    dynamic: bool = False
    """Its text is generated for each reader, so there are no digests."""

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return SCHEME + quote(self.path, safe="/")

    @property
    def uri(self) -> str:
        return f"{self.root}/{SKILL}"

    def uri_of(self, relative: str) -> str:
        return f"{self.root}/{quote(relative, safe='/')}"

    def entry(self) -> dict[str, Any]:
        """Return the entry of `skills/list`."""
        listed: Any = "dynamic"
        if not self.dynamic:
            listed = [
                {"uri": self.uri_of(relative), "digest": file.digest, "size": file.size}
                for relative, file in self.files.items()
            ]
        return {"uri": self.uri, "frontmatter": dict(self.front_matter), "resources": listed}


def file_of(data: bytes) -> File:
    """Make a file from its bytes."""
    return File(size=len(data), digest=digest(data), read=lambda: data)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def make_skill(
    path: str, files: Mapping[str, File], front_matter: Mapping[str, Any], *, dynamic: bool = False
) -> Skill:
    """Make a skill; raise `DeclarationError` if it breaks a rule of SEP-2640 or of the Agent Skills specification."""
    try:
        for each in (path, *files):
            safe_parts(each)
        if front_matter["name"] != path.rpartition("/")[2]:
            raise DeclarationError(f"its name is {front_matter['name']!r}; it must be that of its folder")
        if len(files) > MAX_FILES:
            raise DeclarationError(f"it has {len(files)} files; at most {MAX_FILES} are allowed")
        if sum(file.size for file in files.values()) > MAX_BYTES:
            raise DeclarationError(f"its files are larger than {MAX_BYTES // 2**20} MiB together")
    except (DeclarationError, UnsafePath) as error:
        raise DeclarationError(f"skill {path!r:.200}: {error}") from error
    return Skill(path=path, front_matter=front_matter, files=dict(files), dynamic=dynamic)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


@define(eq=False, repr=False)
class Folder:
    """A folder of skills. `scan` reads the files that have changed since the last scan."""

    root: Path
    prefix: str = ""
    _known: dict[str, File] = field(factory=dict, init=False)

    def scan(self) -> Iterator[Skill | DeclarationError]:
        """Yield every skill below the folder, in order, or an error for one that breaks a rule."""
        seen: dict[str, File] = {}
        paths = list(self._walk())
        for skill in [path for path in paths if path.rpartition("/")[2] == SKILL]:
            found = self._load(skill.rpartition("/")[0], paths, seen)
            if found is not None:
                yield found
        self._known = seen

    def _walk(self) -> Iterator[str]:
        """Yield the relative paths of regular files. Hidden files and links are not part of a skill."""
        for folder, folders, names in os.walk(self.root, followlinks=False):
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in _SKIPPED)
            here = Path(folder).relative_to(self.root)
            for name in sorted(names):
                if name[0] != "." and _is_file(os.path.join(folder, name)):
                    yield (here / name).as_posix()

    def _load(self, folder: str, paths: list[str], seen: dict[str, File]) -> Skill | DeclarationError | None:
        """Read a skill. A file that has vanished since the walk is not part of it; None if SKILL.md has."""
        if not folder:
            return DeclarationError(f"{self.root} is a skill itself: give the folder that holds it")
        path = f"{self.prefix}/{folder}" if self.prefix else folder
        inside = [p for p in paths if p.startswith(f"{folder}/")]
        if len(inside) > MAX_FILES:
            return DeclarationError(f"skill {path!r:.200}: it has {len(inside)} files; at most {MAX_FILES} are allowed")
        files: dict[str, File] = {}
        try:
            for relative in inside:
                with suppress(FileNotFoundError):
                    files[relative.removeprefix(f"{folder}/")] = seen[relative] = self._file(relative)
            if SKILL not in files:
                return None
            front_matter = read_front_matter(files[SKILL].read().decode("utf-8"))
        except FileNotFoundError:
            return None
        except (DeclarationError, OSError, UnicodeDecodeError, UnsafePath) as error:
            return DeclarationError(f"skill {path!r:.200}: {error}")
        try:
            return make_skill(path, files, front_matter)
        except DeclarationError as error:
            return error

    def _file(self, relative: str) -> File:
        about = os.lstat(self.root / relative)
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns)
        known = self._known.get(relative)
        if known is not None and known.stamp == stamp:
            return known

        def read() -> bytes:
            return safe_read(self.root, relative, limit=MAX_BYTES)

        data = read()
        return File(size=len(data), digest=digest(data), read=read, stamp=stamp)
