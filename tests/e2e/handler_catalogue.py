"""Handler bodies that do what Trio allows in a task, and some things that it does not allow.

Each body takes `note`, which records what it observes, and is run as a plain Trio task and as a tool. Its outcome and
its notes must be the same in both. `CATALOGUE` lists the bodies by name.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from types import coroutine
from typing import NoReturn

import sniffio
import trio

from mcptrio import ToolError

Note = Callable[[object], None]
Body = Callable[[Note], Awaitable[str]]

CATALOGUE: dict[str, Body] = {}
BROKEN: dict[str, Body] = {}
"""Bodies that break Trio's rules. A plain task that does so makes its nursery fail; a tool may end its own session."""

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")
turns: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("turns", 0)
SHORT = 0.002
checkpoint = trio.lowlevel.checkpoint


def row(body: Body) -> Body:
    CATALOGUE[body.__name__] = body
    return body


def broken(body: Body) -> Body:
    BROKEN[body.__name__] = body
    return body


# -- returning and raising


@row
async def return_at_once(note: Note) -> str:
    return "here"


@row
async def pass_a_checkpoint(note: Note) -> str:
    await checkpoint()
    return "there"


@row
async def sleep_twice(note: Note) -> str:
    for _ in range(2):
        await trio.sleep(SHORT)
        note("awake")
    return "slept"


@row
async def return_a_large_text(note: Note) -> str:
    await checkpoint()
    return "x" * 500_000


@row
async def raise_at_once(note: Note) -> str:
    raise ZeroDivisionError("a bug")


@row
async def raise_after_a_wait(note: Note) -> str:
    await checkpoint()
    raise ToolError("no such thing")


@row
async def raise_a_group(note: Note) -> str:
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])


@row
async def raise_in_two_children(note: Note) -> str:
    async def child() -> NoReturn:
        await checkpoint()
        raise OSError("gone")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        nursery.start_soon(child)
    return "unreached"


@row
async def raise_stop_iteration(note: Note) -> str:
    raise StopIteration("an iterator that was not guarded")


@row
async def raise_stop_async_iteration(note: Note) -> str:
    await checkpoint()
    raise StopAsyncIteration


@row
async def raise_system_exit(note: Note) -> str:
    sys.exit(3)


@row
async def raise_system_exit_after_a_wait(note: Note) -> str:
    await checkpoint()
    sys.exit("done")


@row
async def raise_generator_exit(note: Note) -> str:
    raise GeneratorExit


@row
async def raise_generator_exit_after_a_wait(note: Note) -> str:
    await checkpoint()
    raise GeneratorExit


@row
async def raise_cancelled_of_asyncio(note: Note) -> str:
    await checkpoint()
    raise asyncio.CancelledError


@row
async def raise_keyboard_interrupt_in_a_child(note: Note) -> str:
    async def child() -> NoReturn:
        await checkpoint()
        raise KeyboardInterrupt

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    return "unreached"


async def _caught() -> trio.Cancelled:
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


@row
async def raise_a_foreign_cancelled(note: Note) -> str:
    raise await _caught()


@row
async def raise_a_foreign_cancelled_in_a_child(note: Note) -> str:
    async def child() -> NoReturn:
        raise await _caught()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    return "unreached"


@row
async def use_an_asyncio_library(note: Note) -> str:
    await asyncio.sleep(0.1)
    return "unreached"


@row
async def swallow_everything(note: Note) -> str:
    for error in (ValueError(), SystemExit(), GeneratorExit(), BaseExceptionGroup("g", [KeyboardInterrupt()])):
        try:
            await checkpoint()
            raise error
        except BaseException as caught:
            note(type(caught).__name__)
    return "fine"


@row
async def recurse_for_ever(note: Note) -> str:
    async def deeper() -> None:
        await deeper()

    try:
        await deeper()
    except RecursionError:
        note("too deep")
        await checkpoint()
        raise
    return "unreached"


@row
async def recurse_deeply_and_wait(note: Note) -> str:
    async def deeper(levels: int) -> int:
        if not levels:
            await trio.sleep(SHORT)
            return 0
        return 1 + await deeper(levels - 1)

    return str(await deeper(300))


