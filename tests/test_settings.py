"""Every public setting is checked where it is set: a wrong type or number is refused with a text that names it."""

from __future__ import annotations

import decimal
import enum
import fractions
import inspect
import itertools
import math
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, get_args, get_type_hints

import attrs
import pytest
import trio
import trustme

from mcptrio import Cache, DeclarationError, HttpConfig, Limits, Reconnect, Server, connect
from mcptrio._settings import check_value
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio.auth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
from mcptrio.auth.server import BearerAuth, ClientCertificates, Introspection, Principal, StaticTokens
from mcptrio.client import ClientConfig
from mcptrio.client.options import ClientOptions
from mcptrio.cluster.config import ClusterConfig
from mcptrio.extensions.apps import Ui
from mcptrio.extensions.tasks import Tasks
from mcptrio.server.checks import check_pipe
from mcptrio.server.features.tool_declaration import ToolDefaults
from mcptrio.server.options import RunOptions
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.stores.redis import RedisStore
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_client import HttpClientConfig
from mcptrio.transports.http_server.options import HttpOptions
from mcptrio.transports.retry import Retries
from mcptrio.types import Implementation
from tests.auth.server import kit

ISSUER = "https://login.example.org"
URL = "http://127.0.0.1:1/mcp"
server = Server("settings")


class Wrong:
    """A value of no setting's type."""


def parameters(fn: Callable[..., Any], *more: type) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [name for name, each in inspect.signature(fn).parameters.items() if each.kind in kinds]
    return [*named, *(name for each in more for name in each.__annotations__)]


def filled(make: Callable[..., Any], **needed: Any) -> Callable[..., Any]:
    return lambda **given: make(**{**needed, **given})


CLASSES: list[tuple[str, Callable[..., Any], type]] = [
    ("HttpConfig", HttpConfig, HttpConfig),
    ("ClientConfig", filled(ClientConfig, info=Implementation(name="host", version="1")), ClientConfig),
    ("HttpClientConfig", HttpClientConfig, HttpClientConfig),
    ("Reconnect", Reconnect, Reconnect),
    ("Limits", Limits, Limits),
    ("JsonLimits", JsonLimits, JsonLimits),
    ("StoreLimits", StoreLimits, StoreLimits),
    ("ClusterConfig", ClusterConfig, ClusterConfig),
    ("BearerAuth", kit.settings, BearerAuth),
    (
        "Introspection",
        filled(Introspection, url=f"{ISSUER}/i", client_id="api", client_secret="secret"),
        Introspection,
    ),
    ("Tasks", Tasks, Tasks),
    ("Cache", Cache, Cache),
]
OTHERS: list[tuple[str, Callable[..., Any], Iterable[str]]] = [
    ("Server", filled(Server, name="x"), parameters(Server, ToolDefaults)),
    ("asgi", server.asgi, parameters(server.asgi, HttpOptions)),
    ("connect", lambda **given: connect(URL, **given), get_type_hints(ClientOptions)),
    ("MemoryStore", MemoryStore, ["limits"]),
    ("SqliteStore", filled(SqliteStore, path="unused.db"), parameters(SqliteStore)),
    ("RedisStore", filled(RedisStore.from_url, url="redis://127.0.0.1"), parameters(RedisStore.from_url)),
    ("StaticTokens", filled(StaticTokens, tokens={"a" * 32: "ada"}), ["tokens", "required_scopes"]),
    ("ClientCertificates", filled(ClientCertificates, principals={}), ["principals", "required_scopes"]),
    ("Principal", filled(Principal, subject="ada"), ["subject", "client_id", "issuer", "scopes"]),
    ("Ui", filled(Ui, uri="ui://page"), parameters(Ui)),
    ("OAuth", OAuth, {*parameters(OAuth)} - {"private_key", "client_secret"} | {"dpop", "verify", "trusted_hosts"}),
    (
        "ClientCredentials",
        filled(ClientCredentials, client_id="api", client_secret="secret", issuer=ISSUER),
        ["client_id", "client_secret", "private_key", "issuer", "scopes"],
    ),
    (
        "WorkloadIdentity",
        filled(WorkloadIdentity, client_id="api", assertion="jwt"),
        ["client_id", "assertion", "issuer", "scopes"],
    ),
    (
        "EnterpriseManaged",
        filled(EnterpriseManaged, client_id="api", idp_client_id="a", idp_issuer=ISSUER, id_token="jwt"),
        parameters(EnterpriseManaged),
    ),
]


