"""Does a call cost more when a thousand tools are registered?"""

from __future__ import annotations

from contenders import ENGINES, Contender, Effort, Row, Servers

from questions.tools_call import ADD, stateful_cost


def growth(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the cost of a call with a thousand tools divided by that with ten."""
    few = servers.get(contender, "--form", "json", "--tools", "10")
    many = servers.get(contender, "--form", "json", "--tools", "1000")
    pairs = [(stateful_cost(few, ADD, effort), stateful_cost(many, ADD, effort)) for _ in range(3)]
    return min(with_many for _, with_many in pairs) / min(with_few for with_few, _ in pairs)


ROWS = (
    Row(
        key="growth-tools",
        title="cost of a call with 1,000 tools over that with 10",
        unit="×",
        contenders=ENGINES,
        measure=growth,
    ),
)
