"""Mutants for the published classes of vulnerabilities (V) and for bad credentials (O)."""

from __future__ import annotations

from .mutant import AUTHORIZATION, BOUNDARY, HTTP, ISOLATION, LOCAL, SURVIVAL, Mutant

MUTANTS = [
    # -- 1a: process and session survival
    Mutant(
        "V01", "a fault in the envelope is answered", "transports/http_server/endpoint/endpoint.py",
        "        except RemoteProtocolError as error:\n            if error.limit is not None:",
        "        except ZeroDivisionError as error:\n            if error.limit is not None:",
        SURVIVAL, "test_neg_invalid_params_does_not_end_session",
    ),
    Mutant(
        "V02", "a reset counts as a disconnect", f"{HTTP}/direct/engine.py",
        "    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # treat a reset as a disconnect",
        "    with suppress(ZeroDivisionError):  # treat a reset as a disconnect",
        SURVIVAL, "test_neg_abrupt_disconnect_leaves_server_alive",
    ),
    Mutant(
        "V03", "the connection guard", f"{HTTP}/listener/containment.py",
        '            logger.error("connection %s ended by %r", self.client, rest, exc_info=rest)\n',
        "            raise rest\n",
        SURVIVAL, "test_neg_ws_trailing_byte or test_neg_ws_nonascii_extension_header or test_neg_h2c_nonascii_path",
    ),
    Mutant(
        "V04", "the call guard takes every exception", "_actors/router.py",
        "        except BaseException as error:  # noqa: BLE001 - the call guard: a handler's crash stops here",
        "        except Exception as error:  # noqa: BLE001 - the call guard: a handler's crash stops here",
        SURVIVAL, "test_neg_handler_sys_exit",
    ),
    Mutant(
        "V05", "a URI has a greatest length", "_uri/match.py",
        "good = len(uri) <= MAX_URI and uri.isprintable() and (uri.isascii() or len(uri.encode()) <= MAX_URI)",
        "good = uri.isprintable()",
        "tests/uri/test_template.py", "test_the_bytes_of_a_uri_are_bounded",
    ),
    Mutant(
        "V06", "the declared length is bounded", f"{HTTP}/listener/framing.py",
        "head.content_length > limits.max_body and", "head.content_length > limits.max_body * 1000000000000 and",
        SURVIVAL, "test_neg_body_limit_declared",
        ((f"{HTTP}/endpoint/guard.py", "            if int(length) > self.config.max_body:", "            if False:"),),
    ),
    Mutant(
        "V06", "what comes is counted", f"{HTTP}/hypercorn/asgi.py",
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
        "V08", "a refused session is taken back", f"{HTTP}/endpoint/stateful.py",
        "        if http.closed and not (http.leaving or http.goes_on):  # it was refused",
        "        if False:  # it was refused",
        SURVIVAL, "test_neg_refused_open_leaks_nothing",
    ),
    Mutant(
        "V08", "sessions are bounded", "_actors/supervisor.py",
        "if len(self._shares) < self.limits.max_sessions or", "if True or",
        SURVIVAL, "test_neg_session_cap_503",
    ),
    Mutant(
        "V09", "sessions open in parallel", f"{HTTP}/endpoint/stateful.py",
        "        reply = await post.reply()\n",
        "        async with _ONE_AT_A_TIME:\n            reply = await post.reply()\n",
        SURVIVAL, "test_neg_slow_opener_does_not_block_others",
        ((f"{HTTP}/endpoint/stateful.py", "DELETED: Final =", "_ONE_AT_A_TIME = trio.Lock()\nDELETED: Final ="),),
    ),
    Mutant(
        "V10", "compression is not agreed to", f"{HTTP}/listener/framing.py",
        'frozenset({b"expect", b"sec-websocket-extensions", b"http2-settings"})',
        'frozenset({b"expect", b"http2-settings"})',
        SURVIVAL, "test_neg_ws_deflate_bomb",
    ),
    Mutant(
        "V10", "a message is bounded", f"{HTTP}/hypercorn/connection.py",
        "    hyper.websocket_max_message_size = config.websocket_max_message\n",
        "    hyper.websocket_max_message_size = config.websocket_max_message * 100\n",
        SURVIVAL, "test_neg_ws_message_cap",
        (("transports/websocket/server.py", "        if len(data) > self.max_message:", "        if False:"),),
    ),
    Mutant(
        "V11", "an event has a greatest length", "_wire/sse.py",
        "        if len(self._line) + len(piece) > self.max_event + _FIELD:",
        "        if len(self._line) + len(piece) > self.max_event * 1000:",
        SURVIVAL, "test_neg_client_endless_sse_line",
    ),
    Mutant(
        "V12", "another version is refused", f"{HTTP}/listener/framing.py",
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
        "        if request_id in ledger.by_id:", "        if False:",
        ISOLATION, "test_neg_ids_are_of_one_session",
    ),
    Mutant(
        "V21", "a session is its owner's", f"{HTTP}/endpoint/stateful.py",
        "        if http.identity != head.identity:", "        if False:",
        ISOLATION, "test_neg_session_other_principal_404",
    ),
    Mutant(
        "V22", "a stream that is open is not taken away", f"{HTTP}/endpoint/stateful.py",
        "        if http.listening:", "        if False:",
        ISOLATION, "test_neg_second_get_stream_409",
    ),
    Mutant(
        "V23", "a cursor has a MAC over its session", f"{HTTP}/endpoint/event_stream.py",
        "    if not compare_digest(EventIds(secret, session, stream).of(number), text):", "    if False:",
        ISOLATION, "test_neg_replay_other_session_cursor or test_neg_replay_same_request_id",
    ),
    Mutant(
        "V25", "a state is bound to its request", "auth/request_state.py",
        "    return msgspec.json.encode([audience, method, digest(rest), principal])",
        "    return msgspec.json.encode([audience, principal])",
        ISOLATION, "test_neg_request_state_other_args",
    ),
    Mutant(
        "V25", "a state is bound to its principal", "auth/request_state.py",
        "    return msgspec.json.encode([audience, method, digest(rest), principal])",
        "    return msgspec.json.encode([audience, method, digest(rest)])",
        ISOLATION, "test_neg_request_state_other_principal",
    ),
    Mutant(
        "V25", "a state expires", "auth/request_state.py",
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
        "V30", "Host is compared", f"{HTTP}/endpoint/guard.py",
        "        if name not in self._hosts and not self._allows_host(name, port):", "        if False:",
        BOUNDARY, "test_neg_host_evil_421 or test_neg_host_is_checked_without_a_server_too",
    ),
    Mutant(
        "V30", "Origin is compared", f"{HTTP}/endpoint/guard.py",
        "        if page is None or page.host != host or page.port != (_PORTS",
        "        if page is None or False and (_PORTS",
        BOUNDARY, "test_neg_origin_evil_403",
    ),
    Mutant(
        "V30", "Origin null is refused", f"{HTTP}/endpoint/guard.py",
        "        if page is None or page.host != host or", "        if page is not None and page.host != host and",
        BOUNDARY, "test_neg_origin_null_403",
    ),
    Mutant(
        "V31", "the same guard before a socket is accepted", "transports/websocket/server.py",
        "    refusal = endpoint.guard.check_sender(head)\n    if refusal is not None:\n        return refusal\n", "",
        BOUNDARY, "test_neg_ws_origin_evil_403",
    ),
    Mutant(
        "V33", "only JSON is taken", f"{HTTP}/endpoint/guard.py",
        '        if form != "application/json":', "        if False:",
        BOUNDARY, "test_neg_text_plain_post_415",
    ),
    Mutant(
        "V34", "a length together with chunks is refused", f"{HTTP}/listener/framing.py",
        '    if b"content-length" in head.fields:  # RFC 9112 section 6.3', "    if False:  # RFC 9112 section 6.3",
        BOUNDARY, "test_neg_cl_te_400_close",
    ),
    Mutant(
        "V34", "chunks in HTTP/1.0 are refused", f"{HTTP}/listener/framing.py",
        '    if head.version == b"1.0":  # RFC 9112 section 6.1', "    if False:  # RFC 9112 section 6.1",
        BOUNDARY, "test_neg_te_http10",
    ),
    Mutant(
        "V35", "a key twice is refused", "_wire/scan.py",
        "    if encoded == data:", "    if True:",
        BOUNDARY, "test_neg_duplicate_key",
    ),
    Mutant(
        "V35", "names are compared exactly", "_wire/jsonrpc.py",
        "        if name not in _MEMBERS and name.casefold() in _MEMBERS:", "        if False:",
        BOUNDARY, "test_neg_key_case",
    ),
    Mutant(
        "V36", "headers are compared with the body", f"{HTTP}/endpoint/stateless.py",
        "        if found != wanted and not _means(found, wanted):", "        if False:",
        BOUNDARY, "test_neg_mcp_name_mismatch",
    ),
    Mutant(
        "V37", "only JSON is taken", f"{HTTP}/endpoint/guard.py",
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
        "        same_resource(resource, endpoint) or (", "        True or (",
        "tests/auth/test_discovery.py", "test_neg_prm_resource_mismatch",
    ),
    Mutant(
        "V42", "the issuer is compared", "auth/client/metadata.py",
        "    if not isinstance(named, str) or not same_identifier(named, issuer):", "    if False:",
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
        "V47", "nothing but the endpoint is served", f"{HTTP}/endpoint/endpoint.py",
        "            404, f\"nothing is served here;", "            200, f\"nothing is served here;",
        LOCAL, "test_neg_proxy_absent",
    ),
    Mutant(
        "V48", "the page of a redirect is always the same", "transports/oauth/redirect.py",
        "_ACCEPTED if answer is not None else _NOT_FOUND",
        "_ACCEPTED if answer is not None else _NOT_FOUND + bytes(event.target) + repr(event.headers).encode()",
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
        "V52", "values are encoded", "_uri/syntax.py",
        "            encoded = encode(_scalar(value)[: variable.prefix], operator.reserved)",
        "            encoded = _scalar(value)[: variable.prefix]",
        LOCAL, "test_neg_path_param_encoded",
    ),
    Mutant(
        "V24", "a task is its owner's", "extensions/tasks/extension.py",
        "            if not _same(run.owner, owner):", "            if False:",
        "tests/extensions/test_tasks.py", "test_neg_task_other_principal_not_found",
    ),
    Mutant(
        "V24", "a task in the store is its owner's", "extensions/tasks/extension.py",
        "        if stored is None or not _same(stored.owner, owner):", "        if stored is None:",
        "tests/extensions/test_tasks.py", "test_neg_task_other_principal_not_found",
    ),
    # -- authorization of the server: the rows of bad credentials
    Mutant(
        "O02", "the issuer of a token is one of ours", "auth/server/tokens.py",
        '    _check_issuer(auth, claims.get("iss"))\n', "",
        "tests/auth/server/test_tokens.py", "test_neg_jwt",
    ),
    Mutant(
        "O02", "the issuer of an introspected token, too", "auth/server/tokens.py",
        '    _check_issuer(auth, claims.setdefault("iss", auth.issuers[0]))\n',
        '    claims.setdefault("iss", auth.issuers[0])\n',
        "tests/auth/server/test_tokens.py", "test_anything_else_is_refused",
    ),
    Mutant(
        "O02", "a token expires", "auth/server/tokens.py",
        "    if end is not None and now >= end:", "    if False:",
        AUTHORIZATION, "test_an_expired_token_is_refused",
    ),
    Mutant(
        "O02", "requests and streams end at one time", "auth/server/tokens.py",
        "        expires=_end(auth, claims),\n", '        expires=_time(claims, "exp"),\n',
        AUTHORIZATION, "test_a_stream_ends_when_requests_with_its_token_would_be_refused",
    ),
    Mutant(
        "O02", "a token has a beginning", "auth/server/tokens.py",
        "    if begins is not None and now < begins - auth.clock_skew:", "    if False:",
        "tests/auth/server/test_tokens.py", "test_neg_jwt",
    ),
    Mutant(
        "O04", "the server's scopes are asked for", "auth/server/checker.py",
        "        missing = auth.required_scopes - principal.scopes", "        missing = frozenset()",
        "tests/transports/bearer/test_authorizer.py", "test_a_client_with_too_little_learns_how_much_is_needed",
    ),
    Mutant(
        "O04", "the scopes of what is asked for are needed", f"{HTTP}/endpoint/scopes.py",
        "        if not needed or request.scopes.issuperset(needed):", "        if True:",
        "tests/auth/server/test_scopes.py", "test_subscribing_is_allowed_like_reading",
        (("server/features/scopes.py", "held is None or held.issuperset(scopes)", "True"),),
    ),
    Mutant(
        "O04", "lists hold what one may use", "server/features/scopes.py",
        "        if scopes is not None and entry.scopes and not scopes.issuperset(entry.scopes):", "        if False:",
        "tests/auth/server/test_scopes.py", "test_lists_hold_what_the_caller_may_use",
    ),
    Mutant(
        "O07", "no token is accepted while the issuer cannot be asked", "auth/server/checker.py",
        "        except Unavailable as error:\n",
        "        except Unavailable as error:\n            return Principal(issuer='x', subject='x')\n",
        "tests/transports/bearer/test_authorizer.py", "test_neg_callers_are_refused_while_the_issuer_is_unreachable",
    ),
    Mutant(
        "DPoP", "a proof works once", "auth/server/dpop.py",
        "    if not replays.use(owner, digest, until, now):", "    if False:",
        AUTHORIZATION, "test_a_replayed_request_with_a_bound_token_is_refused",
    ),
    Mutant(
        "DPoP", "a bound token needs its proof", "auth/server/dpop.py",
        '        if not auth.dpop or shown.scheme != "dpop":', "        if False:",
        "tests/auth/server/test_dpop.py", "test_a_bound_token_is_never_taken_without_its_proof",
        (("auth/server/dpop.py", "used = _check_proof(auth,", "used = shown.proofs and _check_proof(auth,"),),
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
        "V60", "what serves starts no processes", f"{HTTP}/endpoint/endpoint.py",
        "\nimport logging\n", "\nimport logging\nimport subprocess\n",
        LOCAL, "test_neg_no_spawn_route",
    ),
    Mutant(
        "V61", "no shell", "transports/stdio/process.py",
        "subprocess.Popen(list(argv), bufsize=0,",
        'subprocess.Popen(" ".join(argv), shell=True, bufsize=0,',
        LOCAL, "test_neg_stdio_argv_metachar_inert",
    ),
    Mutant(
        "V62", "a minimal environment", "transports/stdio/client.py",
        "environment = {**minimal_environment(),", "environment = {**os.environ,",
        LOCAL, "test_neg_stdio_env_minimal",
    ),
    Mutant(
        "V63", "values that lead elsewhere name nothing", "server/features/resources.py",
        "found is None or (not self.any_path and is_path_traversal(found))", "found is None",
        LOCAL, "test_neg_resource_traversal",
    ),
    Mutant(
        "V64", "standard output leads to standard error", "transports/stdio/server.py",
        "            os.dup2(2, 1)\n        except", "            pass\n        except",
        LOCAL, "test_neg_handler_print_not_on_wire",
    ),
]  # fmt: skip
