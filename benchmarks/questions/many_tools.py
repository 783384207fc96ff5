"""Does a call become dearer when a thousand tools are registered?"""

from __future__ import annotations

from lab import Contender, Effort, Lab, Row

from questions.tools_call import ADD, stateful


def growth(lab: Lab, contender: Contender, effort: Effort) -> float:
    """The cost of a call with a thousand tools, by the cost with ten; in turns."""
    few = lab.server(contender, "--form", "json", "--tools", "10")
    many = lab.server(contender, "--form", "json", "--tools", "1000")
    pairs = [(stateful(few, ADD, effort), stateful(many, ADD, effort)) for _ in range(3)]
    return min(dear for _, dear in pairs) / min(cheap for cheap, _ in pairs)


ROWS = (
    Row(
        key="growth-tools",
        title="cost of a call with 1,000 tools, by that with 10",
        unit="×",
        contenders=("express", "mcptrio"),
        measure=growth,
    ),
)