# -- cancellation


@row
async def leave_a_scope_by_its_deadline(note: Note) -> str:
    with trio.move_on_after(SHORT) as scope:
        await trio.sleep_forever()
    note(scope.cancelled_caught)
    await checkpoint()
    return "went on"


@row
async def fail_by_a_deadline(note: Note) -> str:
    with trio.fail_after(SHORT):
        await trio.sleep_forever()
    return "unreached"


@row
async def cancel_itself_at_once(note: Note) -> str:
    with trio.CancelScope() as scope:
        scope.cancel()
        note(trio.current_effective_deadline())
        await trio.sleep_forever()
    note(scope.cancelled_caught)
    return "went on"


@row
async def be_cancelled_by_a_child(note: Note) -> str:
    async with trio.open_nursery() as nursery:

        async def child() -> None:
            await trio.sleep(SHORT)
            nursery.cancel_scope.cancel()

        nursery.start_soon(child)
        try:
            await trio.sleep_forever()
        finally:
            note("cleaned up")
    return "went on"


@row
async def clean_up_behind_a_shield(note: Note) -> str:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        finally:
            with trio.move_on_after(1, shield=True) as shield:
                await trio.sleep(SHORT)
                note("closed")
            note(shield.cancelled_caught)
    return "went on"


@row
async def swallow_its_own_cancellation(note: Note) -> str:
    with trio.CancelScope() as scope:
        scope.cancel()
        for _ in range(3):
            try:
                await checkpoint()
            except trio.Cancelled:
                note("again")
    note(scope.cancelled_caught)
    return "went on"


@row
async def look_at_deadlines(note: Note) -> str:
    outer = trio.current_effective_deadline()
    with trio.move_on_after(1000):  # noqa: ASYNC100
        note(trio.current_effective_deadline() <= outer)
        with trio.move_on_after(SHORT) as near:  # noqa: ASYNC100
            note(trio.current_effective_deadline() == near.deadline)
            near.deadline += 0.001
            note(trio.current_effective_deadline() == near.deadline)
        with trio.CancelScope(shield=True):  # noqa: ASYNC100
            note(trio.current_effective_deadline())
    note(trio.current_effective_deadline() == outer)
    await trio.lowlevel.checkpoint_if_cancelled()
    return "looked"


@row
async def cross_two_scopes_in_order(note: Note) -> str:
    async with AsyncExitStack() as stack:
        scopes = [stack.enter_context(trio.move_on_after(10)) for _ in range(3)]
        scopes[1].cancel()
        try:
            await checkpoint()
        except trio.Cancelled:
            note([scope.cancel_called for scope in scopes])
            raise
    note([scope.cancelled_caught for scope in scopes])
    return "went on"


@row
async def close_scopes_in_the_wrong_order(note: Note) -> str:
    first, second = trio.CancelScope(), trio.CancelScope()
    with suppress(RuntimeError):
        first.__enter__()
        second.__enter__()
        try:
            first.__exit__(None, None, None)
        except RuntimeError:
            note("misnested")
    return "went on"


@broken
async def leave_a_scope_open(note: Note) -> str:
    trio.move_on_after(1000).__enter__()
    return "left it"


@broken
async def leave_a_scope_open_after_a_wait(note: Note) -> str:
    await checkpoint()
    trio.move_on_after(SHORT).__enter__()
    return "left it"


@broken
async def leave_a_nursery_open(note: Note) -> str:
    await trio.open_nursery().__aenter__()
    return "left it"


@broken
async def leave_a_nursery_open_in_which_tasks_run(note: Note) -> str:
    nursery = await trio.open_nursery().__aenter__()
    nursery.start_soon(trio.sleep_forever)
    await checkpoint()
    return "left it"


@broken
async def leave_nested_nurseries_open(note: Note) -> str:
    for _ in range(2):
        nursery = await trio.open_nursery().__aenter__()
        nursery.start_soon(trio.sleep_forever)
    raise ZeroDivisionError


@broken
async def leave_a_generator_open_that_has_a_nursery(note: Note) -> str:
    async def numbers() -> AsyncIterator[int]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield 1
            yield 2

    async for _ in numbers():
        break
    return "left it"


