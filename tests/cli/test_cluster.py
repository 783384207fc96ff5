"""`mcptrio cluster` against a real server: what it lists, and what it says if it cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio.cli import main
from mcptrio.stores.redis import listing
from mcptrio.stores.redis.keys import Keys
from tests.cluster.two_workers import two_workers
from tests.redis_server import running_server
from tests.transports.app_for_tests import Client

Said = pytest.CaptureFixture[str]


def listed(capsys: Said, url: str, *more: str) -> dict[str, Any]:
    assert main(["cluster", url, "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Said, *arguments: str) -> tuple[int, str]:
    code = main(["cluster", *arguments])
    out, line = capsys.readouterr()
    assert out == ""
    assert line.startswith("mcptrio: ")
    assert line.count("\n") == 1
    return code, line


async def run_command(*arguments: str) -> str:
    done = await trio.run_process((sys.executable, "-m", "mcptrio", "cluster", *arguments), capture_stdout=True)
    return done.stdout.decode()


async def test_workers_and_sessions_are_listed() -> None:
    with running_server() as redis:
        url = redis.url
        async with two_workers(url) as (one, other):
            client = await Client.open(one.endpoint)
            await one.store.flush()
            found = json.loads(await run_command(url, "--json"))
            table = await run_command(url)
            assert [worker["id"] for worker in found["workers"]] == [one.id, other.id]
            assert [worker["slot"] for worker in found["workers"]] == ["1", "2"]
            assert {worker["server"] for worker in found["workers"]} == {"orders"}
            assert all(0 < worker["leaseSeconds"] <= 60 and worker["address"] for worker in found["workers"])
            (shown,) = found["sessions"]
            assert 0 < shown.pop("expiresSeconds") <= one.store.limits.session_age
            wanted = {"id": client.session_id[:8], "home": one.id, "epoch": 0, "pinned": False, "idle": False}
            assert shown == wanted
            assert found["moreSessions"] is False
            assert "Workers (2)" in table
            assert "Sessions (1)" in table
            assert other.id in table
            assert client.session_id not in table
        assert json.loads(await run_command(url, "--json"))["workers"] == []  # they have left
        assert "No worker is running." in await run_command(url)


def test_an_idle_session_has_no_home_and_the_output_is_bounded(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server() as redis:
        keys = Keys("shop")
        redis.command("SET", keys.secret, "x" * 32)
        for number in range(30):
            redis.command("HSET", keys.session(f"s{number:02}"), "home", "", "epoch", 3, "pinned", number % 2)
            redis.command("PEXPIRE", keys.session(f"s{number:02}"), 60_000)
        url = f"redis+unix://{redis.path}?name=shop"
        first, *rest = listed(capsys, url)["sessions"]
        assert len(rest) == 29
        assert 0 < first.pop("expiresSeconds") <= 60
        assert first == {"id": "s00", "home": None, "epoch": 3, "pinned": False, "idle": True}
        some = listed(capsys, url, "--limit", "7")
        assert (len(some["sessions"]), some["moreSessions"]) == (7, True)
        assert main(["cluster", url, "--limit", "7"]) == 0
        assert "Sessions (7, and more: see --limit)" in capsys.readouterr().out
        monkeypatch.setattr(listing, "BATCH", 10)
        monkeypatch.setattr(listing, "MAX_SCANS", 1)
        assert listed(capsys, url)["moreSessions"] is True  # not all keys were looked at


def test_a_cluster_that_cannot_be_listed_is_reported_in_one_line(
    capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, line = refused(capsys, f"redis+unix://{tmp_path}/none.sock")
    assert code == 3
    assert "cannot reach the Redis server" in line
    with running_server("--requirepass", "right") as redis:
        code, line = refused(capsys, f"redis+unix://:wrong-one@{redis.path}")
        assert code == 3
        assert "refused user 'default': check name and password" in line
        assert "wrong-one" not in line
        (tmp_path / "password").write_text("right\n")
        monkeypatch.setenv("MCPTRIO_STORE_PASSWORD_FILE", str(tmp_path / "password"))
        (tmp_path / "password").chmod(0o640)
        assert main(["cluster", f"redis+unix://{redis.path}?name=shop"]) == 2
        assert f"chmod 600 {tmp_path / 'password'}\n" in capsys.readouterr().err
        (tmp_path / "password").chmod(0o600)
        assert refused(capsys, f"redis+unix://{redis.path}?name=shop") == (
            2,
            f"mcptrio: no cluster has the name 'shop' in {redis.path}; there is none\n",
        )


def test_other_names_are_suggested(capsys: Said) -> None:
    with running_server() as redis:
        redis.command("SET", Keys("shop").secret, "x" * 32)
        redis.command("SET", "mcptrio:other", "1")
        _, line = refused(capsys, f"redis+unix://{redis.path}?name=shops")
        assert line.endswith("there are: shop; choose one with ?name=\n")
