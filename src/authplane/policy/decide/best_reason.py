"""Picks the reason that explains a denial best, if several things kept a policy from granting a request.

The decision log, `check`, `explain` and the body that the client gets all name this one. The order, the best first:

1. There is no decision: issuer keys are not loaded, an external service did not answer.
2. Only scopes are missing, or no rule recognises the sender and a token could change that (401).
3. The message is ambiguous (``mcp:``).
4. An external service denied the request.
5. An expression is false, and its author wrote a message for the client.
6. The request differs from what a rule lists: another tool, method, path, host, port or header.
7. An expression is false.
8. No rule recognises the sender, and no token could change that.
9. The request is not of the kind that the rule is about: not a tool call, not MCP.
10. An expression failed: it says nothing about this request, so it is the last to blame.
11. The rule grants nothing.

1, 2 and 8 are about the sender or the whole policy; the others are about one entry of a rule.
"""

from enum import IntEnum
from typing import Final


class Weight(IntEnum):
    """How well the reason of one entry explains a denial."""

    GRANTS_NOTHING = 0
    FAILED = 1
    OTHER_KIND = 2
    SENDER = 3
    """No rule recognises the sender, and no token could change that."""
    FALSE = 4
    DIFFERS = 5
    WORDED = 6
    DECLINED = 7
    AMBIGUOUS = 8


NO_MCP: Final = "not_an_mcp_request"
NOT_A_TOOL: Final = "not_a_tool_call"
CEL_FALSE: Final = "cel_false"
CEL_ERROR: Final = "cel_error:"
GRANTS_NOTHING: Final = "grants_nothing"
MCP: Final = "mcp:"
EXTERNAL: Final = "external:"

_EQUAL: Final = {
    GRANTS_NOTHING: Weight.GRANTS_NOTHING,
    NO_MCP: Weight.OTHER_KIND,
    NOT_A_TOOL: Weight.OTHER_KIND,
    CEL_FALSE: Weight.FALSE,
}
_BEGINS: Final = {CEL_ERROR: Weight.FAILED, MCP: Weight.AMBIGUOUS, EXTERNAL: Weight.DECLINED}


def weight_of(reason: str, message: str = "") -> Weight:
    """Return how well the reason of an entry explains a denial; ``message`` is what its author says to the client."""
    if message:
        return Weight.WORDED
    known = _EQUAL.get(reason)
    if known is not None:
        return known
    return next((weight for start, weight in _BEGINS.items() if reason.startswith(start)), Weight.DIFFERS)
