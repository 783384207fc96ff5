"""Loading the server from a user's file, with a one-line error if that fails."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NoReturn

from mcptrio.errors import DeclarationError
from mcptrio.server.server import Server


class LoadError(Exception):
    """The file cannot be loaded; the text says where and why."""


def load_server(target: str) -> Server:
    """Load the server in `FILE` or `FILE:NAME`.

    Raises:
        LoadError: the file does not exist or fails, or has no server of that name.
    """
    file, name = _split(target)
    path = Path(file)
    if not path.is_file():
        raise LoadError(f"{file}: {_missing(path)}")
    module = _execute(path)
    if name is not None:
        found = getattr(module, name, None)
        if not isinstance(found, Server):
            what = "is not a Server" if found is not None else "does not exist"
            raise LoadError(f"{file}: {name} {what}; servers in this file: {_names(module) or 'none'}")
        return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    if not servers:
        raise LoadError(f'{file}: no Server found; write `server = Server("name")` at the top level')
    raise LoadError(f"{file}: several servers found, name one: {file}:{next(iter(servers))} ({_names(module)})")


def _missing(path: Path) -> str:
    if path.is_dir():
        return "this is a folder; give the Python file that contains the server"
    with_ending = path.with_name(f"{path.name}.py")
    return f"no such file; did you mean {with_ending}?" if with_ending.is_file() else "no such file"


def _split(target: str) -> tuple[str, str | None]:
    head, colon, tail = target.rpartition(":")
    # A drive letter (C:\server.py) does not separate a file from a name.
    return (head, tail) if colon and tail.isidentifier() and len(head) > 1 else (target, None)


def _names(module: object) -> str:
    return ", ".join(key for key, value in vars(module).items() if isinstance(value, Server))


def _execute(path: Path) -> object:
    sys.path.insert(0, str(path.parent.resolve()))
    loader = SourceFileLoader(path.stem, str(path))
    spec = spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    serve = Server.run
    Server.run = _refuse_run  # type: ignore[method-assign]  # a file that serves while it is loaded never returns
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        raise LoadError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except Exception as error:
        raise LoadError(f"{_where(error, path)}: {type(error).__name__}: {error}") from error
    finally:
        Server.run = serve  # type: ignore[method-assign]
    return module


def _refuse_run(*args: object, **settings: object) -> NoReturn:
    raise DeclarationError(
        'the file calls run() while it is loaded: put the call behind `if __name__ == "__main__":`, '
        "or start the file with python"
    )


def _where(error: BaseException, path: Path) -> str:
    """Return the last line of the user's file in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f"{path}:{own[-1].lineno}" if own else str(path)