def wrong_types() -> Iterator[Any]:
    for label, make, cls in CLASSES:
        yield from (pytest.param(make, name, id=f"{label}-{name}") for name in parameters(cls))
    for label, make, names in OTHERS:
        yield from (pytest.param(make, name, id=f"{label}-{name}") for name in sorted(names))


def numbers() -> Iterator[Any]:
    for label, make, cls in CLASSES:
        hints = get_type_hints(cls)
        for name in parameters(cls):
            kinds = {hints[name], *get_args(hints[name])}
            if kinds & {int, float}:
                yield pytest.param(make, name, int in kinds, id=f"{label}-{name}")


@pytest.mark.parametrize(("make", "name"), [*wrong_types()])
def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_setting(make: Callable[..., Any], name: str) -> None:
    with pytest.raises(DeclarationError, match=name):
        make(**{name: Wrong()})


@pytest.mark.parametrize(("make", "name", "whole"), [*numbers()])
def test_a_number_that_cannot_be_meant_is_refused(make: Callable[..., Any], name: str, whole: bool) -> None:
    for value in ("5", True, math.nan, -1, *((2.5,) if whole else ())):
        with pytest.raises(DeclarationError, match=name):
            make(**{name: value})


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
@pytest.mark.parametrize("name", ["json_limits", "drain_timeout", "store", "protocols", "state_keys"])
def test_run_refuses_a_wrong_setting_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, transport: Any, name: str
) -> None:
    monkeypatch.setattr(trio, "run", lambda *_: pytest.fail("it started"))
    with pytest.raises(DeclarationError, match=name):
        server.run(transport, **{name: 5 if name != "drain_timeout" else "5"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in RunOptions.__annotations__ if name in HttpOptions.__annotations__])
def test_run_refuses_a_wrong_http_setting_before_it_starts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(trio, "run", lambda *_: pytest.fail("it started"))
    with pytest.raises(DeclarationError, match=name):
        server.run("http", **{name: Wrong()})  # type: ignore[arg-type]


@pytest.mark.parametrize("serve", ["serve_stdio", "serve", "serve_http"])
@pytest.mark.parametrize("name", ["store", "stop", "drain_timeout", "json_limits", "auth", "cluster"])
async def test_serving_refuses_a_wrong_setting(serve: str, name: str) -> None:
    if serve != "serve_http" and name in ("auth", "cluster"):
        pytest.skip("a setting of HTTP only")
    link = (None,) if serve == "serve" else ()
    with trio.fail_after(60), pytest.raises(DeclarationError, match=name):
        await getattr(server, serve)(*link, **{name: Wrong()})


def test_the_text_says_what_is_allowed() -> None:
    with pytest.raises(DeclarationError, match=r"HttpConfig\.json_limits must be a JsonLimits, got an int$"):
        HttpConfig(json_limits=5)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"ClientConfig\.json_limits must be a JsonLimits, got an int$"):
        connect(server, json_limits=5)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"HttpConfig\.rate must be a number or None, got 'x'$"):
        HttpConfig(rate="x")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"HttpConfig\.engine must be 'hypercorn' or 'direct', got 'fast'$"):
        HttpConfig(engine="fast")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"write roots=\['/srv'\]"):
        connect(server, roots="/srv")


