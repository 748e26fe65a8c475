"""Paths that every server reads in the same way, as a condition of Envoy's."""

from typing import Final

from authplane.cel.envoy import nodes

_PLAIN: Final = r"^(?:/(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%(?:[89A-Fa-f][0-9A-Fa-f]|20))+)*/?$"
_DOTS: Final = r"/\.\.?(?:/|$)"

PATH: Final = nodes.name("request.url_path")
"""Without the query, unlike Envoy's ``request.path``."""
IS_CANONICAL: Final = nodes.every((nodes.matches(PATH, _PLAIN), nodes.negated(nodes.matches(PATH, _DOTS))))
"""What the policy engine demands of a path before a rule may look at it: RE2 has no lookahead, so it takes two."""
CANONICAL_PATH: Final = nodes.only_if(IS_CANONICAL, PATH)
