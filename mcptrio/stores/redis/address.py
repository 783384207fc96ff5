"""Where a Redis store is: the URL of `--store`, the address that it names, and how to reach it."""

from __future__ import annotations

import re
import ssl
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import trio
from msgspec import Struct

from mcptrio._wire.resp import RespParser, ServerError, pack
from mcptrio.errors import DeclarationError

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
SCHEMES: Final = ("redis", "rediss", "redis+unix", "redis+sentinel")
FORMS: Final = (
    "redis://[user:password@]host[:port][/db][?name=orders], rediss:// for TLS, redis+unix:///path/to.sock, "
    "redis+sentinel://host1,host2/service"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RedisAddress(Struct, frozen=True, kw_only=True):
    """A server, and how to log in."""

    hosts: tuple[tuple[str, int], ...] = ()
    """The server; with `service`, the sentinels that know it."""
    unix_path: str = ""
    service: str = ""
    """The name under which sentinels know the server."""
    tls: ssl.SSLContext | None = None
    username: str = "default"
    password: str | None = None
    db: int = 0

    def __str__(self) -> str:
        if self.unix_path:
            return self.unix_path
        where = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{where}/{self.service}" if self.service else where

    async def dial(self) -> trio.abc.Stream:
        """Connect to the server.

        Raises:
            OSError: it cannot be reached.
            trio.BrokenResourceError: TLS could not be agreed on.
        """
        if self.unix_path:
            return await trio.open_unix_socket(self.unix_path)
        host, port = await self._ask_sentinels() if self.service else self.hosts[0]
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
        if self.tls is not None:
            secured = trio.SSLStream(stream, self.tls, server_hostname=host, https_compatible=True)
            try:
                await secured.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            stream = secured
        return stream

    async def _ask_sentinels(self) -> tuple[str, int]:
        reason = ""
        for host, port in self.hosts:
            try:
                with trio.fail_after(1):
                    found = await _query(host, port, ("SENTINEL", "get-master-addr-by-name", self.service))
            except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
                reason = f"sentinel {host}:{port}: {str(error) or 'no answer'}"
                continue
            if isinstance(found, list):
                return found[0].decode(), int(found[1])
            reason = f"sentinel {host}:{port}: {found if isinstance(found, ServerError) else 'unknown service'}"
        raise OSError(reason)


async def _query(host: str, port: int, command: tuple[str, ...]) -> object:
    """Send one command on a connection of its own and return the reply."""
    parser = RespParser()
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(pack([command]))
        async for data in stream:
            for reply in parser.feed(data):
                return reply
    raise OSError("the connection was closed")


class RedisUrl(Struct, frozen=True, kw_only=True):
    """A parsed URL: the address, the name of the endpoint, and for how many replicas a commit waits."""

    address: RedisAddress
    name: str = "default"
    wait: int = 0

    @classmethod
    def parse(cls, url: str, password: str | None = None, tls: ssl.SSLContext | None = None) -> RedisUrl:
        """Read a URL; `password` and `tls` replace what it says.

        Raises:
            DeclarationError: it is not the URL of a Redis store; the text does not repeat its password.
        """
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
            return cls._read(parts, options, password, tls)
        except ValueError as error:
            raise DeclarationError(f"not the URL of a Redis store ({error}): write {FORMS}") from None

    @classmethod
    def _read(
        cls, parts: SplitResult, options: dict[str, str], password: str | None, tls: ssl.SSLContext | None
    ) -> RedisUrl:
        if parts.scheme not in SCHEMES:
            raise ValueError("unknown scheme")
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, secret = login.partition(":")
        name, db, ca = options.pop("name", "default"), options.pop("db", ""), options.pop("ca", None)
        wait = _number(options.pop("wait", "0"), "wait=")
        if options:
            raise ValueError(f"unknown option {min(options)}")
        if not _NAME.fullmatch(name):
            raise ValueError("name= must be 1 to 64 letters, digits, dots, dashes or underscores")
        unix, sentinel = parts.scheme == "redis+unix", parts.scheme == "redis+sentinel"
        path = unquote(parts.path)
        if (unix and not path) or (not unix and not hosts):
            raise ValueError("no address")
        if sentinel and not path.strip("/"):
            raise ValueError("no service")
        if ca is not None and parts.scheme != "rediss":
            raise ValueError("ca= is for rediss://")
        if parts.scheme == "rediss" and tls is None:
            tls = _tls(ca)
        port = SENTINEL_PORT if sentinel else PORT
        address = RedisAddress(
            hosts=() if unix else tuple(_host(host, port) for host in hosts.split(",")),
            unix_path=path if unix else "",
            service=path.strip("/") if sentinel else "",
            tls=tls,
            username=unquote(user) or "default",
            password=password if password is not None else unquote(secret) or None,
            db=_number(db or (path.strip("/") if not (unix or sentinel) else "") or "0", "the number of a database"),
        )
        return cls(address=address, name=name, wait=wait)


def _number(text: str, what: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{what} must be a number, not {text[:20]!r}")
    return int(text)


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    if parts.port == 0:
        raise ValueError("port 0")
    return parts.hostname, parts.port or port


def _tls(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # also one of TLS: there is no certificate in the file
        text = "no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"ca={ca}: {text}") from None