def test_the_text_names_the_part_that_is_wrong() -> None:
    with pytest.raises(
        DeclarationError,
        match=r"headers must be a mapping from strings to strings or None, got a dict that holds an int$",
    ):
        connect(URL, headers={"X-Count": 5})  # type: ignore[dict-item]
    with pytest.raises(
        DeclarationError,
        match=r"visibility must be a list of 'model' or 'app' or None, got a tuple that holds 'human'$",
    ):
        Ui("ui://page", visibility=["human"])  # type: ignore[list-item]
    with pytest.raises(DeclarationError, match=r"visibility must be a list of 'model' or 'app' or None, got a str$"):
        Ui("ui://page", visibility="model")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"must be an httpx2\.AsyncClient or None, got an httpx\.AsyncClient$"):
        connect(URL, http_client=type("AsyncClient", (), {"__module__": "httpx._client"})())


SECRET = "sk-live-SECRET"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Introspection(url=f"{ISSUER}/i", client_id="api", client_secret=SECRET.encode()),  # type: ignore[arg-type]
        lambda: Introspection(url=f"{ISSUER}/i", client_id="api", client_secret=[SECRET]),  # type: ignore[arg-type]
        lambda: StaticTokens(SECRET),  # type: ignore[arg-type]
        lambda: StaticTokens({"a" * 32: [SECRET]}),  # type: ignore[dict-item]
        lambda: ClientCertificates(SECRET),  # type: ignore[arg-type]
        lambda: OAuth(client_id="host", private_key=SECRET),  # type: ignore[arg-type]
        lambda: connect(URL, headers=f"Bearer {SECRET}"),  # type: ignore[arg-type]
        lambda: connect(URL, headers={"Authorization": [SECRET]}),  # type: ignore[dict-item]
        lambda: connect(["server"], env=f"API_KEY={SECRET}"),  # type: ignore[arg-type]
        lambda: connect(URL, auth=SECRET),  # type: ignore[arg-type]
        lambda: server.asgi(auth=SECRET),  # type: ignore[arg-type]
        lambda: server.asgi(auth={"token": SECRET}),  # type: ignore[arg-type]
        lambda: server.asgi(store={"url": f"redis://user:{SECRET}@host"}),  # type: ignore[arg-type]
        lambda: RedisStore.from_url("redis://127.0.0.1", tls=SECRET),  # type: ignore[arg-type]
        lambda: MemoryStore(f"redis://user:{SECRET}@host"),  # type: ignore[arg-type]
        lambda: kit.settings(resource=f"https://user:{SECRET}@api.example.org"),
        lambda: kit.settings(resource=f"postgres://user:{SECRET}@api.example.org"),
        lambda: Principal(subject=[SECRET]),  # type: ignore[arg-type]
    ],
    ids=itertools.count(),
)
def test_a_text_that_may_be_a_secret_is_not_repeated(make: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert "SECRET" not in str(caught.value)


def test_a_number_that_may_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(DeclarationError, match=r"HttpConfig\.keyfile_password must be a string or None, got an int$"):
        HttpConfig(certfile="a.pem", keyfile_password=123456)  # type: ignore[arg-type]
    assert "hunter2" not in repr(HttpConfig(certfile="a.pem", keyfile_password="hunter2"))


def test_a_file_is_named_by_a_string_or_a_path(tmp_path: Path) -> None:
    paths = HttpConfig(certfile=Path("a.pem"), keyfile=Path("b.pem"), client_ca=Path("c.pem"), unix_path=Path("d"))
    assert (paths.certfile, paths.keyfile, paths.client_ca, paths.unix_path) == ("a.pem", "b.pem", "c.pem", "d")
    assert ClusterConfig(socket_directory=Path("/run/mcp")).socket_directory == "/run/mcp"
    files = {"forward_ca": Path("ca.pem"), "forward_cert": Path("cert.pem"), "forward_key": Path("key.pem")}
    cluster = ClusterConfig(forward_address="10.0.0.1:9000", **files)
    assert [getattr(cluster, name) for name in files] == ["ca.pem", "cert.pem", "key.pem"]
    connect(["server"], env={"DATA": Path("/srv")}, cwd=trio.Path("/srv"))
    (tmp_path / "page.html").write_text("<p>")
    assert Ui("ui://page", html=trio.Path(tmp_path / "page.html")).html == tmp_path / "page.html"
    with pytest.raises(DeclarationError, match="store is a store or its URL"):
        server.asgi(store=Path("sessions.db"))  # type: ignore[arg-type]  # it has a method open(), as a store has


@pytest.mark.parametrize(
    "make",
    [lambda path: HttpClientConfig(verify=path).verify, lambda path: OAuth(verify=path)._source.verify],
    ids=["HttpClientConfig", "OAuth"],
)
def test_authorities_to_trust_may_be_named_by_a_file(make: Callable[[Any], Any], tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    for path in (file, str(file)):
        context = make(path)
        assert len(context.get_ca_certs()) == 1
    assert isinstance(make(tmp_path), ssl.SSLContext)  # a directory of certificates
    with pytest.raises(DeclarationError, match=r"verify: .*missing\.pem cannot be read: No such file"):
        make(tmp_path / "missing.pem")


class Choice(enum.StrEnum):
    DIRECT = "direct"
    PRIVATE = "private"
    DEBUG = "debug"
    FORM = "form"
    REQUIRED = "required"


class Text(str, enum.Enum):  # noqa: UP042 - its text is another one than that of a StrEnum
    DIRECT = "direct"


def test_a_choice_may_be_a_member_of_an_enumeration() -> None:
    for member in (Choice.DIRECT, Text.DIRECT):
        engine = HttpConfig(engine=member).engine  # type: ignore[arg-type]
        assert type(engine) is str
        assert engine == "direct"
    assert type(Cache(ttl=5, scope=Choice.PRIVATE).scope) is str  # type: ignore[arg-type]
    assert type(kit.settings(dpop=Choice.REQUIRED).dpop) is str
    client = connect(server, log=print, log_level=Choice.DEBUG, elicit_modes=[Choice.FORM])  # type: ignore[arg-type]
    assert type(client._service.log_level) is str
    assert [type(mode) for mode in client._service.callbacks.elicit_modes] == [str]
    with pytest.raises(DeclarationError, match="'hypercorn' or 'direct', got"):
        HttpConfig(engine=Choice.PRIVATE)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, dict.fromkeys, iter])
