"""Many clients with the same ids, and networks that cut at random: each client gets exactly its own messages."""

from __future__ import annotations

import json

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from .app_for_tests import Client, Reader, open_endpoint, request, result_of


async def test_clients_that_use_the_same_ids_never_see_each_others_answers(autojump_clock: MockClock) -> None:
    """Sixty sessions, each asking with the ids 0 to 4, by JSON and by stream, all at once."""
    async with open_endpoint() as endpoint:
        clients = [await Client.open(endpoint) for _ in range(60)]
        found: dict[tuple[str, int], object] = {}

        async def call(client: Client, number: int) -> None:
            canary = f"{client.session_id}/{number}"
            if number % 2:
                found[client.session_id, number] = result_of(await client.post(request(number, "echo", say=canary)))
            else:
                reader = await client.stream(request(number, "count", to=2, every=0.5))
                frames = [json.loads(event.data) for event in await reader.rest()]
                assert [frame.get("id") for frame in frames] == [None, None, number]
                found[client.session_id, number] = {"echo": canary}

        async with trio.open_nursery() as nursery:
            for client in clients:
                for number in range(5):
                    nursery.start_soon(call, client, number)
        assert found == {
            (client.session_id, number): {"echo": f"{client.session_id}/{number}"}
            for client in clients
            for number in range(5)
        }
        assert endpoint.calls == 0


STEPS = st.lists(st.sampled_from(["tell", "cut", "resume", "read", "twice"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
async def test_a_stream_resumed_after_random_cuts_has_every_event_once(steps: list[str]) -> None:
    """The standalone stream of one session, while another gets other events; cut and resumed at random."""
    async with open_endpoint() as endpoint:
        client, other = await Client.open(endpoint), await Client.open(endpoint)
        reader: Reader | None = await client.listen()
        await reader.chunk()
        cursor = reader.raw.split(b"\n")[0].removeprefix(b"id: ").decode()
        sent, seen = 0, []

        async def read_what_is_there() -> None:
            nonlocal cursor
            while reader is not None and len(seen) < sent:
                event = await reader.event()
                assert event is not None
                seen.append(json.loads(event.data)["params"]["n"])
                cursor = event.id

        for step in [*steps, "resume", "read"]:
            match step:
                case "tell":
                    await client.session.asks.notify("notifications/message", {"n": sent})
                    await other.session.asks.notify("notifications/message", {"n": "not yours"})
                    sent += 1
                case "cut":
                    if reader is not None:
                        reader.hang_up()
                    reader = None
                case "resume" | "twice":
                    reader = await client.listen(cursor)
                case "read":
                    await wait_all_tasks_blocked()
                    await read_what_is_there()
        assert seen == list(range(sent))
