"""The files of the deployment pages fit the server: its options, its paths, its deadlines."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcptrio import HttpConfig
from mcptrio.cluster.config import ClusterConfig
from mcptrio.cluster.sockets import open_link_listener
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


def test_the_server_understands_the_arguments_of_a_replica() -> None:
    page = (DEPLOY.parents[1] / "docs" / "howto" / "deploy" / "kubernetes.md").read_text()
    (block,) = re.findall(r"^```yaml\n(args:.*?)^```$", page, re.MULTILINE | re.DOTALL)
    container = yaml.safe_load(block)
    program, *arguments = container["args"]
    assert program == "mcptrio"
    understand(*arguments)
    assert {one["name"] for one in container["env"]} >= set(re.findall(r"\$\((\w+)\)", block))


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


def test_the_image_runs_as_a_user_that_kubernetes_can_check() -> None:
    """`runAsNonRoot` refuses an image whose user is a name, because it cannot know its number."""
    image = (DEPLOY / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (.*)$", image, re.MULTILINE)
    assert deployment()["spec"]["template"]["spec"]["securityContext"] == {"runAsNonRoot": True, "fsGroup": int(user)}
    assert f"--uid {user} " in image


def test_every_volume_claim_is_declared() -> None:
    kinds = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    declared = {one["metadata"]["name"] for one in kinds if one["kind"] == "PersistentVolumeClaim"}
    volumes = deployment()["spec"]["template"]["spec"]["volumes"]
    wanted = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
    assert wanted == declared


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


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """The files that the commands of the page make."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    page = (DEPLOY.parents[1] / "docs" / "howto" / "deploy" / "cluster.md").read_text()
    (block,) = re.findall(r"^```sh\n(openssl .*?)^```$", page, re.MULTILINE | re.DOTALL)
    strict = "openssl verify -x509_strict -CAfile ca.pem worker.pem"  # as Python 3.13 checks them
    for line in (*block.splitlines(), strict):
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True, timeout=60)
    files = {"ca": "ca.pem", "cert": "worker.pem", "key": "worker.key"}
    return {f"forward_{name}": str(tmp_path / file) for name, file in files.items()}


async def test_workers_accept_the_certificates_of_the_page(certificates: dict[str, str]) -> None:
    config = ClusterConfig(forward_address="127.0.0.1:0", **certificates)  # type: ignore[arg-type]
    async with open_link_listener(config) as (_, address):
        assert address.startswith("tcp:127.0.0.1:")


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return found