# -- children


@row
async def nest_nurseries(note: Note) -> str:
    async def child(level: int) -> None:
        await checkpoint()
        if level:
            async with trio.open_nursery() as inner:
                inner.start_soon(child, level - 1)
        note(level)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child, 3)
    return "all left"


@row
async def start_children_and_wait_for_them(note: Note) -> str:
    async def child(*, task_status: trio.TaskStatus[str]) -> None:
        await checkpoint()
        task_status.started("ready")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        note(await nursery.start(child))
        note(len(nursery.child_tasks))
        nursery.cancel_scope.cancel()
    return "started"


@row
async def start_children_and_return_at_once(note: Note) -> str:
    async def child() -> None:
        note("child")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    return "left"


@row
async def look_at_its_children(note: Note) -> str:
    task = trio.lowlevel.current_task()
    note(task.child_nurseries)
    async with trio.open_nursery() as nursery:
        note(task.child_nurseries == [nursery])
        note(nursery.parent_task is task)
    await checkpoint()
    note(trio.lowlevel.current_task() is task)
    return "looked"


@row
async def look_at_its_name(note: Note) -> str:
    note(trio.lowlevel.current_task().name.partition(" · ")[0])
    await checkpoint()
    note(trio.lowlevel.current_task().name.partition(" · ")[0])
    return "looked"


@row
async def send_through_channels(note: Note) -> str:
    send, receive = trio.open_memory_channel[int](0)

    async def produce() -> None:
        async with send:
            for number in range(5):
                await send.send(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        return ",".join([str(number) async for number in receive])


@row
async def use_a_system_task(note: Note) -> str:
    done = trio.Event()

    async def system() -> None:
        await checkpoint()
        note(color.get())
        done.set()

    color.set("red")
    trio.lowlevel.spawn_system_task(system)
    await done.wait()
    return "done"


# -- context variables


@row
async def set_context_variables(note: Note) -> str:
    note(color.get())  # a call must not see what an earlier one set
    color.set("green")
    await checkpoint()
    note(color.get())
    return color.get()


@row
async def set_context_variables_and_return_at_once(note: Note) -> str:
    note(color.get())
    color.set("blue")
    return color.get()


@row
async def pass_context_variables_on(note: Note) -> str:
    async def child() -> None:
        note(color.get())
        color.set("child's")

    token = color.set("parent's")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    note(color.get())
    color.reset(token)
    note(await trio.to_thread.run_sync(color.get))
    contextvars.copy_context().run(color.set, "copied")
    return color.get()


@row
async def keep_a_run_variable(note: Note) -> str:
    token = turns.set(1)
    await checkpoint()
    note(turns.get())
    turns.reset(token)
    return str(turns.get())


# -- threads


@row
async def work_in_a_thread(note: Note) -> str:
    def work() -> str:
        note(trio.from_thread.run_sync(color.get))
        trio.from_thread.run(trio.sleep, SHORT)
        trio.from_thread.check_cancelled()
        note(sniffio_name())
        return color.get()

    color.set("thread's")
    return await trio.to_thread.run_sync(work)


@row
async def cancel_a_thread(note: Note) -> str:
    def work() -> None:
        note("begun")
        trio.from_thread.run_sync(scope.cancel)
        try:
            while True:  # the thread goes on before its task waits again, and only then is the task cancelled
                trio.from_thread.check_cancelled()
                time.sleep(0.001)
        except trio.Cancelled:
            note("noticed")
            raise

    with trio.CancelScope() as scope:
        await trio.to_thread.run_sync(work)
    note(scope.cancelled_caught)
    return "went on"


@row
async def abandon_a_thread(note: Note) -> str:
    with trio.move_on_after(SHORT) as scope:
        await trio.to_thread.run_sync(trio.from_thread.run, trio.sleep_forever, abandon_on_cancel=True)
    note(scope.cancelled_caught)
    return "went on"


@row
async def raise_in_a_thread(note: Note) -> str:
    await trio.to_thread.run_sync(sys.exit, "in a thread")
    return "unreached"


@row
async def run_trio_in_a_thread(note: Note) -> str:
    async def main() -> str:
        await trio.sleep(SHORT)
        return "inner"

    try:
        trio.run(main)
    except RuntimeError as error:
        note(str(error))
    return await trio.to_thread.run_sync(trio.run, main)


# -- generators


async def _numbers(note: Note) -> AsyncIterator[int]:
    try:
        for number in range(10):
            yield number
            await checkpoint()
    finally:
        note("closed")


@row
async def close_a_generator(note: Note) -> str:
    async with aclosing(_numbers(note)) as numbers:  # type: ignore[type-var]
        async for number in numbers:
            if number == 2:
                break
    return "closed"


@row
async def leave_a_generator_open(note: Note) -> str:
    async for number in _numbers(note):
        if number == 1:
            break
    return "left"


@row
async def hold_a_scope_in_a_context_manager(note: Note) -> str:
    @asynccontextmanager
    async def limited() -> AsyncIterator[trio.Nursery]:
        with trio.move_on_after(SHORT) as scope:
            async with trio.open_nursery() as nursery:
                yield nursery
        note(scope.cancelled_caught)

    async with limited() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await trio.sleep_forever()
    return "went on"


# -- synchronization and low-level functions


@row
async def wait_for_a_lock(note: Note) -> str:
    lock, limiter, lot = trio.Lock(), trio.CapacityLimiter(1), trio.lowlevel.ParkingLot()

    async def child() -> None:
        async with lock, limiter:
            note("child has both")
        lot.unpark_all()

    async with trio.open_nursery() as nursery:
        async with lock, limiter:
            nursery.start_soon(child)
            await trio.sleep(SHORT)
            note("parent has both")
            note(lock.statistics().owner is trio.lowlevel.current_task())
        await lot.park()
    return "unparked"


@row
async def enter_a_lock_twice(note: Note) -> str:
    lock = trio.Lock()
    async with lock:
        try:
            await lock.acquire()
        except RuntimeError:
            note("not again")
    return "refused"


@row
async def keep_a_lock(note: Note) -> str:
    lock = trio.Lock()

    async def child() -> None:
        await lock.acquire()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    await lock.acquire()
    return "unreached"


@row
async def wait_to_be_rescheduled(note: Note) -> str:
    task = trio.lowlevel.current_task()
    trio.lowlevel.current_trio_token().run_sync_soon(trio.lowlevel.reschedule, task)
    note(await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED))
    await trio.lowlevel.cancel_shielded_checkpoint()
    return "resumed"


