"""Headers of a client that go no further: those in which the authorization service speaks to the origin."""

from collections.abc import Iterable
from typing import Final, assert_never

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2 as pb
from envoy.type.matcher.v3 import string_pb2

from authplane.controlplane.graph.model.route_authorization import (
    Enforced,
    HeaderNames,
    NameTest,
    OverHttp,
    RouteAuthorization,
)
from authplane.controlplane.render.ext_authz_filter import header_matcher
from authplane.policy.check.auth_headers import CONTEXT_PREFIX, OWNED_HEADERS

STRIP: Final = "envoy.filters.http.header_mutation"
"""The filter that removes them, before any check: headers that the service adds stay."""

_KEPT: Final = (
    ":authority", ":method", ":path", ":protocol", ":scheme", "authorization", "connection", "content-length",
    "content-type", "cookie", "host", "proxy-authorization", "te", "transfer-encoding", "upgrade",
)  # fmt: skip
"""Headers that frame a request or identify the client: they stay, even if a service also sets them."""


def render_strip() -> pb.HeaderMutation:
    """Render the filter: it removes what our own backends set, on every route."""
    prefix = string_pb2.StringMatcher(prefix=CONTEXT_PREFIX)
    return pb.HeaderMutation(
        mutations=pb.Mutations(
            request_mutations=[
                *(mutation_rules_pb2.HeaderMutation(remove=name) for name in OWNED_HEADERS),
                _removed(prefix),
            ]
        )
    )


def render_strip_more(names: Iterable[HeaderNames]) -> pb.HeaderMutationPerRoute:
    """Render what a route removes beside that."""
    mutations = [_removed(header_matcher(each)) for each in names]
    return pb.HeaderMutationPerRoute(mutations=pb.Mutations(request_mutations=mutations))


def stripped_names(promised: tuple[HeaderNames, ...], authorization: RouteAuthorization) -> tuple[HeaderNames, ...]:
    """Return the rules for headers of a service that Envoy removes from a client's request on this route.

    An authorization service that reads a header judges its value. Envoy can remove all headers that a rule selects, or
    none: a rule that selects a header that has to stay removes none.
    """
    kept = tuple(HeaderNames(test=NameTest.EXACT, text=name) for name in _KEPT)
    protocol = authorization.service.protocol if isinstance(authorization, Enforced) else None
    read = protocol.request_headers if isinstance(protocol, OverHttp) else ()
    return tuple(each for each in promised if not any(_overlap(each, other) for other in (*kept, *read)))


def _removed(matcher: string_pb2.StringMatcher) -> mutation_rules_pb2.HeaderMutation:
    message = mutation_rules_pb2.HeaderMutation()
    message.remove_on_match.key_matcher.CopyFrom(matcher)
    return message


def _overlap(one: HeaderNames, other: HeaderNames) -> bool:
    """Tell whether a name may exist that both rules select."""
    if other.test is NameTest.EXACT:
        return _selects(one, other.text)
    if one.test is NameTest.EXACT:
        return _selects(other, one.text)
    if one.test is other.test is NameTest.PREFIX:
        return one.text.startswith(other.text) or other.text.startswith(one.text)
    if one.test is other.test is NameTest.SUFFIX:
        return one.text.endswith(other.text) or other.text.endswith(one.text)
    return True


def _selects(rule: HeaderNames, name: str) -> bool:
    match rule.test:
        case NameTest.EXACT:
            return name == rule.text
        case NameTest.PREFIX:
            return name.startswith(rule.text)
        case NameTest.SUFFIX:
            return name.endswith(rule.text)
        case NameTest.CONTAINS:
            return rule.text in name
        case _:
            assert_never(rule.test)
