"""The connection between two workers: greetings, requests, streams, bounds, and what a lost connection means."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from mcptrio.cluster import ClusterConfig, channel, link_client, link_server, sockets
from mcptrio.cluster.channel import FrameChannel, LinkIdentity
from mcptrio.cluster.frames import (
    AnswerFrame,
    CloseRemote,
    Detach,
    Forward,
    Forwarded,
    ForwardedStream,
    FrameReader,
    Hello,
    Leaving,
    LinkError,
    LinkFrame,
    NotHome,
    pack_frame,
)
from mcptrio.cluster.link_client import LinkBroken, PeerLink, Unreachable
from mcptrio.cluster.link_server import AcceptedLink, LinkServer, RemoteStream
from mcptrio.cluster.sockets import dial, open_link_listener
from mcptrio.errors import Overloaded

SECRET = b"s" * 32
CONFIG = ClusterConfig()
REQUEST = Forward(0, "sid", "POST", "/mcp", b"", (), b"{}", "http", None, None, None, False)


def identity(worker: str, secret: bytes = SECRET, cluster: str = "c", max_request: int = 2**20) -> LinkIdentity:
    return LinkIdentity.derive(worker, cluster, secret, max_request)


class Home:
    """The worker that answers."""

    def __init__(self) -> None:
        self.requests: list[Forward] = []
        self.cancelled: list[int] = []
        self.links: list[AcceptedLink] = []
        self.detached: list[str] = []
        self.go_on = trio.Event()

    def announce(self) -> None:
        pass

    def detach(self, cause: str) -> None:
        self.detached.append(cause)

    async def answer(self, request: Forward, link: AcceptedLink) -> tuple[AnswerFrame, RemoteStream | None]:
        self.requests.append(request)
        self.links.append(link)
        match request.body:
            case b"wait":
                try:
                    await self.go_on.wait()
                except trio.Cancelled:
                    self.cancelled.append(request.id)
                    raise
            case b"fail":
                raise RuntimeError("oops")
            case b"lost":
                return NotHome(request.id), None
            case b"twice":
                return Forwarded(request.id, 200, (), bytes(2**20 + 2**19)), None
            case b"many times":
                return Forwarded(request.id, 200, (), bytes(2**22)), None
            case b"900":
                return Forwarded(request.id, 200, (), bytes(900)), None
            case b"stream":
                return ForwardedStream(request.id, "sid", "1", 0, b"", (), True, 1), self
        return Forwarded(request.id, 200, ((b"x", b"y"),), request.body), None


@asynccontextmanager
async def linked(
    home: Home,
    *,
    asks: LinkIdentity | None = None,
    worker: str = "home",
    closed: list[tuple[int, bool]] | None = None,
    config: ClusterConfig = CONFIG,
) -> AsyncIterator[PeerLink]:
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(config), trio.open_nursery() as nursery:
        on_close = (lambda *_: None) if closed is None else (lambda *args: closed.append(args))
        yield PeerLink(worker, asks or identity("asks"), nursery, partial(dial, server.address, config), on_close)
        nursery.cancel_scope.cancel()


async def settle(condition: object) -> None:
    with trio.fail_after(30):
        while not condition():  # type: ignore[operator]
            await trio.sleep(0.001)


async def test_many_requests_share_one_connection() -> None:
    home = Home()
    async with linked(home) as link:
        answers: dict[int, AnswerFrame] = {}

        async def ask(number: int) -> None:
            answers[number] = await link.forward(replace(REQUEST, body=b"%d" % number))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
        assert all(isinstance(a, Forwarded) and a.body == b"%d" % n for n, a in answers.items())
        assert len(set(map(id, home.links))) == 1
        assert home.links[0].worker == "asks"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate of one authority, for all workers."""
    trustme = pytest.importorskip("trustme")
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("worker.internal")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return {f"forward_{name}": str(folder / f"{name}.pem") for name in ("ca", "cert", "key")}


