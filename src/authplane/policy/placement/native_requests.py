"""Requests that Envoy may decide itself; the policy server decides all others."""

from typing import Final

from authplane.cel.envoy.envoy_attributes import METHOD
from authplane.cel.envoy.request_checks import PRESENT, Equals, Header, Metadata, Not, every
from authplane.cel.envoy.translate import Condition

_UPGRADES: Final = ("http2-settings", "upgrade")
# Envoy does not wait for the body of an upgrade, so no rule could judge it.
_NO_UPGRADE: Final = Condition(
    check=every((Not(Header(":method", Equals("CONNECT"))), *(Not(Header(each, PRESENT)) for each in _UPGRADES)))
)
_IS_PLAIN: Final = Condition(check=Metadata(METHOD, (PRESENT,)), reads_mcp=True)


def build_front(*, is_mcp: bool, reads_mcp: bool) -> Condition:
    """Return the condition of the requests that Envoy may judge; it is a check, which never fails.

    Where rules read MCP these are the messages that the reader inside Envoy calls plain, whose headers it has checked.
    """
    if not is_mcp:
        return Condition()
    return _IS_PLAIN if reads_mcp else _NO_UPGRADE