@row
async def detach_its_coroutine(note: Note) -> str:
    @coroutine
    def give(value: object) -> Generator[object, object, object]:
        return (yield value)

    task = trio.lowlevel.current_task()

    def drive() -> None:
        note(task.context.run(task.coro.send, "driven"))
        note(task.context.run(task.coro.send, None))

    trio.lowlevel.current_trio_token().run_sync_soon(drive)
    note(await trio.lowlevel.temporarily_detach_coroutine_object(lambda _: trio.lowlevel.Abort.FAILED))
    await give("outside")
    await trio.lowlevel.reattach_detached_coroutine_object(task, "back")
    await trio.sleep(SHORT)
    return "attached"


def sniffio_name() -> str:
    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return "none"


@row
async def ask_for_the_library(note: Note) -> str:
    note(sniffio_name())
    await checkpoint()
    note(trio.lowlevel.in_trio_run() and trio.lowlevel.in_trio_task())
    return sniffio_name()


@row
async def call_itself(note: Note) -> str:
    inner: list[object] = []
    async with trio.open_nursery() as nursery:
        for body in (pass_a_checkpoint, nest_nurseries, set_context_variables):
            nursery.start_soon(body, inner.append)
    note(len(inner))
    return await ask_for_the_library(note)


@row
async def read_its_own_stack(note: Note) -> str:
    frame = sys._getframe()
    note(frame.f_code.co_name)
    seen: list[str] = []
    task = trio.lowlevel.current_task()

    async def child() -> None:
        seen.extend(frame.f_code.co_name for frame, _ in task.iter_await_frames())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    note("read_its_own_stack" in seen)
    return "read"