@pytest.mark.parametrize("tls", [False, True])
async def test_a_link_over_tcp(certificates: dict[str, str], tls: bool) -> None:
    config = ClusterConfig(forward_address="127.0.0.1:0", **(certificates if tls else {}))  # type: ignore[arg-type]
    home = Home()
    async with linked(home, config=config) as link:
        answer = await link.forward(replace(REQUEST, body=b"over tcp"))
        assert isinstance(answer, Forwarded)
        assert answer.body == b"over tcp"


async def test_an_address_or_a_certificate_that_cannot_be_used_is_named(
    certificates: dict[str, str], tmp_path: Path
) -> None:
    trustme = pytest.importorskip("trustme")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for settings, text in [
            ({"forward_address": address}, rf"cannot listen on {address} \(--forward-address\): "),
            (
                {**certificates, "forward_ca": str(tmp_path / "other.pem")},
                "does not accept --forward-cert .*cert.pem: ",
            ),
            ({**certificates, "forward_ca": "missing.pem"}, "--forward-ca missing.pem cannot be used: No such file"),
            ({**certificates, "forward_key": "missing.pem"}, "--forward-key missing.pem cannot be used: No such file"),
        ]:
            config = ClusterConfig(**{"forward_address": "127.0.0.1:0", **settings})  # type: ignore[arg-type]
            with pytest.raises(OSError, match=text):
                async with open_link_listener(config):
                    pass


async def test_the_system_ends_a_tcp_link_whose_peer_is_silent() -> None:
    """In both directions: a network that drops packets ends no connection by itself."""
    config = ClusterConfig(forward_address="127.0.0.1:0")
    async with open_link_listener(config) as (listener, address), trio.open_nursery() as nursery:
        accepted: list[trio.abc.Stream] = []

        async def accept() -> None:
            accepted.append(await listener.accept())

        nursery.start_soon(accept)
        dialled = await dial(address, config)
        await settle(lambda: accepted)
        for stream in (dialled, *accepted):
            assert isinstance(stream, trio.SocketStream)
            assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
            await stream.aclose()


KILLED = """
import sys, trio
from mcptrio.cluster import ClusterConfig
from mcptrio.cluster.sockets import open_link_listener

async def listen():
    async with open_link_listener(ClusterConfig(socket_directory=sys.argv[1])):
        print("ready", flush=True)
        await trio.sleep_forever()

trio.run(listen)
"""


def test_the_socket_of_a_process_that_was_killed_is_removed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(fresh: float) -> None:
        monkeypatch.setattr(sockets, "FRESH", fresh)
        async with open_link_listener(ClusterConfig(socket_directory=folder)) as (_, address):
            assert os.stat(os.path.dirname(address)).st_mode & 0o777 == 0o700

    with tempfile.TemporaryDirectory(prefix="mt-") as folder:  # not tmp_path: the path of a unix socket is short
        Path(folder, "mcptrio-link-file").write_text("not a directory")
        Path(folder, "other").mkdir()
        process = subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            (theirs,) = (path for path in Path(folder).glob("mcptrio-link-*") if path.is_dir())
            trio.run(start, -1.0)
            assert theirs.exists(), "its process lives"
        finally:
            process.kill()
            process.communicate()
        trio.run(start, 60.0)
        assert theirs.exists(), "it may be about to be locked"
        trio.run(start, -1.0)
        assert sorted(path.name for path in Path(folder).iterdir()) == ["mcptrio-link-file", "other"]


@pytest.mark.parametrize("address", ["0.0.0.0:7000", "[::]:7000"])
def test_an_address_that_others_cannot_dial_is_refused(certificates: dict[str, str], address: str) -> None:
    with pytest.raises(ValueError, match="reach this machine"):
        ClusterConfig(forward_address=address, **certificates)  # type: ignore[arg-type]


