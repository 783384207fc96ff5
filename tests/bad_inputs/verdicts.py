"""Compares a reply with what the catalogue says."""

from __future__ import annotations

import json
from typing import Any

from .program import SECRET
from .wire import Reply

KNOWN = {
    "status",
    "code",
    "id",
    "closes",
    "headers",
    "result",
    "is_error",
    "text",
    "empty",
    "continues",
    "data",
    "count",
}


def judge(reply: Reply, expect: dict[str, Any]) -> None:
    """Fail unless the reply is exactly what is expected."""
    unknown = set(expect) - KNOWN
    assert not unknown, f"the catalogue expects {unknown}, which no check compares"
    assert SECRET.encode() not in reply.body, "the text of an exception crossed the wire"
    wanted = expect["status"]
    assert reply.status == wanted, reply
    for name, value in expect.get("headers", {}).items():
        assert reply.headers.get(name.lower(), "-") == value, reply  # "-": it is not there
    assert len(reply.informational) == expect.get("continues", 0), reply.informational
    if expect.get("empty", wanted == 202):
        assert reply.body == b"", reply
        return
    answer = reply.answer
    if "error" in answer:
        # `RequestId` is never null in the schemas: an error that answers nothing readable has no id at all.
        assert "id" not in answer or answer["id"] is not None, answer
    if "code" in expect:
        assert answer.get("error", {}).get("code") == expect["code"], answer or reply
    else:
        assert "error" not in answer or wanted != 200, answer
    if "id" in expect:
        assert answer.get("id", "none") == expect["id"], answer
        assert type(answer.get("id", "none")) is type(expect["id"])
    if "data" in expect:
        for key, value in expect["data"].items():
            assert answer["error"]["data"][key] == value, answer
    if "is_error" in expect:
        assert answer["result"].get("isError", False) is expect["is_error"], answer
    if "text" in expect:
        assert expect["text"] in json.dumps(answer, ensure_ascii=False), answer
    if "result" in expect:
        missing = {key: value for key, value in expect["result"].items() if answer["result"].get(key) != value}
        assert not missing, answer
    if "count" in expect:
        assert len(reply.messages) == expect["count"], reply.messages
