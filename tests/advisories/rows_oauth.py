"""Mutants for the guards of authentication and sign-in."""

from __future__ import annotations

from .mutant import HTTP, Mutant

BEARER = "tests/transports/bearer/test_authorizer.py"
CLIENT = "tests/e2e/test_oauth_client.py"
DPOP = "tests/auth/server/test_dpop.py"
DEPENDENCIES = "tests/advisories/test_dependencies.py"
SECRETS = "tests/cli/test_secrets.py"
SCOPES = "tests/auth/server/test_scopes.py"
ACQUIRE = "tests/auth/test_acquire.py"
SOURCE = "tests/transports/oauth/test_token_source.py"
SOURCE_FILE = "transports/oauth/token_source.py"
HTTP_CLIENT = "transports/http_client"

MUTANTS = [
    Mutant(
        "S5", "only a Principal identifies a caller", "auth/server/principal.py",
        "    if not isinstance(value, Principal) or not value.key:", "    if False:",
        SCOPES, "test_an_auth_function_that_returns_no_principal_lets_no_caller_in",
    ),
    Mutant(
        "S5", "a function that makes no valid Principal identifies no caller", f"{HTTP}/endpoint/endpoint.py",
        "        except DeclarationError as error:", "        except ZeroDivisionError as error:",
        SCOPES, "test_an_auth_function_that_makes_no_valid_principal_lets_no_caller_in",
    ),
    Mutant(
        "S5", "a function for certificates that returns no Principal identifies no caller", "auth/server/checker.py",
        "    return require_principal(principal)\n", "    return principal\n",
        "tests/transports/bearer/test_authorizer.py", "test_a_certificate_function_without_a_principal_refuses",
    ),
    Mutant(
        "S5", "a principal of an own function has not expired", f"{HTTP}/endpoint/endpoint.py",
        "        if self._authorizer is None and has_expired(principal, time.time()):", "        if False:",
        SCOPES, "test_a_principal_whose_credentials_have_expired_is_refused",
    ),
    Mutant(
        "S5", "a static token has not expired", "auth/server/checker.py",
        "        if has_expired(principal, self.now()):\n", "        if False:\n",
        SCOPES, "test_a_principal_whose_credentials_have_expired_is_refused",
    ),
    Mutant(
        "S14", "a principal needs a key", "auth/server/principal.py",
        "    if not isinstance(value, Principal) or not value.key:", "    if not isinstance(value, Principal):",
        SCOPES, "test_only_a_principal_with_a_key_identifies_a_caller",
    ),
    Mutant(
        "S16", "joserfc without an advisory", "../pyproject.toml", '"joserfc>=1.8"', '"joserfc>=1.7.4"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S16", "cryptography without an advisory", "../pyproject.toml", '"cryptography>=50.0.2"', '"cryptography>=49"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S16", "httpx2 without an advisory", "../pyproject.toml", '"httpx2>=2.12"', '"httpx2>=2.10"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S16", "hiredis without an advisory", "../pyproject.toml", '"hiredis>=3.4.2"', '"hiredis>=3.4"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S16", "the API of OpenTelemetry without an advisory", "../pyproject.toml",
        '"opentelemetry-api>=1.45.2"', '"opentelemetry-api>=1.45"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S9", "each key has a share of the proofs", "auth/server/dpop.py",
        "        if held >= self.most - len(self._owners):", "        if len(self._owners) >= self.most:",
        DPOP, "test_a_key_that_uses_many_proofs_takes_no_room_from_others",
    ),
    Mutant(
        "S9", "a full table forgets nothing", "auth/server/dpop.py",
        "            raise Unavailable(f\"too many proofs of possession of one caller",
        "            self._owners.clear()\n        if False:\n            raise Unavailable(f\"too many",
        DPOP, "test_used_proofs_are_forgotten_when_they_are_too_old_anyway_and_never_before",
    ),
    Mutant(
        "S9", "the table is not copied", "auth/server/dpop.py",
        "        self._forget(now)\n", "        self._forget(now)\n        _ = list(self._owners.items())\n",
        DPOP, "test_the_cost_of_a_proof_does_not_grow_with_the_number_of_proofs",
    ),
    Mutant(
        "S11", "a malformed request is answered", "transports/oauth/redirect.py",
        "        except (h11.RemoteProtocolError, ValueError):", "        except ZeroDivisionError:",
        CLIENT, "test_a_malformed_request_is_answered_and_the_wait_goes_on",
    ),
    Mutant(
        "S11", "the oldest silent connection is closed", "transports/oauth/redirect.py",
        "                oldest.cancel()\n", "                await trio.sleep(_REQUEST_TIME)\n",
        CLIENT, "test_silent_connections_do_not_delay_the_redirect",
    ),
    Mutant(
        "S11", "two seconds for a request", "transports/oauth/redirect.py",
        "_REQUEST_TIME: Final = 2.0", "_REQUEST_TIME: Final = 10.0",
        CLIENT, "test_a_silent_connection_ends_after_two_seconds",
    ),
    Mutant(
        "S17", "no token over plain http", "cli/connection.py",
        "    if secret or \"@\" in urlsplit(where.url).netloc:", "    if False:",
        SECRETS, "test_a_token_is_not_sent_unencrypted_to_another_machine",
    ),
    Mutant(
        "S17", "a password in a URL is one too", "cli/connection.py",
        "    if secret or \"@\" in urlsplit(where.url).netloc:", "    if secret:",
        SECRETS, "test_a_password_in_a_url_is_not_sent_unencrypted_to_another_machine",
    ),
    Mutant(
        "S17", "a token for this machine goes to no proxy", "transports/http_client/http.py",
        ", mounts=_DIRECT", "",
        "tests/client/test_credentials.py", "test_a_server_on_this_machine_is_reached_without_a_proxy",
    ),
    Mutant(
        "S17", "an error about a URL shows no password", "client/targets.py",
        're.sub("/.*@", "//…@", url, flags=re.DOTALL)', "url",
        "tests/client/test_credentials.py", "test_an_error_about_a_url_shows_no_password",
    ),
    Mutant(
        "S17", "a file that the group can read is reported", "cli/auth.py",
        "    if mode & (stat.S_IRWXG | stat.S_IRWXO):", "    if mode & stat.S_IROTH:",
        SECRETS, "test_a_secret_file_that_others_can_use_is_reported",
    ),
    Mutant(
        "S17", "the file with the password of a store is checked", "cli/auth.py",
        "        warn_if_readable(password_file)\n", "        pass\n",
        SECRETS, "test_a_secret_file_that_others_can_use_is_reported",
    ),
    Mutant(
        "S17", "key files are checked", "cli/auth.py",
        "        warn_if_readable(key)\n", "        pass\n",
        SECRETS, "test_a_secret_file_that_others_can_use_is_reported",
    ),
    Mutant(
        "S17", "a token file belongs to the user", "auth/client/storage.py",
        "        if found.st_uid != os.geteuid():", "        if False:",
        "tests/auth/test_tokens.py", "test_a_file_that_another_user_wrote_is_not_used",
    ),
    Mutant(
        "S20", "introspection is bounded", "transports/bearer/issuers.py",
        "auth.introspection.max_concurrent if", "1000 if",
        BEARER, "test_a_flood_of_unknown_tokens_makes_a_bounded_number_of_requests",
    ),
    Mutant(
        "S20", "refusals are cached", "auth/server/checker.py",
        "            if auth.introspection is not None:  # also", "            if auth.cache:  # also",
        BEARER, "test_introspection_refusals_are_remembered_although_valid_tokens_are_not",
    ),
    Mutant(
        "S20", "proxy variables are ignored", "transports/fetch.py",
        "proxy=self.proxy, timeout=None, trust_env=False)", "proxy=self.proxy, timeout=None)",
        BEARER, "test_requests_to_the_issuer_ignore_proxy_variables",
    ),
    # -- defects of sign-ins
    Mutant(
        "E01", "sign-ins are counted, not requests", SOURCE_FILE,
        "        await self._join()\n        if self._is_replaced(sent):\n            return True\n"
        "        scopes, tried",
        "        self._step_ups[sent.scopes] = self._step_ups.get(sent.scopes, 0) + 1\n"
        "        if self._step_ups[sent.scopes] > MAX_STEP_UPS:\n            return False\n"
        "        await self._join()\n        if self._is_replaced(sent):\n            return True\n"
        "        scopes, tried",
        SOURCE, "test_concurrent_step_ups_share_one_sign_in",
    ),
    Mutant(
        "E01", "a step-up that ended meanwhile is used", SOURCE_FILE,
        "        await self._join()\n        if self._is_replaced(sent):\n            return True\n"
        "        scopes, tried",
        "        await self._join()\n        scopes, tried",
        SOURCE, "test_concurrent_step_ups_share_one_sign_in",
    ),
    Mutant(
        "E02", "the stored tokens are read before a renewal", "auth/client/acquire.py",
        "    if stored is None or stored.same_as(need.tokens):\n", "    if True:\n        stored = need.tokens\n",
        ACQUIRE, "test_tokens_that_another_client_has_renewed_are_used",
    ),
    Mutant(
        "E02", "a renewal locks its record", "auth/client/acquire.py",
        "    yield Lock(key=need.key)\n    stored", "    stored",
        CLIENT, "test_processes_that_share_a_token_file_never_present_a_used_refresh_token",
    ),
    Mutant(
        "E02", "a record is locked by one process at a time", "auth/client/storage.py",
        "            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "            pass\n",
        "tests/auth/test_tokens.py", "test_a_record_is_locked_by_one_client_at_a_time",
    ),
    Mutant(
        "E03", "a refused client reads what another has stored", "auth/client/acquire.py",
        "            other = yield from adopt(grant, need)\n", "            other = None\n",
        ACQUIRE, "test_a_refused_client_keeps_the_tokens_that_another_stored_meanwhile",
    ),
    Mutant(
        "E04", "the nonce of each proof is remembered", SOURCE_FILE,
        "return self._nonces.of(self.endpoint) != sent.nonce and",
        "return self._nonces.of(self.endpoint) != before and",
        SOURCE, "test_every_request_in_flight_is_repeated_when_the_nonce_changes",
        (
            (
                SOURCE_FILE,
                "        if self.endpoint is not None:\n            self._nonces.learn",
                "        global before\n        before = None\n        if self.endpoint is not None:\n"
                "            before = self._nonces.of(self.endpoint)\n            self._nonces.learn",
            ),
        ),
    ),
    Mutant(
        "E05", "a renewal uses the registration of its tokens", "auth/client/code_grant.py",
        "self.own or tokens.registration or Credentials", "self.own or Credentials",
        ACQUIRE, "test_a_refresh_uses_the_registration_that_the_tokens_were_issued_to",
    ),
    Mutant(
        "E05", "tokens are stored with their registration", "auth/client/code_grant.py",
        "    registration = known.credentials if known.registered else None\n", "    registration = None\n",
        ACQUIRE, "test_one_client_registers_at_an_issuer_at_a_time",
    ),
    Mutant(
        "E05", "one client registers at an issuer at a time", "auth/client/registration.py",
        "    yield Lock(key=key)  # one registration", "    # one registration",
        ACQUIRE, "test_one_client_registers_at_an_issuer_at_a_time",
    ),
    Mutant(
        "E08", "a short token is renewed in its last quarter", "auth/client/tokens.py",
        "            before = min(before, (self.expires_at - self.obtained_at) / 4)\n", "            pass\n",
        SOURCE, "test_a_short_lived_token_is_used_for_three_quarters_of_its_life",
    ),
    Mutant(
        "E08", "a renewal needs no discovery", "auth/client/binding.py",
        "    if need.refused or tokens is None or tokens.token_endpoint is None:\n", "    if True:\n",
        ACQUIRE, "test_a_renewal_needs_no_discovery",
    ),
    Mutant(
        "E10", "a request that starts does not wait for the user", SOURCE_FILE,
        "        if tokens.is_expired(now) and not flight.may_ask:\n", "        if tokens.is_expired(now):\n",
        SOURCE, "test_a_request_that_starts_during_a_sign_in_waits_where_timeouts_are_paused",
    ),
    Mutant(
        "E10", "timeouts are paused during a sign-in", "client/timeouts.py",
        "        with self.timeouts.answering(), trio.move_on_after(self.limit):\n",
        "        with trio.move_on_after(self.limit):\n",
        CLIENT, "test_calls_that_start_or_end_during_a_sign_in_do_not_disturb_it",
    ),
    Mutant(
        "E10", "the opening of a legacy stream waits for the user", f"{HTTP_CLIENT}/http.py",
        "                if auth is not None and await auth.on_response(head_of(about, response)):\n",
        "                done = None\n                with trio.move_on_after(timeout):\n"
        "                    done = auth is not None and await auth.on_response(head_of(about, response))\n"
        "                if done:\n",
        "tests/transports/test_legacy_sse_client.py",
        "test_a_sign_in_may_take_longer_than_the_server_has_for_its_url",
    ),
    Mutant(
        "E12", "a sign-in clears the cache", "client/timeouts.py",
        "            if signed_in:\n                self.on_signed_in()\n", "",
        "tests/client/test_cache.py", "test_signing_in_again_makes_everything_stale",
    ),
    Mutant(
        "E13", "a browser has a session of its own", "transports/oauth/browser.py",
        ", start_new_session=True)", ")",
        CLIENT, "test_a_browser_that_stays_in_the_foreground_is_not_ended",
    ),
    Mutant(
        "E13", "a browser is not killed after its start", "transports/oauth/browser.py",
        "    return True  # a browser that stays", "    process.kill()\n    return True  # a browser that stays",
        CLIENT, "test_a_browser_that_stays_in_the_foreground_is_not_ended",
    ),
]  # fmt: skip
