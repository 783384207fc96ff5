"""Loading the server from a user's file, with a one-line error if that fails."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import NoReturn

from mcptrio.cli.settings import split_target
from mcptrio.errors import DeclarationError
from mcptrio.server.server import Server


class LoadError(Exception):
    """The file cannot be loaded; the text says where and why."""


def load_server(target: str) -> Server:
    """Load the server in `FILE` or `FILE:NAME`.

    Raises:
        LoadError: the file does not exist or fails, or has no server of that name.
    """
    file, name = split_target(target)
    path = Path(file)
    if not path.is_file():
        raise LoadError(f"{file}: {_missing(path)}")
    return _find(_execute(path), file, name, path)


def load_module(target: str) -> Server:
    """Load the server in `MODULE` or `MODULE:NAME`, with the working directory on `sys.path` as `python -m` has it.

    Raises:
        LoadError: the module cannot be imported, or has no server of that name.
    """
    dotted, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = find_spec(dotted)
    except (ImportError, ValueError, AttributeError) as error:
        raise LoadError(f"-m {dotted}: {error}") from error
    if found is None:
        raise LoadError(f"-m {dotted}: there is no such module in the working directory or among installed packages")
    path = Path(found.origin or dotted)
    sys.argv[0] = str(path)
    with _loading(path):
        module = import_module(dotted)
    return _find(module, dotted, name or None, path)


def _find(module: object, file: str, name: str | None, path: Path) -> Server:
    """Return the server of a module; `file` is how the user calls the module."""
    if name is not None:
        found = getattr(module, name, None)
        if isinstance(found, Server):
            return found
        if callable(found):
            return _make(found, f"{file}:{name}", path)
        what = "is neither a Server nor a function that returns one" if found is not None else "does not exist"
        raise LoadError(f"{file}: {name} {what}; servers in this file: {_names(module) or 'none'}")
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    if not servers:
        raise LoadError(
            f'{file}: no Server found; write `server = Server("name")` at the top level, or name a function that '
            f"returns one: {file}:NAME"
        )
    raise LoadError(f"{file}: several servers found, name one: {file}:{next(iter(servers))} ({_names(module)})")


def _missing(path: Path) -> str:
    if path.is_dir():
        return "this is a folder; give the Python file that contains the server"
    with_ending = path.with_name(f"{path.name}.py")
    return f"no such file; did you mean {with_ending}?" if with_ending.is_file() else "no such file"


def _names(module: object) -> str:
    return ", ".join(key for key, value in vars(module).items() if isinstance(value, Server))


def _execute(path: Path) -> object:
    sys.path.insert(0, str(path.parent.resolve()))
    loader = SourceFileLoader(path.stem, str(path))
    spec = spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    with _loading(path):
        loader.exec_module(module)
    return module


def _make(factory: Callable[..., object], target: str, path: Path) -> Server:
    """Call a factory, once."""
    try:
        needed = [
            parameter.name
            for parameter in signature(factory).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):  # a builtin without a signature
        needed = []
    if needed:
        raise LoadError(f"{target} needs arguments ({', '.join(needed)}); a function that returns a server takes none")
    with _loading(path):
        made = factory()
    if isinstance(made, Server):
        return made
    if isinstance(made, Coroutine):
        made.close()
        raise LoadError(f"{target} is async; a function that returns a server is a plain one")
    raise LoadError(f"{target}() returned {type(made).__name__}, not a Server")


@contextmanager
def _loading(path: Path) -> Iterator[None]:
    """Run code of the user; its errors become a `LoadError` with the place, and `Server.run` is refused."""
    serve = Server.run
    Server.run = _refuse_run  # type: ignore[method-assign]  # a file that serves while it is loaded never returns
    try:
        yield
    except SyntaxError as error:
        doubt = "" if str(error.filename).endswith(".py") else "; is this a Python file?"
        raise LoadError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}{doubt}") from error
    except Exception as error:
        raise LoadError(f"{_where(error, path)}: {type(error).__name__}: {error}{_advice(error)}") from error
    finally:
        Server.run = serve  # type: ignore[method-assign]


def _refuse_run(*args: object, **settings: object) -> NoReturn:
    raise DeclarationError(
        'the file calls run() while it is loaded: put the call behind `if __name__ == "__main__":`, '
        "or start the file with python"
    )


def _advice(error: Exception) -> str:
    """Return the import that is missing, if that is why the file fails."""
    if not isinstance(error, NameError) or isinstance(error, UnboundLocalError):
        return ""
    from mcptrio._hints import import_of

    statement = import_of(error.name)
    return f"; is `{statement}` missing?" if statement is not None else ""


def _where(error: BaseException, path: Path) -> str:
    """Return the last line of the user's file in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f"{path}:{own[-1].lineno}" if own else str(path)
