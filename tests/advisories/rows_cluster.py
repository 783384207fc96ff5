"""Mutants for the guards of a cluster."""

from __future__ import annotations

from .mutant import HTTP, Mutant
from .rows_sessions import FOR_ALL

TWO_WORKERS, LINKS = "tests/cluster/test_two_workers.py", "tests/cluster/test_links.py"
ROUTING, SCRIPTS = f"{HTTP}/endpoint/routing.py", "stores/redis/scripts"

MUTANTS = [
    Mutant(
        "R1",
        "an append carries the epoch of its session",
        f"{SCRIPTS}/append.lua",
        "  if epoch ~= ARGV[1] then return -1 end\n",
        "",
        "tests/stores/test_redis_directory.py",
        "test_a_late_event_of_an_earlier_epoch_is_refused",
    ),
    Mutant(
        "R2",
        "an event that was refused is not shown",
        "stores/redis/store.py",
        "        return upto <= stream.written or not (self.holds_back or stream.epoch == LOST)",
        "        return True",
        "tests/stores/test_redis_directory.py",
        "test_events_are_held_back_once_the_lease_has_expired",
    ),
    Mutant(
        "V27",
        "a worker proves that it knows the secret",
        "cluster/channel.py",
        "        if not isinstance(proof, Proof) or not hmac.compare_digest(proof.mac, wanted):",
        "        if not isinstance(proof, Proof):",
        LINKS,
        "test_a_stranger_gets_no_answer",
    ),
    Mutant(
        "V27",
        "a proof names its side",
        "cluster/channel.py",
        '    side = b"dialled" if dialled else b"accepted"',
        '    side = b"dialled"',
        LINKS,
        "test_a_proof_cannot_be_sent_back",
    ),
    Mutant(
        "V23",
        "an invented session is not looked for at another worker",
        ROUTING,
        "if cluster is None or head.remote is not None or not self.sessions.activation.may_exist(session_id, head):",
        "if cluster is None or head.remote is not None:",
        "tests/cluster/test_legacy_sse.py",
        "test_invented_sessions_are_not_looked_for",
    ),
    Mutant(
        "R5",
        "a request that was sent is not sent again",
        "cluster/placement.py",
        "    (_P.REMOTE, _O.BROKEN): (_P.DONE, _S.MAY_HAVE_RUN),",
        "    (_P.REMOTE, _O.BROKEN): (_P.CLAIMING, _S.CLAIM),",
        TWO_WORKERS,
        "test_a_waiting_forward_is_answered_when_the_home_worker_dies",
    ),
    Mutant(
        "V23",
        "a forwarded message is its owner's",
        "transports/legacy_sse/server.py",
        " and link.identity == head.identity",
        "",
        "tests/cluster/test_legacy_sse.py",
        "test_the_session_of_another_client_is_unknown_at_every_worker",
        (FOR_ALL,),
    ),
    Mutant(
        "V23",
        "the caller of a forwarded request is checked",
        f"{HTTP}/endpoint/stateful.py",
        "        if http.identity != head.identity:",
        "        if False:",
        TWO_WORKERS,
        "test_the_caller_is_known_at_the_home_worker_and_others_are_refused",
        (FOR_ALL,),
    ),
    Mutant(
        "R12",
        "a worker that drains claims nothing",
        "cluster/lease.py",
        "        return self.state is LeaseState.LIVE",
        "        return True",
        TWO_WORKERS,
        "test_a_worker_that_drains_claims_nothing",
    ),
    Mutant(
        "V27",
        "a link over a network has TLS",
        "cluster/config.py",
        "        if not given and not _is_loopback(host):",
        "        if False:",
        "tests/cli/test_workers.py",
        "test_bad_options_end_with_one_line",
    ),
    Mutant(
        "F30",
        "two servers do not share a name",
        "cluster/membership.py",
        "            if info.server != self.info.server:",
        "            if False:",
        "tests/cluster/test_membership.py",
        "test_another_server_with_the_same_name_is_refused",
    ),
]