def test_a_list_may_be_any_collection_and_is_copied(kind: Callable[[Any], Any]) -> None:
    given = kind(["model"])
    page = Ui("ui://page", visibility=given)
    if isinstance(given, list | set | dict):
        given.clear()
    assert page.visibility == ("model",)
    assert connect(server, elicit_modes=kind(["form"]))._service.callbacks.elicit_modes == ("form",)


class Name(str):
    """A subclass of str, which msgspec cannot encode."""


def test_a_text_is_stored_as_a_plain_string() -> None:
    ada = Principal(subject=Name("ada"), client_id=Name("cli"), issuer=Name("issuer"), scopes=[Name("read")])
    assert {type(text) for text in (ada.subject, ada.client_id, ada.issuer, *ada.scopes)} == {str}
    assert ada == Principal(subject="ada", client_id="cli", issuer="issuer", scopes="read")
    assert type(HttpConfig(host=Text.DIRECT).host) is str


def test_the_drain_timeout_of_a_pipe_is_converted() -> None:
    assert type(check_pipe(None, Number(), JsonLimits())) is int
    assert check_pipe(None, fractions.Fraction(5, 2), JsonLimits()) == 2.5


def test_the_settings_of_a_sign_in_are_converted() -> None:
    OAuth(sign_in_timeout=Number(), trusted_hosts=(host for host in ["a"]))  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="trusted_hosts must be a list of strings, got a list that holds an int"):
        OAuth(trusted_hosts=[5])  # type: ignore[list-item]


