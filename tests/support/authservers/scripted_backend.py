"""A backend whose decision is in the path, for tests of what a proxy makes of it."""

from datetime import datetime
from typing import Final

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request

COOKIES: Final = (("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Path=/"))
EDITS: Final = HeaderEdits(set=(("Auth-Username", "ann"),), remove=("authorization", "auth-realm", "auth_username"))


class Scripted:
    """Does what the path says; any other path is a fault."""

    name: Final = "scripted"

    def decide(self, request: Request, _now: datetime) -> Decision:
        """Look the path up."""
        return _DECISIONS[request.path.rpartition("/")[2]]


_DECISIONS: Final[dict[str, Decision]] = {
    "allow": Allow(edits=EDITS),
    "cookies": Allow(edits=EDITS, response_headers=COOKIES),
    "sign-in": Deny(http_status=302, headers=(("Location", "/in"), *COOKIES), rule="sign in"),
    "unknown": Deny(
        http_status=401,
        headers=(("WWW-Authenticate", 'Basic realm="shop"'), ("Auth-Handler", "scripted")),
        body="Who are you?\n",
        rule="unknown",
    ),
    "forbidden": Deny(http_status=403, body="No.\n", rule="forbidden"),
    "too-often": Deny(http_status=429, body="Later.\n", rule="throttled"),
    "broken": Deny(http_status=502, rule="a denial that looks like a failure"),
    "unavailable": Unavailable(cause="the directory is down"),
    "injection": Allow(edits=HeaderEdits(set=(("Auth-Username", "ann\r\nx-admin: 1"),))),
    "unprintable": Allow(edits=HeaderEdits(set=(("Auth-Username", "é"),))),
}
