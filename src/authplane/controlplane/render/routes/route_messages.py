"""Routes: what they match, what they do, and what they tell the filters before them, logs and local replies."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple, assert_never

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from google.protobuf.struct_pb2 import Struct, Value

from authplane.controlplane.graph.gateway.route_entries import RESOURCE
from authplane.controlplane.graph.model.host_model import Host, IdentityHeaders, ReservedHeaders, ServiceHeaders
from authplane.controlplane.graph.model.route_authorization import (
    ByTarget,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.listeners.filter_chain import Chain, per_route
from authplane.controlplane.render.native.denial_replies import MCP_ROUTE, challenge_fields
from authplane.controlplane.render.native.denial_replies import ROUTE as METADATA
from authplane.controlplane.render.native.native_enforcement import Placed, placed_of
from authplane.controlplane.render.resource_parts import Part
from authplane.controlplane.render.routes.action_messages import TargetExtras, add_action
from authplane.controlplane.render.routes.match_messages import render_match
from authplane.controlplane.render.stripped_headers import STRIP, render_strip_more, stripped_names
from authplane.policy.decide.denials import realm_of, scopes_of
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS


class Common(NamedTuple):
    """What the routes of a host have in common."""

    scheme: str
    chain: Chain
    reserved: ReservedHeaders | None


def route_parts(host: Host, common: Common) -> Iterator[Part]:
    """Return the routes of a host, in order."""
    for route in host.routes:
        yield Part("route", route, partial(_route, route, common), common)


def answer(match: pb.RouteMatch, status: int, chain: Chain) -> pb.Route:
    """Answer by ourselves: nothing behind is reached."""
    return pb.Route(
        match=match,
        direct_response=pb.DirectResponseAction(status=status),
        typed_per_filter_config=per_route(chain, Unprotected()),
    )


def unmatched(status: int, chain: Chain) -> pb.Route:
    """Answer what no other route takes."""
    return answer(pb.RouteMatch(prefix="/"), status, chain)


def _route(route: Route, common: Common) -> pb.Route:
    message = pb.Route(
        name=route.name,
        match=render_match(route.match),
        metadata=_metadata(_word(route), _protocol(route) | _told(route, common)),
    )
    beside = [_beside(each, common) for each in route.authorizations]
    if isinstance(route.authorization, ByTarget):
        add_action(message, route, beside)
        return message
    [own] = beside
    if isinstance(route.action, Forward):
        message.request_headers_to_remove.extend(own.removed)
    for name, changed in own.changes.items():
        message.typed_per_filter_config[name].CopyFrom(changed)
    add_action(message, route)
    return message


def _beside(authorization: RouteAuthorization, common: Common) -> TargetExtras:
    changes = per_route(common.chain, authorization)
    if isinstance(common.reserved, ServiceHeaders) and common.reserved.more:
        names = stripped_names(common.reserved.more, authorization)
        if names:
            changes[STRIP] = pack(render_strip_more(names))
    return TargetExtras(_removed(authorization, common), changes)


def _removed(authorization: RouteAuthorization, common: Common) -> list[str]:
    """Return the headers that Envoy removes; an enforced authorization service removes them itself."""
    if not isinstance(common.reserved, IdentityHeaders):
        return []
    if not isinstance(authorization, Enforced) or isinstance(authorization.service.on_failure, Shadow):
        return list(IDENTITY_HEADERS)
    placing, placed = authorization.placing, _placed(authorization, common.chain)
    if placing is None or placed is None or placed.decide is None:
        return []
    return [*(["authorization"] if placing.chain.uses_tokens else []), *IDENTITY_HEADERS]


# --- Metadata


def _metadata(authorization: str, more: Mapping[str, str]) -> base_pb2.Metadata:
    """Return metadata for the access log, with the authorization of the request, and for local replies."""
    texts = {"authorization": authorization, **more}
    fields = Struct(fields={name: Value(string_value=text) for name, text in texts.items()})
    return base_pb2.Metadata(filter_metadata={METADATA: fields})


def _word(route: Route) -> str:
    """Name the state of a route for people."""
    words = {_authorization_word(each) for each in route.authorizations}
    return words.pop() if len(words) == 1 else "by-backend"


def _authorization_word(authorization: RouteAuthorization) -> str:
    match authorization:
        case Unprotected():
            return "unprotected"
        case Disabled():
            return "disabled"
        case Enforced(service=service):
            return _enforced_word(service.on_failure)
        case _:
            assert_never(authorization)


def _enforced_word(on_failure: FailClosed | FailOpen | Shadow) -> str:
    match on_failure:
        case FailClosed():
            return "enforced"
        case FailOpen():
            return "fails-open"
        case Shadow():
            return "shadow"
        case _:
            assert_never(on_failure)


def _protocol(route: Route) -> dict[str, str]:
    """Return metadata that marks routes to MCP servers: Envoy's local replies need it."""
    targets = route.action.targets if isinstance(route.action, Forward) else ()
    return MCP_ROUTE if any(target.mcp for target in targets) else {}


def _placed(authorization: RouteAuthorization, chain: Chain) -> Placed | None:
    if chain.natives is None or not isinstance(authorization, Enforced):
        return None
    return placed_of(authorization.placing, chain.natives.envoy)


def _told(route: Route, common: Common) -> dict[str, str]:
    """Return metadata of a route that Envoy decides natively."""
    placed = [found for each in route.authorizations if (found := _placed(each, common.chain)) is not None]
    policies = dict.fromkeys(name for each in placed for name in each.policies)
    return {"policies": " ".join(policies), **_challenge(route, common)} if placed else {}


def _challenge(route: Route, common: Common) -> dict[str, str]:
    """Return the challenge for clients without a token."""
    for authorization in route.authorizations:
        placed = _placed(authorization, common.chain)
        if placed is None or not isinstance(authorization, Enforced) or authorization.placing is None:
            continue
        guards, resource = authorization.placing.chain.attachments, dict(authorization.context).get(RESOURCE, "")
        if placed.wants_tokens and resource:
            return challenge_fields(common.scheme, realm_of(guards), resource, scopes_of(guards))
    return {}
