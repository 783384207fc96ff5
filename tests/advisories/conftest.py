"""The servers of the catalogue of bad inputs."""

from __future__ import annotations

from tests.bad_inputs.conftest import piped_servers, servers, servers_of_engines

__all__ = ["piped_servers", "servers", "servers_of_engines"]
