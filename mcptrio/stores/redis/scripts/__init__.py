"""The Lua scripts of the Redis store, each one transaction. Their keys have one hash tag: they are in one slot."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Final

from mcptrio._wire.resp import Argument


class Script:
    """One script, which the server knows by the hash of its text."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / f"{name}.lua").read_text()
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: tuple[str, ...], *arguments: Argument) -> tuple[Argument, ...]:
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


APPEND: Final = Script("append")
REMOVE: Final = Script("remove")
CLAIM: Final = Script("claim")
PUT: Final = Script("put")
RELEASE: Final = Script("release")
FORGET: Final = Script("forget")
RENEW: Final = Script("renew")
SWEEP: Final = Script("sweep")
DECLARE_DEAD: Final = Script("declare_dead")
PUT_TASK: Final = Script("put_task")
CLAIM_TASK: Final = Script("claim_task")
MARK: Final = Script("mark")
PUBLISH: Final = Script("publish")
RIGHTS: Final = Script("rights")
TEXTS: Final = {
    script.sha: script.text
    for script in (
        *(APPEND, REMOVE, CLAIM, PUT, RELEASE, FORGET),
        *(RENEW, SWEEP, DECLARE_DEAD),
        *(PUT_TASK, CLAIM_TASK, MARK, PUBLISH, RIGHTS),
    )
}
