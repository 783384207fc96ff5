"""The typed keywords agree with the classes and functions that take them."""

from __future__ import annotations

import inspect
import socket
import sys
from collections.abc import Mapping
from typing import Any, get_type_hints

import attrs
import pytest

import mcptrio.client.client
import mcptrio.client.config
import mcptrio.client.options
import mcptrio.server.options
import mcptrio.server.program
import mcptrio.transports.http_server.config
from mcptrio import Client, HttpConfig, Server
from mcptrio.client import ClientConfig
from mcptrio.client.options import ClientOptions, ClientSettings
from mcptrio.server.app import App
from mcptrio.server.options import RunOptions
from mcptrio.transports.http_server.options import HttpOptions


def hints(typed: type) -> dict[str, Any]:
    found = get_type_hints(typed)
    assert typed.__total__ is False, "every option may be left out"  # type: ignore[attr-defined]
    return found


def parameters(fn: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The types of a function's keywords."""
    found = get_type_hints(fn, {**vars(sys.modules[fn.__module__]), **names})
    kinds = {name: parameter.kind for name, parameter in inspect.signature(fn).parameters.items()}
    return {name: found[name] for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_http_options_are_the_fields_of_the_http_config() -> None:
    # `__init__` has the types that may be passed; a converter makes the field's own type from them.
    taken = parameters(HttpConfig.__init__, vars(mcptrio.transports.http_server.config))
    assert hints(HttpOptions) == taken, "write the change of HttpConfig into http_server/options.py too"
    assert list(hints(HttpOptions)) == [field.name for field in attrs.fields(HttpConfig)]


def test_the_options_of_run_are_those_of_http_and_its_own() -> None:
    names = {"App": App, "socket": socket.socket} | vars(mcptrio.server.options)
    own = parameters(mcptrio.server.program.run, names)
    private = {"fds", "parent", "sockets"}
    assert {"drain_timeout": float, **hints(RunOptions)} == hints(HttpOptions) | {
        name: kind for name, kind in own.items() if name not in private
    }


def test_the_client_settings_are_the_fields_of_the_config_that_the_client_does_not_name() -> None:
    fields = parameters(ClientConfig.__init__, vars(mcptrio.client.config))
    named = inspect.signature(Client).parameters
    assert hints(ClientSettings) == {name: kind for name, kind in fields.items() if name not in named}


def test_the_client_options_are_the_keywords_of_the_client() -> None:
    names = vars(mcptrio.client.client) | vars(mcptrio.client.options)
    assert hints(ClientOptions) == parameters(Client.__init__, names) | hints(ClientSettings)


def test_a_setting_that_does_not_exist_is_named_when_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("shop")
    with pytest.raises(mcptrio.DeclarationError, match=r"unknown HTTP setting prot; did you mean port\?"):
        server.run("http", prot=3)  # type: ignore[call-arg]
    with pytest.raises(mcptrio.DeclarationError, match=r"unknown HTTP setting prot; did you mean port\?"):
        server.asgi(prot=3)  # type: ignore[call-arg]
    with pytest.raises(mcptrio.DeclarationError, match=r"a client has no setting 'tiemout'; did you mean timeout\?"):
        mcptrio.connect(server, tiemout=3)  # type: ignore[call-arg]


# What is documented in docs/reference/api.md; what the runtime needs is behind `_app`.
PUBLIC = {
    *("info", "capabilities", "tool", "add_tool", "remove_tool", "resource", "add_resource", "remove_resource"),
    *("prompt", "add_prompt", "remove_prompt", "session", "on_roots_changed", "route", "use", "include", "on_event"),
    *("add_extension", "notify_tools_changed", "notify_prompts_changed", "notify_resources_changed"),
    *(
        "notify_resource_updated",
        "broadcast",
        "on_broadcast",
        "serve",
        "serve_stdio",
        "serve_http",
        "asgi",
        "run",
        "open_memory_link",
    ),
}


def test_a_server_shows_its_documented_names_only() -> None:
    assert {name for name in dir(Server("shop")) if not name.startswith("_")} == PUBLIC
    assert {name for name in vars(Server("shop")) if not name.startswith("_")} == set()