async def test_a_worker_without_a_certificate_of_the_authority_is_not_heard(certificates: dict[str, str]) -> None:
    config = ClusterConfig(forward_address="127.0.0.1:0", **certificates)  # type: ignore[arg-type]
    home = Home()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(config), trio.open_nursery() as nursery:
        plain = ClusterConfig(forward_address="127.0.0.1:0")
        link = PeerLink("home", identity("asks"), nursery, partial(dial, server.address, plain), lambda *_: None)
        with pytest.raises(Unreachable):
            await link.forward(REQUEST)
        assert home.requests == []


async def test_the_error_says_why_a_certificate_is_refused(certificates: dict[str, str], tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    config = ClusterConfig(forward_address="127.0.0.1:0", **certificates)  # type: ignore[arg-type]
    server = LinkServer(lambda: identity("home"), Home().answer)
    async with server.open(config), trio.open_nursery() as nursery:
        other = replace(config, forward_ca=str(tmp_path / "other.pem"))
        link = PeerLink("home", identity("asks"), nursery, partial(dial, server.address, other), lambda *_: None)
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await link.forward(REQUEST)


async def test_a_cancelled_request_is_cancelled_at_the_home_worker() -> None:
    home = Home()
    async with linked(home) as link:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.forward, replace(REQUEST, body=b"wait"))
            await settle(lambda: home.requests)
            nursery.cancel_scope.cancel()
        await settle(lambda: home.cancelled)
        assert link.pending == 0


async def test_a_failed_request_gets_500_and_the_link_goes_on() -> None:
    home = Home()
    async with linked(home) as link:
        answer = await link.forward(replace(REQUEST, body=b"fail"))
        assert isinstance(answer, Forwarded)
        assert answer.status == 500
        assert b'"message":"the request failed"' in answer.body
        assert isinstance(await link.forward(replace(REQUEST, body=b"lost")), NotHome)


async def test_a_stream_is_detached_when_its_client_or_the_link_is_gone() -> None:
    home, closed = Home(), list[tuple[int, bool]]()
    async with linked(home, closed=closed) as link:
        first = await link.forward(replace(REQUEST, body=b"stream"))
        second = await link.forward(replace(REQUEST, body=b"stream"))
        assert isinstance(first, ForwardedStream)
        home.links[0].close_remote(second.id, retry=True)
        link.detach(first.id, "done")
        await settle(lambda: home.detached == ["done"] and closed == [(second.id, True)])
    await settle(lambda: home.detached == ["done", "disconnected"])


async def test_an_answer_for_a_client_that_is_gone_detaches_its_stream() -> None:
    """The client disconnected while the answer was on its way."""
    home = Home()
    async with linked(home) as link:
        await link.forward(REQUEST)
        link._channel.send_nowait(replace(REQUEST, id=900, body=b"stream"))  # type: ignore[union-attr]
        await settle(lambda: home.detached == ["disconnected"])


async def test_a_dead_worker_fails_what_waits_and_cannot_be_reached() -> None:
    """R11: whatever the connection says."""
    home = Home()
    async with linked(home) as link:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(LinkBroken):
                    await link.forward(replace(REQUEST, body=b"wait"))

            nursery.start_soon(ask)
            await settle(lambda: home.requests)
            link.give_up("its lease ran out")
        with pytest.raises(Unreachable):
            await link.forward(REQUEST)
        assert len(home.requests) == 1  # R5


async def test_a_worker_that_leaves_answers_everything_that_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "LEAVE_WITHIN", 60.0)
    home, left, answers = Home(), trio.Event(), list[AnswerFrame]()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), trio.open_nursery() as nursery:
        link = PeerLink("home", identity("asks"), nursery, partial(dial, server.address, CONFIG), lambda *_: None)

        async def ask() -> None:
            answers.append(await link.forward(replace(REQUEST, body=b"wait")))

        async def leave() -> None:
            await server.leave()
            left.set()

        nursery.start_soon(ask)
        await settle(lambda: home.requests)
        nursery.start_soon(leave)
        await settle(lambda: link.leaving)
        assert not link.connected
        with pytest.raises(Unreachable, match="leaves"):
            await link.forward(REQUEST)
        assert not left.is_set()
        home.go_on.set()
        await left.wait()
        assert [type(answer) for answer in answers] == [Forwarded]
        with pytest.raises(Unreachable):
            await link.forward(REQUEST)
        assert len(home.requests) == 1
        nursery.cancel_scope.cancel()


