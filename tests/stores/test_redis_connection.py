"""The connection to Redis: replies stay with their commands, whatever is cancelled, killed or subscribed meanwhile."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from mcptrio._wire.resp import ServerError
from mcptrio.errors import DeclarationError
from mcptrio.stores import StoreFailed
from mcptrio.stores.redis import connection as module
from mcptrio.stores.redis.address import RedisAddress, RedisUrl
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from tests.deadlines import FairClock
from tests.ports import free_port
from tests.redis_server import RedisServer, running_server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with running_server() as server:
        yield server


def address_of(server: RedisServer, **settings: object) -> RedisAddress:
    return RedisAddress(unix_path=str(server.path), **settings)  # type: ignore[arg-type]


def unavailable(reason: str) -> pytest.RaisesExc[StoreUnavailable]:
    return pytest.raises(StoreUnavailable, match=r"is not available$", check=lambda error: reason in error.reason)


async def wait_until(condition: object) -> None:
    with trio.fail_after(30):
        while not condition():  # type: ignore[operator]
            await trio.lowlevel.checkpoint()


# -- commands


async def test_replies_belong_to_their_commands(redis_server: RedisServer) -> None:
    connection = RedisConnection(address_of(redis_server))
    wrong: list[object] = []

    async def echo(text: str) -> None:
        for number in range(50):
            said = f"{text} {number}".encode()
            found = await connection.execute([("ECHO", said), ("PING",)])
            wrong.extend([found] if found != [said, b"PONG"] else [])

    async with connection.open(), trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(echo, str(number))
    assert wrong == []


async def test_the_reply_to_a_cancelled_command_is_not_given_to_another(redis_server: RedisServer) -> None:
    """Every command has another deadline, so they are cancelled before, while and after they are sent."""
    connection = RedisConnection(address_of(redis_server))
    counts = {"answered": 0, "cancelled": 0}

    async def echo(name: int) -> None:
        for number in range(100):
            said = f"{name} {number}".encode()
            with trio.move_on_after((name * 100 + number) % 97 / 40_000) as scope:
                assert await connection.execute([("ECHO", said)]) == [said]
            counts["cancelled" if scope.cancelled_caught else "answered"] += 1

    async with connection.open():
        async with trio.open_nursery() as nursery:
            for name in range(30):
                nursery.start_soon(echo, name)
        assert await connection.execute([("ECHO", b"after")]) == [b"after"]
    assert counts["cancelled"] > 50


async def test_an_error_is_a_value_among_the_replies(redis_server: RedisServer) -> None:
    async with (connection := RedisConnection(address_of(redis_server))).open():
        first, error, last = await connection.execute([("PING",), ("NONSENSE",), ("PING",)])
        assert (first, last) == (b"PONG", b"PONG")
        assert isinstance(error, ServerError)
        with unavailable("unknown command"):
            await connection.ask("NONSENSE")


async def test_a_subscription_is_answered_by_a_push_and_keeps_the_order(redis_server: RedisServer) -> None:
    heard: list[tuple[bytes, bytes]] = []
    connection = RedisConnection(address_of(redis_server), on_message=lambda *message: heard.append(message))
    async with connection.open():
        for _ in range(3):
            first, confirmed, last = await connection.execute([("ECHO", b"1"), ("SUBSCRIBE", b"news"), ("ECHO", b"2")])
            assert (first, last) == (b"1", b"2")
            assert confirmed[:2] == [b"subscribe", b"news"]
        await connection.execute([("PUBLISH", b"news", b"hello")])
        await wait_until(lambda: heard)
        assert heard == [(b"news", b"hello")]
        confirmed, last = await connection.execute([("UNSUBSCRIBE", b"news"), ("ECHO", b"3")])
        assert (confirmed[0], last) == (b"unsubscribe", b"3")


async def test_a_refused_subscription_keeps_the_order_too(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "deaf", "on", ">secret", "+@all", "-subscribe")
    async with (connection := RedisConnection(address_of(redis_server, username="deaf", password="secret"))).open():
        refused, last = await connection.execute([("SUBSCRIBE", b"news"), ("ECHO", b"1")])
        assert isinstance(refused, ServerError)
        assert last == b"1"


# -- lost and opened again


async def test_a_killed_connection_is_opened_again(redis_server: RedisServer) -> None:
    """Commands that were under way fail; those that come while it reconnects wait."""
    connected = 0

    async def count() -> None:
        nonlocal connected
        connected += 1

    connection = RedisConnection(address_of(redis_server), on_connected=count)
    async with connection.open():
        for round in range(1, 6):
            (client,) = await connection.execute([("CLIENT", "ID")])
            redis_server.command("CLIENT", "KILL", "ID", client)
            await wait_until(lambda: not connection.connected)
            assert await connection.execute([("ECHO", str(round))]) == [str(round).encode()]
        await wait_until(lambda: connected == 6)


async def test_a_server_that_is_down_fails_commands_at_once_and_is_found_again(
    own_server: RedisServer, fair_clock: FairClock
) -> None:
    async with (connection := RedisConnection(address_of(own_server))).open():
        waiting = connection._enqueue([("DEBUG", "SLEEP", "5")])
        own_server.stop()
        with unavailable("lost"):
            await waiting.done.wait()
        await wait_until(lambda: connection._failures)
        with trio.fail_after(2), unavailable("cannot reach"):
            await connection.execute([("PING",)])
        own_server.start()
        await wait_until(lambda: connection.connected)
        assert await connection.execute([("PING",)]) == [b"PONG"]


async def test_a_read_only_replica_counts_as_lost(own_server: RedisServer) -> None:
    async with (connection := RedisConnection(address_of(own_server))).open():
        own_server.command("REPLICAOF", "127.0.0.1", "1")
        (reply,) = await connection.execute([("SET", "key", "value")])
        assert isinstance(reply, ServerError)
        await wait_until(lambda: not connection.connected)
        own_server.command("REPLICAOF", "NO", "ONE")
        assert await connection.execute([("SET", "key", "value")]) == [b"OK"]


async def test_a_slow_server_is_not_waited_for(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """F27: a deadline for each command, and after five missed ones no waiting at all for a while."""
    monkeypatch.setattr(module, "ASK_WITHIN", 0.02)
    async with (connection := RedisConnection(address_of(own_server))).open():
        own_server.command("CLIENT", "PAUSE", 1_000)
        for _ in range(5):
            with unavailable("did not answer"):
                await connection.ask("GET", "key")
        with trio.fail_after(0), unavailable("is slow"):
            await connection.ask("GET", "key")
        own_server.command("CLIENT", "UNPAUSE")
        connection._slow_until = 0.0
        monkeypatch.setattr(module, "ASK_WITHIN", 5.0)
        assert await connection.ask("ECHO", "back") == b"back"


async def test_waiting_commands_are_bounded(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_AWAITED", 10)
    async with (connection := RedisConnection(address_of(own_server))).open():
        own_server.command("CLIENT", "PAUSE", 500)
        for _ in range(11):
            connection._enqueue([("PING",)])
        with unavailable("keep up"):
            await connection.execute([("PING",)])
        monkeypatch.setattr(module, "MAX_AWAITED", 100)
        monkeypatch.setattr(module, "MAX_UNSENT", 100)
        connection._unsent += bytes(90)
        with unavailable("keep up"):
            await connection.execute([("ECHO", bytes(90))])


async def test_a_silent_server_counts_as_lost(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_EVERY", 0.02)
    monkeypatch.setattr(module, "SILENT", 0.1)
    async with (connection := RedisConnection(address_of(own_server))).open():
        own_server.command("CLIENT", "PAUSE", 700)
        with unavailable("no reply"):
            await connection.execute([("GET", "key")])


# -- who may connect, and how


async def connect(address: RedisAddress) -> object:
    async with (connection := RedisConnection(address)).open():
        return (await connection.execute([("CLIENT", "GETNAME")]))[0]


async def test_login_with_name_and_password() -> None:
    with running_server("--requirepass", "right") as server:
        with pytest.raises(StoreFailed, match=r"check name and password; there is none: .*MCPTRIO_STORE_PASSWORD_FILE"):
            await connect(address_of(server))
        with pytest.raises(StoreFailed, match="refused user 'default'"):
            await connect(address_of(server, password="wrong"))
        assert await connect(address_of(server, password="right")) == b"mcptrio"


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"cannot reach the Redis server .*none\.sock"):
        await connect(RedisAddress(unix_path=str(tmp_path / "none.sock")))
    with pytest.raises(StoreFailed, match=r"cannot reach the Redis server 127\.0\.0\.1:1: .*start it, or correct"):
        await connect(RedisAddress(hosts=(("127.0.0.1", 1),)))


Handler = Callable[[trio.SocketStream], Awaitable[object]]


async def listen(nursery: trio.Nursery, handler: Handler) -> tuple[str, int]:
    """Serve a handler on a free port."""
    serve = partial(trio.serve_tcp, handler, 0, host="127.0.0.1")
    (listener,) = await nursery.start(serve)
    return "127.0.0.1", listener.socket.getsockname()[1]


def answering(reply: bytes) -> Handler:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(reply)
        await stream.aclose()

    return answer


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"-ERR unknown command 'HELLO'\r\n", "too old"),
        (b"%1\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n", r"version 6\.0\.9: 6\.2 or later"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "RESP3"),
        (b"", "closed the connection .*write rediss://"),
        (b"%1\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n-ERR DB index is out of range\r\n", "setting databases"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused(reply: bytes, text: str, nursery: trio.Nursery) -> None:
    host = await listen(nursery, answering(reply))
    with pytest.raises(StoreFailed, match=text):
        await connect(RedisAddress(hosts=(host,), db=99 if b"DB" in reply else 0))


async def test_a_server_that_never_answers_is_given_up(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(_: trio.SocketStream) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(module, "CONNECT_WITHIN", 0.1)
    host = await listen(nursery, wait)
    with pytest.raises(StoreFailed, match="no answer"):
        await connect(RedisAddress(hosts=(host,)))


async def test_sentinels_say_where_the_server_is(redis_server: RedisServer, nursery: trio.Nursery) -> None:
    """The first sentinel is down, the second does not know the service, the third answers."""
    passed = 0

    async def proxy(client: trio.SocketStream) -> None:
        async with await trio.open_unix_socket(str(redis_server.path)) as upstream, trio.open_nursery() as both:

            async def pump(source: trio.SocketStream, target: trio.SocketStream) -> None:
                nonlocal passed
                async for data in source:
                    passed += len(data)
                    await target.send_all(data)
                both.cancel_scope.cancel()

            both.start_soon(pump, client, upstream)
            both.start_soon(pump, upstream, client)

    port = str((await listen(nursery, proxy))[1]).encode()
    ignorant = await listen(nursery, answering(b"*-1\r\n"))
    knowing = await listen(nursery, answering(b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)))
    hosts = (("127.0.0.1", 1), ignorant, knowing)
    assert await connect(RedisAddress(hosts=hosts, service="orders")) == b"mcptrio"
    assert passed
    with pytest.raises(StoreFailed, match="unknown service"):
        await connect(RedisAddress(hosts=hosts[:2], service="orders"))


async def test_tls_checks_the_certificate_of_the_server(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    files = [("cert", "--tls-cert-file"), ("key", "--tls-key-file"), ("ca", "--tls-ca-cert-file")]
    options = [
        "--tls-auth-clients",
        "no",
        *(word for name, key in files for word in (key, str(tmp_path / f"{name}.pem"))),
    ]
    port = free_port()
    with secured_server("--tls-port", str(port), *options):
        url = f"rediss://localhost:{port}?ca={tmp_path / 'ca.pem'}"
        assert await connect(RedisUrl.parse(url).address) == b"mcptrio"
        wrong = ssl.create_default_context()
        other.configure_trust(wrong)
        with pytest.raises(StoreFailed, match=r"CERTIFICATE_VERIFY_FAILED.*\?ca=FILE"):
            await connect(RedisUrl.parse(url, tls=wrong).address)


@contextmanager
def secured_server(*options: str) -> Iterator[None]:
    with ExitStack() as ends:
        try:
            ends.enter_context(running_server(*options))
        except RuntimeError as error:
            if "Bad directive" in str(error) or "Failed finding TLS support" in str(error):
                pytest.skip("this server was built without TLS")
            raise
        yield


# -- URLs


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", RedisAddress(hosts=(("localhost", 6379),))),
        ("redis://h:1234/2", RedisAddress(hosts=(("h", 1234),), db=2)),
        ("redis://[::1]:7/", RedisAddress(hosts=(("::1", 7),))),
        ("redis://:p%40ss@h", RedisAddress(hosts=(("h", 6379),), password="p@ss")),
        ("redis://app:secret@h", RedisAddress(hosts=(("h", 6379),), username="app", password="secret")),
        ("redis+unix:///run/r.sock?db=3", RedisAddress(unix_path="/run/r.sock", db=3)),
        (
            "redis+sentinel://a,b:9/orders",
            RedisAddress(hosts=(("a", 26379), ("b", 9)), service="orders"),
        ),
    ],
)
def test_a_url_names_an_address(url: str, expected: RedisAddress) -> None:
    assert RedisUrl.parse(url).address == expected


def test_a_url_has_a_name_and_options() -> None:
    parsed = RedisUrl.parse("rediss://:inside@h?name=orders&wait=1", password="better")
    assert (parsed.name, parsed.wait) == ("orders", 1)
    assert parsed.address.password == "better"
    assert parsed.address.tls is not None
    assert "better" not in str(parsed.address)


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis+unix://",
        "redis+sentinel://host",
        "redis://:secret@h:port",
        "redis://:secret@h/orders",
        "redis://:secret@h?nam=orders",
        "redis://:secret@h?name=a b",
        "redis://:secret@h?name={x}",
        "http://:secret@h",
        "redis://:secret@h?wait=some",
        "redis://:secret@h:0",
        "redis://:secret@h?ca=ca.pem",
        "rediss://:secret@h?ca=/nowhere/ca.pem",
        f"rediss://:secret@h?ca={__file__}",
    ],
)
def test_any_other_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(DeclarationError, match="redis\\+sentinel") as refused:
        RedisUrl.parse(url)
    assert "secret" not in str(refused.value)
