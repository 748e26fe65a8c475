"""Paths that every server reads in the same way, as a check and as a condition of Envoy's."""

from typing import Final

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.request_checks import Contains, Every, Fits, Header, Not
from authplane.cel.envoy.request_checks import Path as PathCheck

_OTHER: Final = r"[A-Za-z0-9_~!$&'()*+,=:@-]|%(?:[89A-Fa-f][0-9A-Fa-f]|20)"
"""What is no dot."""
_ANY: Final = rf"\.|{_OTHER}"
_SEGMENT: Final = rf"(?:(?:\.\.?)?(?:{_OTHER})|\.\.\.)(?:{_ANY})*"
"""Neither ``.`` nor ``..``, without the lookahead that RE2 does not have."""
CANONICAL: Final = rf"/|(?:/{_SEGMENT})+/?"
"""What the policy engine demands of a path before a rule may look at it."""

PATH: Final = condition_nodes.name("request.url_path")
"""Without the query, unlike Envoy's ``request.path``."""
IS_CANONICAL: Final = condition_nodes.matches(PATH, f"^(?:{CANONICAL})$")
CANONICAL_PATH: Final = condition_nodes.only_if(IS_CANONICAL, PATH)

# A check of the path does not see a fragment, which is no part of a path that servers read in the same way.
CANONICAL_CHECK: Final = Every((Not(Header(":path", Contains("#"))), PathCheck(Fits(CANONICAL))))
