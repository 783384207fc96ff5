"""The routing table: its rows, its middleware, and what it makes of exceptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from attrs import evolve, frozen

from mcptrio._actors.incoming import Incoming
from mcptrio._actors.router import CallNext, Route, Router, failure
from mcptrio._peer.messages import Answered, Failed
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    CapabilityMissing,
    DeclarationError,
    LocalProtocolError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)


@frozen(kw_only=True)
class Size:
    width: int
    unit_name: str = "cm"


async def measure(ctx: Any, params: Size) -> Any:
    return params


async def echo(ctx: Any, params: Any) -> Any:
    return params


def test_a_method_has_one_row() -> None:
    router = Router()
    router.add(Route("a", None, echo))
    with pytest.raises(DeclarationError, match="'a'"):
        router.add(Route("a", None, echo))


def test_a_built_in_route_can_be_replaced_once() -> None:
    router = Router()
    router.add_all([Route("a", None, echo)])
    router.add(Route("a", None, measure))
    with pytest.raises(DeclarationError):
        router.add(Route("a", None, echo))
    assert [route.handler for route in router] == [measure]
    assert "a" in router
    assert "b" not in router


@pytest.mark.parametrize("what", ["route", "middleware"])
def test_nothing_is_added_once_serving_has_begun(what: str) -> None:
    async def middleware(ctx: Any, request: Incoming, call_next: CallNext) -> Any:
        return await call_next(ctx, request)

    router = Router()
    router.freeze()
    router.freeze()
    with pytest.raises(DeclarationError, match="before serving"):
        router.add(Route("a", None, echo)) if what == "route" else router.use(middleware)


async def test_params_become_their_type_and_results_the_wire() -> None:
    router = Router()
    router.add(Route("measure", Size, measure))
    assert await router.run("measure", {"width": 3}, None) == Answered(msgspec.Raw(b'{"width":3,"unitName":"cm"}'))


async def test_params_that_do_not_fit_are_refused_with_their_path() -> None:
    router = Router()
    router.add(Route("measure", Size, measure))
    outcome = await router.run("measure", {"width": "3"}, None)
    assert isinstance(outcome, Failed)
    assert outcome.code == INVALID_PARAMS
    assert "params.width" in outcome.message


async def test_a_handler_that_returns_none_answers_with_an_empty_object() -> None:
    async def nothing(ctx: Any, params: Any) -> None:
        return None

    router = Router()
    router.add(Route("nothing", None, nothing))
    assert await router.run("nothing", {}, None) == Answered(msgspec.Raw(b"{}"))


async def test_middleware_wraps_in_the_order_it_was_added_and_may_change_the_request() -> None:
    story: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: Any, request: Incoming, call_next: CallNext) -> Any:
            story.append(f"{name} in")
            result = await call_next(ctx, evolve(request, params={**request.params, name: True}))
            story.append(f"{name} out")
            return result

        return middleware

    router = Router()
    router.add(Route("echo", None, echo))
    router.add(Route("now", None, lambda ctx, params: params, inline=True))
    router.use(named("outer"))
    router.use(named("inner"))
    router.freeze()
    assert await router.run("echo", {}, None) == Answered(msgspec.Raw(b'{"outer":true,"inner":true}'))
    assert story == ["outer in", "inner in", "inner out", "outer out"]
    assert await router.run("now", {}, None) == Answered(msgspec.Raw(b'{"outer":true,"inner":true}'))


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (RemoteProtocolError("bad", code=-9, http_status=418), -9, "bad"),
        (CapabilityMissing("no sampling", required={"sampling": {}}), MISSING_CLIENT_CAPABILITY, "no sampling"),
        (Overloaded("busy", retry_after=3), INTERNAL_ERROR, "overloaded: busy"),
        (RequestTimeout("late"), INTERNAL_ERROR, "late"),
        (LocalProtocolError("not now"), INTERNAL_ERROR, "not now"),
        (KeyError("secret"), INTERNAL_ERROR, "internal error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_becomes_a_jsonrpc_error_with_a_safe_message(error: Exception, code: int, says: str) -> None:
    outcome = failure(error, "a")
    assert (outcome.code, outcome.message) == (code, says)


def test_details_that_are_meant_for_the_peer_travel_along() -> None:
    assert failure(CapabilityMissing("x", required={"a": {}}), "m").data == {"requiredCapabilities": {"a": {}}}
    assert failure(Overloaded("x", retry_after=3), "m").http_status == 503
    assert failure(RemoteProtocolError("x", http_status=418), "m").http_status == 418


async def test_a_cancellation_passes_through_the_guard() -> None:
    async def forever(ctx: Any, params: Any) -> None:
        await trio.sleep_forever()

    router = Router()
    router.add(Route("forever", None, forever))
    with trio.move_on_after(0) as scope:
        await router.run("forever", {}, None)
    assert scope.cancelled_caught