def test_a_collection_is_converted_to_the_declared_kind() -> None:
    assert HttpConfig(allowed_headers=["X-A"]).allowed_headers == ("X-A",)
    assert hash(HttpConfig(allowed_headers=["X-A"])) == hash(HttpConfig(allowed_headers=("X-A",)))
    assert check_value("scopes", ["a", "a"], frozenset[str]) == frozenset("a")
    for value in ("ab", b"ab"):
        with pytest.raises(DeclarationError, match=r"^names must be a list of strings, got a (str|bytes)$"):
            check_value("names", value, tuple[str, ...])


class Number:
    """A whole number of another library, such as `numpy.int64`."""

    def __index__(self) -> int:
        return 300


class Switch:
    """A value that is not a number, although its class has `__index__`, such as `numpy.bool` of NumPy 1."""

    def __index__(self) -> int:
        raise TypeError("no number")


class Level(enum.IntEnum):
    SOME = 300


FINITE = {"port", "unix_mode", "backlog", "retry_ms", "min_body_rate", "max_depth"}
"""Numbers of which the code needs the value; the other whole numbers are limits."""


@pytest.mark.parametrize(("make", "name", "whole"), [*numbers()])
def test_a_number_of_another_type_is_converted(make: Callable[..., Any], name: str, whole: bool) -> None:
    if name == "max_header_bytes":
        pytest.skip("300 is less than its minimum")
    for value in (Level.SOME, Number(), 300.0, *(() if whole else (fractions.Fraction(300), decimal.Decimal(300)))):
        found = getattr(make(**{name: value}), name)
        assert found == 300
        assert isinstance(found, int if whole else int | float)
    with pytest.raises(DeclarationError, match=name):
        make(**{name: Switch()})


@pytest.mark.parametrize(("make", "name", "whole"), [*numbers()])
def test_a_limit_may_be_turned_off_by_inf(make: Callable[..., Any], name: str, whole: bool) -> None:
    if not whole:
        pytest.skip("every number that is not whole takes inf, or has a range")
    if name in FINITE:
        with pytest.raises(DeclarationError, match=rf"{name} must be a whole number, got inf; .*write a number$"):
            make(**{name: math.inf})
        return
    with pytest.raises(
        DeclarationError, match=rf"{name} must be a whole number, got None; write math.inf for no limit$"
    ):
        make(**{name: None})
    found = make(**{name: math.inf})
    assert getattr(found, name) == sys.maxsize
    assert isinstance(getattr(found, name), int)


async def test_a_client_that_retries_for_ever_reconnects() -> None:
    async with connect(server, reconnect=Reconnect(tries=math.inf), max_pages=math.inf, max_items=math.inf) as client:  # type: ignore[arg-type]
        assert await client.list_tools() == ()
    assert Retries(Reconnect(tries=math.inf)).limit == sys.maxsize  # type: ignore[arg-type]


def test_zero_is_no_batch_and_no_message() -> None:
    assert JsonLimits(max_batch=0).max_batch == 0
    assert Limits(notify_rate=0, notify_burst=0).notify_burst == 0


if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]


class Shape(TypedDict):
    a: int


@attrs.frozen(kw_only=True)
class OwnHttp(HttpConfig):
    unknown: Unknown | None = None
    pair: tuple[int, str] = (1, "a")
    shape: Shape | None = None


class OwnLimits(Limits, frozen=True, kw_only=True):
    shape: Shape | None = None


class OwnStore(StoreLimits, frozen=True, kw_only=True):
    label: str = "x"


class OwnJson(JsonLimits, frozen=True, kw_only=True):
    label: str = "x"


def test_a_subclass_of_a_user_may_have_fields_of_any_type() -> None:
    for make in (OwnHttp, OwnLimits, OwnStore, OwnJson):
        make()
    with pytest.raises(DeclarationError, match=r"OwnHttp\.port must be a whole number, got '80'"):
        OwnHttp(port="80")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"OwnStore\.sessions must be positive, got 0"):
        OwnStore(sessions=0)
