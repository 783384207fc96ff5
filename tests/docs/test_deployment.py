"""The files of the deployment pages fit the server: its options, its paths, its deadlines."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcptrio import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import _HEALTH
from tests.docs.test_pages import understand

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
DEFAULTS = HttpConfig()


def commands() -> dict[str, list[str]]:
    docker = re.search(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    service = re.search(r"^ExecStart=(.*)$", (DEPLOY / "orders.service").read_text(), re.MULTILINE)
    assert docker
    assert service
    return {"Dockerfile": json.loads(docker[1]), "orders.service": shlex.split(service[1])}


@pytest.mark.parametrize("name", commands())
def test_the_server_understands_its_command_line(name: str) -> None:
    program, *arguments = commands()[name]
    assert program.rpartition("/")[2] == "mcptrio"
    understand(*arguments)


def test_every_supervisor_waits_longer_than_the_drain() -> None:
    service = (DEPLOY / "orders.service").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    pod = deployment()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    waits = {
        "systemd": float(re.findall(r"^TimeoutStopSec=(\d+)$", service, re.MULTILINE)[0]),
        "compose": float(compose["services"]["orders"]["stop_grace_period"].removesuffix("s")),
        "kubernetes": pod["terminationGracePeriodSeconds"] - before,
    }
    assert {name: wait for name, wait in waits.items() if wait < DEFAULTS.drain_timeout + 1} == {}


def test_every_probe_asks_for_a_path_that_exists() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    paths = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    assert set(paths.values()) <= set(_HEALTH)
    assert f":{DEFAULTS.port}/readyz" in (DEPLOY / "Dockerfile").read_text()
    assert container["ports"][0]["containerPort"] == DEFAULTS.port


def test_the_proxy_allows_what_the_server_allows() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    (timeout,), (body,) = (
        re.findall(r"proxy_read_timeout (\d+)s", text),
        re.findall(r"client_max_body_size (\d+)m", text),
    )
    assert int(timeout) > 2 * DEFAULTS.heartbeat
    assert int(body) * 2**20 >= DEFAULTS.max_body
    assert f"location {DEFAULTS.path} " in text
    assert "proxy_buffering off;" in text


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return found
