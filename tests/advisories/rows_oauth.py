"""Mutants for the guards of authentication and sign-in."""

from __future__ import annotations

from .mutant import Mutant

BEARER = "tests/transports/bearer/test_authorizer.py"
CLIENT = "tests/e2e/test_oauth_client.py"
DPOP = "tests/auth/server/test_dpop.py"
DEPENDENCIES = "tests/advisories/test_dependencies.py"
SECRETS = "tests/cli/test_secrets.py"
SCOPES = "tests/auth/server/test_scopes.py"

MUTANTS = [
    Mutant(
        "S5", "only a Principal identifies a caller", "auth/server/principal.py",
        "    if not isinstance(value, Principal) or not value.key:", "    if False:",
        SCOPES, "test_an_auth_function_that_returns_no_principal_lets_no_caller_in",
    ),
    Mutant(
        "S14", "a principal needs a key", "auth/server/principal.py",
        "    if not isinstance(value, Principal) or not value.key:", "    if not isinstance(value, Principal):",
        SCOPES, "test_only_a_principal_with_a_key_identifies_a_caller",
    ),
    Mutant(
        "S16", "joserfc without an advisory", "../pyproject.toml", '"joserfc>=1.7.4"', '"joserfc>=1.4"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S16", "cryptography without an advisory", "../pyproject.toml", '"cryptography>=46.0.5"', '"cryptography>=46"',
        DEPENDENCIES, "test_the_minimum_version_has_no_known_advisory",
    ),
    Mutant(
        "S9", "each key has a share of the proofs", "auth/server/dpop.py",
        "        if held >= self.most - len(self._owners):", "        if len(self._owners) >= self.most:",
        DPOP, "test_a_key_that_uses_many_proofs_takes_no_room_from_others",
    ),
    Mutant(
        "S9", "a full table forgets nothing", "auth/server/dpop.py",
        "            raise Unavailable(f\"too many proofs of possession of one key",
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
        "_has_credentials(headers) and not _is_private(where):", "False:",
        SECRETS, "test_a_token_is_not_sent_unencrypted_to_another_machine",
    ),
    Mutant(
        "S17", "a file that the group can read is reported", "cli/auth.py",
        "    if mode & (stat.S_IRWXG | stat.S_IRWXO):", "    if mode & stat.S_IROTH:",
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
]  # fmt: skip
