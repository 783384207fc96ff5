"""Takes each guard away, in a copy of the package, and looks whether its named test notices.

    python -m tests.advisories.mutants            # all of them
    python -m tests.advisories.mutants V05 O04    # some classes, some rows of bad credentials

A mutant is a text that is replaced in one file. It is killed when its test fails; a test that passes without the guard
proves nothing. A text that is no longer in the file is an error: the guard has moved, and this table with it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
SURVIVAL, ISOLATION = "tests/advisories/test_survival.py", "tests/advisories/test_isolation.py"
BOUNDARY, LOCAL = "tests/advisories/test_boundary.py", "tests/advisories/test_local.py"
AUTHORIZATION = "tests/e2e/test_authorization.py"
HTTP = "transports/http_server"


@frozen
class Mutant:
    """One guard taken away."""

    row: str
    guard: str
    file: str
    old: str
    new: str
    where: str
    test: str
    also: tuple[tuple[str, str, str], ...] = ()
    """Further guards that would step in: each a file, an old and a new text."""


MUTANTS = [
    # -- 1a: process and session survival
    Mutant(
        "V01", "a fault in the envelope is answered", "transports/http_server/answer.py",
        "        except RemoteProtocolError as error:\n            if error.limit is not None:",
        "        except ZeroDivisionError as error:\n            if error.limit is not None:",
        SURVIVAL, "test_neg_invalid_params_does_not_end_session",
    ),
    Mutant(
        "V02", "a reset is a way to go", f"{HTTP}/express.py",
        "    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # a reset is a way to go",
        "    with suppress(ZeroDivisionError):  # a reset is a way to go",
        SURVIVAL, "test_neg_abrupt_disconnect_leaves_server_alive",
    ),
    Mutant(
        "V03", "the connection guard", f"{HTTP}/guarded.py",
        "        report(GuardCaught(client=client, error=error))\n    return False", "        raise",
        SURVIVAL, "test_neg_ws_trailing_byte or test_neg_ws_nonascii_extension_header or test_neg_h2c_nonascii_path",
        ((f"{HTTP}/guarded.py", "report(GuardCaught(client=client, error=rest))", "raise rest"),),
    ),
    Mutant(
        "V04", "the call guard takes every exception", "_actors/router.py",
        "        except BaseException as error:  # noqa: BLE001 - the call guard: a handler's crash stops here",
        "        except Exception as error:  # noqa: BLE001 - the call guard: a handler's crash stops here",
        SURVIVAL, "test_neg_handler_sys_exit",
    ),
    Mutant(
        "V05", "a URI has a greatest length", "_wire/uri_match.py",
        "if len(uri) > MAX_URI or not uri.isprintable():", "if not uri.isprintable():",
        SURVIVAL, "test_neg_uri_template_redos_under_50ms",
    ),
    Mutant(
        "V06", "the declared length is bounded", f"{HTTP}/framing.py",
        "length > (limit := max_body(head)):", "length > (limit := max_body(head)) * 1000000000000:",
        SURVIVAL, "test_neg_body_limit_declared",
        ((f"{HTTP}/guard.py", "            if int(length) > self.config.max_body:", "            if False:"),),
    ),
    Mutant(
        "V06", "what comes is counted", f"{HTTP}/app.py",
        "                    if size > self.config.max_body:",
        "                    if size > self.config.max_body * 1000:",
        SURVIVAL, "test_neg_body_limit_streamed",
    ),
    Mutant(
        "V06", "a batch is bounded", "_wire/jsonrpc.py",
        "if len(members) > limits.max_batch:", "if len(members) > 100 * limits.max_batch:",
        SURVIVAL, "test_neg_batch_101",
    ),
    Mutant(
        "V07", "values are counted", "_wire/scan.py",
        '    if 1 + outside.count(b",") + brackets.count(b"[") > limits.max_nodes:', "    if False:",
        SURVIVAL, "test_neg_million_element_array",
    ),
    Mutant(
        "V08", "a refused session is taken back", f"{HTTP}/sessions.py",
        "        if http.closed:  # it was refused", "        if False:  # it was refused",
        SURVIVAL, "test_neg_refused_open_leaks_nothing",
    ),
    Mutant(
        "V08", "sessions are bounded", "_actors/supervisor.py",
        "if len(self.sessions) >= self.limits.max_sessions:",
        "if len(self.sessions) >= 1000 * self.limits.max_sessions:",
        SURVIVAL, "test_neg_session_cap_503",
    ),
    Mutant(
        "V09", "sessions open beside each other", f"{HTTP}/sessions.py",
        '        reply = await self._outcome(post, frame, ((b"mcp-session-id", session.id.encode()),))\n',
        "        async with _ONE_AT_A_TIME:\n"
        '            reply = await self._outcome(post, frame, ((b"mcp-session-id", session.id.encode()),))\n',
        SURVIVAL, "test_neg_slow_opener_does_not_block_others",
        ((f"{HTTP}/sessions.py", "DELETED: Final =", "_ONE_AT_A_TIME = trio.Lock()\nDELETED: Final ="),),
    ),
    Mutant(
        "V10", "compression is not agreed to", f"{HTTP}/framing.py",
        'frozenset({b"expect", b"sec-websocket-extensions", b"http2-settings"})',
        'frozenset({b"expect", b"http2-settings"})',
        SURVIVAL, "test_neg_ws_deflate_bomb",
    ),
    Mutant(
        "V10", "a message is bounded", f"{HTTP}/serve.py",
        "    hyper.websocket_max_message_size = config.websocket_max_message\n",
        "    hyper.websocket_max_message_size = config.websocket_max_message * 100\n",
        SURVIVAL, "test_neg_ws_message_cap",
        (("transports/websocket.py", "        if len(data) > self.max_message:", "        if False:"),),
    ),
    Mutant(
        "V11", "an event has a greatest length", "_wire/sse.py",
        "        if len(self._line) + len(piece) > self.max_event:",
        "        if len(self._line) + len(piece) > self.max_event * 1000:",
        SURVIVAL, "test_neg_client_endless_sse_line",
    ),
    Mutant(
        "V12", "another version is refused", f"{HTTP}/framing.py",
        '    if version not in (b"1.0", b"1.1"):', "    if False:",
        SURVIVAL, "test_neg_h2_refused_by_default",
    ),
    Mutant(
        "V13", "depth is bounded before decoding", "_wire/scan.py",
        "    if remaining:\n        raise _too_deep(limits)", "    if False:\n        raise _too_deep(limits)",
        SURVIVAL, "test_neg_deep_nesting_before_the_decoder",
    ),
    # -- 1b: isolation between clients
    Mutant(
        "V20", "an id in use is refused", "_peer/machine.py",
        "        if ledger.in_flight(request_id) is not None:", "        if False:",
        ISOLATION, "test_neg_ids_are_of_one_session",
    ),
    Mutant(
        "V21", "a session is its owner's", f"{HTTP}/sessions.py",
        "        if http.identity != identity(head.principal):", "        if False:",
        ISOLATION, "test_neg_session_other_principal_404",
    ),
    Mutant(
        "V22", "a stream that is open is not taken away", f"{HTTP}/sessions.py",
        "        if http.listening:", "        if False:",
        ISOLATION, "test_neg_second_get_stream_409",
    ),
    Mutant(
        "V23", "a cursor has a MAC over its session", f"{HTTP}/cursor.py",
        "    if not compare_digest(EventIds(secret, session, stream).of(number), text):", "    if False:",
        ISOLATION, "test_neg_replay_other_session_cursor or test_neg_replay_same_request_id",
    ),
    Mutant(
        "V23", "what is kept of a session is its owner's", f"{HTTP}/sessions.py",
        "        if record.identity != identity(head.principal) or record.date", "        if record.date",
        "tests/e2e/test_resume.py", "test_after_a_restart_a_session_still_belongs_to_whoever_opened_it",
    ),
    Mutant(
        "V25", "a state is bound to its request", "_wire/request_state.py",
        "    return msgspec.json.encode([audience, method, digest(rest), principal])",
        "    return msgspec.json.encode([audience, principal])",
        ISOLATION, "test_neg_request_state_other_args",
    ),
    Mutant(
        "V25", "a state is bound to its principal", "_wire/request_state.py",
        "    return msgspec.json.encode([audience, method, digest(rest), principal])",
        "    return msgspec.json.encode([audience, method, digest(rest)])",
        ISOLATION, "test_neg_request_state_other_principal",
    ),
    Mutant(
        "V25", "a state expires", "_wire/request_state.py",
        "        if state.expires < now:", "        if False:",
        ISOLATION, "test_neg_request_state_expired",
    ),
    Mutant(
        "V25", "a state is accepted once", "_actors/parking.py",
        "        if state.id in self._used:", "        if False:",
        ISOLATION, "test_neg_request_state_tampered",
    ),
    # -- 1c: browser and network boundary
    Mutant(
        "V30", "Host is compared", f"{HTTP}/guard.py",
        "        if not self._allows_host(name, port):", "        if False:",
        BOUNDARY, "test_neg_host_evil_421 or test_neg_host_is_checked_without_a_server_too",
    ),
    Mutant(
        "V30", "Origin is compared", f"{HTTP}/guard.py",
        "        if page is None or not self._allows_origin(page, name, port):", "        if page is None:",
        BOUNDARY, "test_neg_origin_evil_403",
    ),
    Mutant(
        "V30", "Origin null is nobody", f"{HTTP}/guard.py",
        "        if page is None or not self._allows_origin(page, name, port):",
        "        if page is not None and not self._allows_origin(page, name, port):",
        BOUNDARY, "test_neg_origin_null_403",
    ),
    Mutant(
        "V31", "the same guard before a socket is accepted", "transports/websocket.py",
        "    refusal = endpoint.guard.check_sender(head)\n    if refusal is not None:\n        return refusal\n", "",
        BOUNDARY, "test_neg_ws_origin_evil_403",
    ),
    Mutant(
        "V33", "only JSON is taken", f"{HTTP}/guard.py",
        '        if form != "application/json":', "        if False:",
        BOUNDARY, "test_neg_text_plain_post_415",
    ),
    Mutant(
        "V34", "a length beside chunks is refused", f"{HTTP}/framing.py",
        '    if b"content-length" in head.fields:  # RFC 9112 section 6.3', "    if False:  # RFC 9112 section 6.3",
        BOUNDARY, "test_neg_cl_te_400_close",
    ),
    Mutant(
        "V34", "chunks in HTTP/1.0 are refused", f"{HTTP}/framing.py",
        '    if head.version == b"1.0":  # RFC 9112 section 6.1', "    if False:  # RFC 9112 section 6.1",
        BOUNDARY, "test_neg_te_http10",
    ),
    Mutant(
        "V35", "a key twice is refused", "_wire/scan.py",
        "    if encoded == data:  # compact already", "    if True:  # compact already",
        BOUNDARY, "test_neg_duplicate_key",
    ),
    Mutant(
        "V35", "names are compared exactly", "_wire/jsonrpc.py",
        "        if name not in _MEMBERS and name.casefold() in _MEMBERS:", "        if False:",
        BOUNDARY, "test_neg_key_case",
    ),
    Mutant(
        "V36", "headers are compared with the body", f"{HTTP}/exchange.py",
        "        if found != wanted and not _means(found, wanted):", "        if False:",
        BOUNDARY, "test_neg_mcp_name_mismatch",
    ),
    Mutant(
        "V36", "a method is compared under a known head", f"{HTTP}/exchange.py",
        " and agreed.method == method", "",
        BOUNDARY, "test_neg_mismatch_under_a_head_that_was_let_through_before",
    ),
    Mutant(
        "V36", "a name is compared under a known head", f"{HTTP}/exchange.py",
        " and agreed.name == name", "",
        BOUNDARY, "test_neg_mismatch_under_a_head_that_was_let_through_before",
    ),
    Mutant(
        "V36", "a declaration is compared under a known head", f"{HTTP}/exchange.py",
        " and agreed.meta == meta", "",
        BOUNDARY, "test_neg_mismatch_under_a_head_that_was_let_through_before",
    ),
    Mutant(
        "V37", "only JSON is taken", f"{HTTP}/guard.py",
        '        if form != "application/json":', '        if form.startswith("text/"):',
        BOUNDARY, "test_neg_multipart_415",
    ),
    Mutant(
        "V32", "ports are numbers", "_wire/headers.py",
        "    match = _HOST.fullmatch(value)\n", "    match = _HOST.match(value)\n",
        BOUNDARY, "test_neg_host_port_not_numeric",
    ),
    # -- 1d: OAuth and outbound requests
    Mutant(
        "V40", "the audience is compared", "auth/server/tokens.py",
        "    if not any(isinstance(name, str) and name in auth.audience for name in names):", "    if False:",
        "tests/auth/server/test_tokens.py", "test_neg_token_wrong_audience",
    ),
    Mutant(
        "V40", "the audience is compared, end to end", "auth/server/tokens.py",
        "    if not any(isinstance(name, str) and name in auth.audience for name in names):", "    if False:",
        AUTHORIZATION, "test_neg_token_wrong_audience_401",
    ),
    Mutant(
        "V41", "credentials belong to one authorization server", "auth/client/binding.py",
        "issuer=seen, legacy=legacy)", "issuer=None, legacy=legacy)",
        "tests/auth/test_code_grant.py", "test_neg_as_switch_sends_nothing",
    ),
    Mutant(
        "V42", "the resource is compared", "auth/client/metadata.py",
        '        raise AuthorizationFailed("the protected resource metadata is about another server")', "        pass",
        "tests/auth/test_discovery.py", "test_neg_prm_resource_mismatch",
    ),
    Mutant(
        "V42", "the issuer is compared", "auth/client/metadata.py",
        '    if document.get("issuer") != issuer:', "    if False:",
        "tests/auth/test_discovery.py", "test_neg_issuer_mismatch",
    ),
    Mutant(
        "V42", "PKCE is required", "auth/client/code_grant.py",
        '    if "S256" not in server.code_challenge_methods:', "    if False:",
        "tests/auth/test_code_grant.py", "test_neg_no_pkce",
    ),
    Mutant(
        "V43", "iss is compared", "auth/client/code_grant.py",
        "    if issuer is not None and issuer != server.issuer:", "    if False:",
        "tests/auth/test_code_grant.py", "test_neg_iss_table",
    ),
    Mutant(
        "V44", "a redirect stays at its origin", "transports/http_client/http.py",
        "        if _origin(target) != _origin(response.url):", "        if False:",
        LOCAL, "test_neg_redirect_cross_origin_307 or test_neg_redirect_carries_nothing_away",
    ),
    Mutant(
        "V45", "addresses inside are not public", "auth/ssrf.py",
        "    if loopback and not (policy.loopback or named):", "    if False:",
        "tests/auth/test_ssrf.py", "test_neg_ssrf",
    ),
    Mutant(
        "V46", "nothing is fetched for a schema", "_schema/check.py",
        "            raise DeclarationError(_complaint(exc)) from None\n        except (ValueError",
        "            validator = jsonschema_rs.validator_for({})\n        except (ValueError",
        LOCAL, "test_neg_schema_ref_http or test_neg_schema_ref_file",
    ),
    Mutant(
        "V47", "nothing but the endpoint is served", f"{HTTP}/answer.py",
        "            404, f\"nothing is served here;", "            200, f\"nothing is served here;",
        LOCAL, "test_neg_proxy_absent",
    ),
    Mutant(
        "V48", "the page of a redirect is always the same", "transports/oauth/redirect.py",
        "        page = _PAGE if answer is not None else _OTHER\n",
        "        page = _PAGE if answer is not None else bytes(event.target) + repr(event.headers).encode()\n",
        "tests/e2e/test_oauth_client.py", "test_neg_callback_reflects_nothing",
    ),
    Mutant(
        "V48", "only the redirect that is waited for counts", "transports/oauth/redirect.py",
        "        return answer if known else None", "        return answer",
        "tests/e2e/test_oauth_client.py", "test_neg_callback_reflects_nothing",
    ),
    Mutant(
        "V49", "only pages are opened", "auth/client/code_grant.py",
        '    if scheme != "https" and not is_loopback_url(url):', "    if False:",
        "tests/auth/test_code_grant.py", "test_neg_auth_url_scheme",
    ),
    Mutant(
        "V50", "a principal does not show its claims", "auth/server/principal.py",
        "    claims: Mapping[str, Any] = field(factory=dict, repr=False, eq=False)",
        "    claims: Mapping[str, Any] = field(factory=dict, eq=False)",
        "tests/auth/server/test_settings.py", "test_neg_token_not_in_repr",
    ),
    Mutant(
        "V51", "signatures are checked, with a key that fits", "auth/server/tokens.py",
        "        verify(shown.token, _candidates(keys, kid, alg), alg)", "        pass",
        "tests/auth/server/test_tokens.py", "test_neg_jwt",
    ),
    Mutant(
        "V52", "values are encoded", "_wire/uri_syntax.py",
        "            encoded = encode(_scalar(value)[: variable.prefix], operator.reserved)",
        "            encoded = _scalar(value)[: variable.prefix]",
        LOCAL, "test_neg_path_param_encoded",
    ),
    Mutant(
        "V24", "a task is its owner's", "extensions/tasks/extension.py",
        "            mine = run.begun and _same(run.owner, owner) and", "            mine = run.begun and",
        "tests/extensions/test_tasks.py", "test_neg_task_other_principal_not_found",
    ),
    Mutant(
        "V24", "a task in the store is its owner's", "extensions/tasks/extension.py",
        '        if record is None or not _same(record["owner"], owner):', "        if record is None:",
        "tests/extensions/test_tasks.py", "test_neg_task_other_principal_not_found",
    ),
    # -- authorization of the server: the rows of bad credentials
    Mutant(
        "O02", "the issuer of a token is one of ours", "auth/server/tokens.py",
        '    if claims.get("iss") not in auth.issuers:', "    if False:",
        "tests/auth/server/test_tokens.py", "test_neg_jwt",
    ),
    Mutant(
        "O02", "the issuer of an introspected token, too", "auth/server/tokens.py",
        '    if claims.setdefault("iss", auth.issuers[0]) not in auth.issuers:',
        '    if claims.setdefault("iss", auth.issuers[0]) is None:',
        "tests/auth/server/test_tokens.py", "test_anything_else_is_refused",
    ),
    Mutant(
        "O02", "a token expires", "auth/server/tokens.py",
        "    if expires is not None and now >= expires + auth.clock_skew:", "    if False:",
        AUTHORIZATION, "test_an_expired_token_is_refused",
    ),
    Mutant(
        "O02", "a token has a beginning", "auth/server/tokens.py",
        "    if begins is not None and now < begins - auth.clock_skew:", "    if False:",
        "tests/auth/server/test_tokens.py", "test_neg_jwt",
    ),
    Mutant(
        "O04", "the server's scopes are asked for", f"{HTTP}/authorize.py",
        "        missing = self.auth.required_scopes - principal.scopes", "        missing = frozenset()",
        "tests/auth/server/test_authorizer.py", "test_a_client_with_too_little_learns_how_much_is_needed",
    ),
    Mutant(
        "O04", "the scopes of what is asked for are needed", f"{HTTP}/answer.py",
        "        if not needed or head.scopes.issuperset(needed):", "        if True:",
        "tests/auth/server/test_scopes.py", "test_subscribing_is_allowed_like_reading",
        (("server/features/scopes.py", "not scopes.issuperset(entry.scopes):", "False:"),),
    ),
    Mutant(
        "O04", "lists hold what one may use", "server/features/scopes.py",
        "        if scopes is not None and entry.scopes and not scopes.issuperset(entry.scopes):", "        if False:",
        "tests/auth/server/test_scopes.py", "test_lists_hold_what_the_caller_may_use",
    ),
    Mutant(
        "O07", "nobody gets in while the issuer cannot be asked", f"{HTTP}/authorize.py",
        "        except Unavailable as error:\n",
        "        except Unavailable as error:\n            return Principal(issuer='x', subject='x')\n",
        "tests/auth/server/test_authorizer.py", "test_neg_nobody_gets_in_while_the_issuer_cannot_be_asked",
    ),
    Mutant(
        "DPoP", "a proof works once", "auth/server/dpop.py",
        "    if not replays.use(digest, made + PROOF_AGE + auth.clock_skew, now):", "    if False:",
        AUTHORIZATION, "test_a_replayed_request_with_a_bound_token_is_refused",
    ),
    Mutant(
        "DPoP", "a bound token needs its proof", "auth/server/dpop.py",
        '        if not auth.dpop or shown.scheme != "dpop":', "        if False:",
        "tests/auth/server/test_dpop.py", "test_a_bound_token_is_never_taken_without_its_proof",
        (("auth/server/dpop.py", "        _check_proof(auth,", "        shown.proofs and _check_proof(auth,"),),
    ),
    Mutant(
        "DPoP", "a proof is of the token's key", "auth/server/dpop.py",
        "    if key.key.thumbprint() != jkt:", "    if False:",
        "tests/auth/server/test_dpop.py", "test_a_proof_that_is_not_for_this_request_is_refused",
    ),
    Mutant(
        "DPoP", "a proof is for one token", "auth/server/dpop.py",
        '    if claims.get("ath") != _b64(', '    if False and claims.get("ath") != _b64(',
        "tests/auth/server/test_dpop.py", "test_a_proof_that_is_not_for_this_request_is_refused",
    ),
    # -- 1e: local execution and files
    Mutant(
        "V60", "what serves starts no processes", f"{HTTP}/answer.py",
        "\nfrom mcptrio import telemetry\n", "\nimport subprocess\n\nfrom mcptrio import telemetry\n",
        LOCAL, "test_neg_no_spawn_route",
    ),
    Mutant(
        "V61", "no shell", "transports/spawn.py",
        "subprocess.Popen(list(argv), bufsize=0,",
        'subprocess.Popen(" ".join(argv), shell=True, bufsize=0,',
        LOCAL, "test_neg_stdio_argv_metachar_inert",
    ),
    Mutant(
        "V62", "a minimal environment", "transports/subprocess.py",
        "environment = {**minimal_environment(), **self.env}", "environment = {**os.environ, **self.env}",
        LOCAL, "test_neg_stdio_env_minimal",
    ),
    Mutant(
        "V63", "values that lead elsewhere name nothing", "server/features/resources.py",
        "found is None or (leads_elsewhere(found) and not self.any_path)", "found is None",
        LOCAL, "test_neg_resource_traversal",
    ),
    Mutant(
        "V64", "standard output leads to standard error", "transports/stdio.py",
        "            os.dup2(2, 1)\n        except", "            pass\n        except",
        LOCAL, "test_neg_handler_print_not_on_wire",
    ),
]  # fmt: skip
QUICK = ("V05", "V13", "V30", "V34", "V62")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="classes, as in V05; all without any")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    args = parser.parse_args()
    wanted = set(args.rows) or (set(QUICK) if args.quick else set())
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.row in wanted]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = make_copy(Path(folder))
        print(f"{'class':6} {'guard':50} {'seconds':>8}  outcome", flush=True)
        for mutant in chosen:
            began = time.monotonic()
            outcome = try_without(mutant, copy)
            survivors += outcome != "killed"
            print(f"{mutant.row:6} {mutant.guard:50} {time.monotonic() - began:8.1f}  {outcome}", flush=True)
    classes = len({mutant.row for mutant in chosen})
    print(f"{len(chosen)} guards of {classes} classes taken away, {len(chosen) - survivors} noticed")
    return 1 if survivors else 0


def make_copy(folder: Path) -> Path:
    """The package and its tests, to be spoilt."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("mcptrio", "tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def try_without(mutant: Mutant, copy: Path) -> str:
    """Run the named test without the guard: `killed` if it fails."""
    spoilt: dict[Path, str] = {}
    try:
        for file, old, new in ((mutant.file, mutant.old, mutant.new), *mutant.also):
            path = copy / "mcptrio" / file
            text = path.read_text()
            if old not in text:
                return f"ERROR: the guard is no longer in {file}"
            spoilt.setdefault(path, text)
            path.write_text(text.replace(old, new))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            mutant.where,
            "-k",
            mutant.test,
        ]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "killed"  # without the guard it never ended
    finally:
        for path, text in spoilt.items():
            path.write_text(text)
    if done.returncode == 1:
        return "killed"
    return "SURVIVED" if done.returncode == 0 else f"ERROR: pytest ended with {done.returncode}\n{done.stdout[-2000:]}"


if __name__ == "__main__":
    sys.exit(main())