async def test_a_worker_that_leaves_does_not_wait_for_a_client_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "LEAVE_WITHIN", 60.0)
    home, left = Home(), trio.Event()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), trio.open_nursery() as nursery:
        link = PeerLink("home", identity("asks"), nursery, partial(dial, server.address, CONFIG), lambda *_: None)

        async def leave() -> None:
            await server.leave()
            left.set()

        async with trio.open_nursery() as asking:
            asking.start_soon(link.forward, replace(REQUEST, body=b"wait"))
            await settle(lambda: home.requests)
            nursery.start_soon(leave)
            await settle(lambda: link.leaving)
            asking.cancel_scope.cancel()
        with trio.fail_after(30):
            await left.wait()


async def test_a_link_that_is_greeted_while_its_worker_leaves_is_closed_at_once() -> None:
    home = Home()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), trio.open_nursery() as nursery:
        stream = await dial(server.address, CONFIG)
        await settle(lambda: server._channels)
        nursery.start_soon(server.leave)
        await settle(lambda: server._accepting.cancel_called)
        channel = FrameChannel(stream, identity("asks"), dialled=True)
        await channel.greet()
        assert isinstance(await channel.receive(), Leaving)
        await stream.aclose()


async def test_a_peer_that_keeps_its_link_does_not_keep_a_worker_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "LEAVE_WITHIN", 0.05)
    server = LinkServer(lambda: identity("home"), Home().answer)
    async with server.open(CONFIG):
        stream = await dial(server.address, CONFIG)
        await FrameChannel(stream, identity("asks"), dialled=True).greet()
        with trio.fail_after(30):
            await server.leave()
        await stream.aclose()


async def test_a_worker_that_cannot_be_dialled_is_unreachable_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with trio.open_nursery() as nursery:
        link = PeerLink("home", identity("asks"), nursery, partial(dial, "/nonexistent/link", CONFIG), lambda *_: None)
        for _ in range(3):
            with pytest.raises(Unreachable):
                await link.forward(REQUEST)
    assert caplog.text.count("worker home: ") == 1


async def test_a_worker_that_does_not_greet_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_client, "DIAL_WITHIN", 0.05)
    ours, _theirs = trio.testing.memory_stream_pair()

    async def silent() -> trio.abc.Stream:
        return ours

    async with trio.open_nursery() as nursery:
        link = PeerLink("home", identity("asks"), nursery, silent, lambda *_: None)
        with pytest.raises(Unreachable, match="did not answer"):
            await link.forward(REQUEST)


@pytest.mark.parametrize(
    "stranger", [identity("asks", b"other" * 8), identity("asks", cluster="d")], ids=["another secret", "another name"]
)
async def test_a_stranger_gets_no_answer(stranger: LinkIdentity) -> None:
    home = Home()
    async with linked(home, asks=stranger) as link:
        with pytest.raises(Unreachable):
            await link.forward(REQUEST)
        assert home.requests == []


async def test_another_worker_at_the_address_means_that_the_old_one_is_gone() -> None:
    home = Home()
    async with linked(home, worker="earlier") as link:
        with pytest.raises(Unreachable, match="gone"):
            await link.forward(REQUEST)


async def ended(stream: trio.abc.Stream) -> bytes:
    """Return the bytes that a stream delivers before it ends."""
    found = b""
    with trio.fail_after(30), suppress(trio.BrokenResourceError):
        while data := await stream.receive_some():
            found += data
    return found


def frames_of(data: bytes, size: int = 2**20) -> list[LinkFrame]:
    """Cut bytes that arrive in pieces of one size into frames."""
    reader, found = FrameReader(2**20), list[LinkFrame]()
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return found


async def test_a_proof_cannot_be_sent_back() -> None:
    """An impostor without the secret, at the address of a worker, repeats what the worker that dials says."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def repeat() -> None:
        while data := await theirs.receive_some():
            await theirs.send_all(data)

    async def reach() -> trio.abc.Stream:
        return ours

    async with trio.open_nursery() as nursery:
        nursery.start_soon(repeat)
        link = PeerLink("asks", identity("asks"), nursery, reach, lambda *_: None)
        with trio.fail_after(30), pytest.raises(Unreachable, match="does not know the secret"):
            await link.forward(REQUEST)
        nursery.cancel_scope.cancel()


async def test_a_worker_gives_no_proof_to_a_stranger() -> None:
    home = Home()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), await dial(server.address, CONFIG) as stream:
        greeting = await stream.receive_some()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(greeting)
            await stream.send_all(pack_frame(replace(REQUEST, id=1)))
        assert await ended(stream) == b""
        assert home.requests == []


async def test_a_link_is_used_when_both_sides_have_accepted_it() -> None:
    """A request on a link that the other worker refuses a moment later would count as one that may have run."""
    near, far = trio.testing.memory_stream_pair()
    slow, home_end = trio.testing.memory_stream_pair()
    asks = FrameChannel(near, identity("asks"), dialled=True)
    home = FrameChannel(home_end, identity("home"), dialled=False)
    greeted = list[str]()
    proof_may_pass = trio.Event()

    async def greet(channel: FrameChannel) -> None:
        greeted.append(await channel.greet())

    async def carry(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, held: trio.Event | None) -> None:
        while data := await source.receive_some():
            await sink.send_all(data)
            if held is not None:
                await held.wait()  # after the first piece, which is the greeting

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, far, slow, proof_may_pass)
        nursery.start_soon(carry, slow, far, None)
        nursery.start_soon(greet, asks)
        nursery.start_soon(greet, home)
        await trio.testing.wait_all_tasks_blocked()
        assert greeted == []
        proof_may_pass.set()
        await settle(lambda: sorted(greeted) == ["asks", "home"])
        nursery.cancel_scope.cancel()


async def test_a_request_before_the_proof_closes_the_link() -> None:
    home = Home()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), await dial(server.address, CONFIG) as stream:
        await stream.send_all(pack_frame(replace(REQUEST, id=1)))
        greeting = frames_of(await ended(stream))
        assert isinstance(greeting[0], Hello)
        assert len(greeting) == 1
        assert home.requests == []


async def test_requests_that_wait_for_a_peer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_client, "MAX_PENDING", 2)
    home = Home()
    async with linked(home) as link, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(link.forward, replace(REQUEST, body=b"wait"))
        await settle(lambda: link.pending == 2)
        with pytest.raises(Overloaded) as refused:
            await link.forward(REQUEST)
        assert refused.value.limit == "forward"
        home.go_on.set()


async def test_one_caller_leaves_places_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_client, "MAX_PENDING", 8)
    home = Home()
    async with linked(home) as link, trio.open_nursery() as nursery:
        nursery.start_soon(link.forward, replace(REQUEST, body=b"wait"), "ada")
        await settle(lambda: link.pending == 1)
        for _ in range(5):
            nursery.start_soon(link.forward, replace(REQUEST, body=b"wait"), "eve")
        await settle(lambda: link.pending == 6)
        with pytest.raises(Overloaded):
            await link.forward(REQUEST, "eve")
        assert isinstance(await link.forward(REQUEST, "ada"), Forwarded)
        home.go_on.set()


async def test_requests_that_were_given_up_do_not_end_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """They still end at the home worker when the next ones arrive."""
    monkeypatch.setattr(link_server, "MAX_RUNNING", 2)
    home = Home()
    async with linked(home) as link:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(link.forward, replace(REQUEST, body=b"wait"))
            await settle(lambda: len(home.requests) == 2)
            answer = await link.forward(replace(REQUEST, body=b"third"))
            assert isinstance(answer, Forwarded)
            assert answer.status == 503
            assert dict(answer.headers)[b"retry-after"] == b"1"
            assert b'"limit":"forward"' in answer.body
            nursery.cancel_scope.cancel()
        await settle(lambda: len(home.cancelled) == 2)
        assert (await link.forward(replace(REQUEST, body=b"fourth"))).body == b"fourth"  # type: ignore[union-attr]


async def test_a_large_answer_passes_and_a_larger_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_ANSWER", 2**21)
    home = Home()
    async with linked(home, asks=identity("asks", max_request=2**20)) as link:
        answers = list[AnswerFrame]()

        async def ask(body: bytes) -> None:
            answers.append(await link.forward(replace(REQUEST, body=body)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, b"wait")
            await settle(lambda: home.requests)
            for factor in (b"twice", b"many times"):
                await ask(factor)
            home.go_on.set()
        assert [answer.status for answer in answers if isinstance(answer, Forwarded)] == [200, 500, 200]
        assert len(home.links) == 3
        assert len(set(map(id, home.links))) == 1


async def test_a_request_that_is_too_large_is_refused_and_does_not_end_the_link() -> None:
    home = Home()
    async with linked(home, asks=identity("asks", max_request=2**20)) as link:
        with pytest.raises(Overloaded):
            await link.forward(replace(REQUEST, body=bytes(2**20)))
        assert isinstance(await link.forward(REQUEST), Forwarded)
        assert len(home.requests) == 1


async def test_a_peer_that_has_not_proved_who_it_is_gets_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "GREET_WITHIN", 600.0)  # it is closed because of the size
    home = Home()
    server = LinkServer(lambda: identity("home"), home.answer)
    async with server.open(CONFIG), await dial(server.address, CONFIG) as stream:
        await stream.receive_some()
        with trio.fail_after(30), pytest.raises(trio.BrokenResourceError):
            await stream.send_all((2**20).to_bytes(4, "big"))
            while True:
                await stream.send_all(bytes(1024))
                await trio.sleep(0.02)


async def test_many_large_answers_wait_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_UNSENT", 1000)
    home = Home()
    async with linked(home) as link:
        answers = list[AnswerFrame]()

        async def ask(body: bytes) -> None:
            answers.append(await link.forward(replace(REQUEST, body=body)))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, b"900")
        assert [len(answer.body) for answer in answers if isinstance(answer, Forwarded)] == [900] * 20


async def test_a_stream_is_detached_though_too_much_waits_to_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    async with linked(home) as link:
        stream = await link.forward(replace(REQUEST, body=b"stream"))
        monkeypatch.setattr(channel, "MAX_UNSENT", 0)
        frames = link._channel
        assert frames is not None
        frames.send_nowait(replace(REQUEST, id=900))
        link.detach(stream.id, "done")
        await settle(lambda: home.detached == ["done"])


async def test_unsent_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_UNSENT", 1000)
    stream, _ = trio.testing.memory_stream_pair()
    frames = FrameChannel(stream, identity("asks"), dialled=True)
    assert frames.send_nowait(replace(REQUEST, body=bytes(5000)))  # one large frame is sent alone
    assert not frames.send_nowait(REQUEST)


def test_frames_are_cut_anywhere() -> None:
    sent = [REQUEST, NotHome(1), Detach(2, "done"), CloseRemote(3, True)]
    data = b"".join(map(pack_frame, sent))
    for size in (1, 3, 7, len(data)):
        found = frames_of(data, size)
        assert found == [replace(REQUEST, headers=[]), *sent[1:]]


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x91\xa0", b"\0\0\0\0"])
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(LinkError):
        frames_of(data)
