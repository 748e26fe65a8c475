"""What a route does."""

from collections.abc import Iterable
from typing import Final, assert_never

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.controlplane.graph.model.route_model import Forward, Redirect, RedirectToHttps, Respond, Route, Target
from authplane.controlplane.render.envoy_pieces import limit
from authplane.core.header_edits import NO_EDITS, HeaderEdits

_CODES: Final = {
    301: pb.RedirectAction.RedirectResponseCode.MOVED_PERMANENTLY,
    302: pb.RedirectAction.RedirectResponseCode.FOUND,
    303: pb.RedirectAction.RedirectResponseCode.SEE_OTHER,
    307: pb.RedirectAction.RedirectResponseCode.TEMPORARY_REDIRECT,
    308: pb.RedirectAction.RedirectResponseCode.PERMANENT_REDIRECT,
}


def add_action(message: pb.Route, route: Route) -> None:
    """Put into a route what it does."""
    match route.action:
        case Forward():
            message.route.CopyFrom(_forward(route.action))
        case RedirectToHttps(port):
            # Named only if it is not what https means anyway: otherwise it would stand in every address.
            message.redirect.CopyFrom(pb.RedirectAction(https_redirect=True, port_redirect=port if port != 443 else 0))
        case Redirect():
            message.redirect.CopyFrom(_redirect(route.action))
        case Respond(status=status, body=body):
            message.direct_response.CopyFrom(_respond(status, body))
        case _:
            assert_never(route.action)
    message.request_headers_to_add.extend(_set(route.request_headers))
    message.request_headers_to_remove.extend(route.request_headers.remove)
    message.response_headers_to_add.extend(_set(route.response_headers))
    message.response_headers_to_remove.extend(route.response_headers.remove)


def _forward(forward: Forward) -> pb.RouteAction:
    message = pb.RouteAction(
        timeout=limit(forward.response_timeout),
        idle_timeout=limit(forward.idle_timeout),
        prefix_rewrite=forward.replace_prefix or "",
    )
    # Envoy lets the host of a route go before that of a target, so it stands in one of the two places.
    by_target = any(target.host for target in forward.targets)
    if forward.host and not by_target:
        message.host_rewrite_literal = forward.host
    if forward.websockets:
        message.upgrade_configs.add(upgrade_type="websocket")
    if len(forward.targets) == 1 and _is_plain(forward.targets[0]):
        message.cluster = forward.targets[0].cluster
    else:
        otherwise = forward.host if by_target else ""
        message.weighted_clusters.clusters.extend(_share(target, otherwise) for target in forward.targets)
    if forward.mirror is not None:
        mirrored = message.request_mirror_policies.add(cluster=forward.mirror.cluster)
        mirrored.runtime_fraction.default_value.numerator = forward.mirror.percent  # of a hundred
    return message


def _is_plain(target: Target) -> bool:
    return not target.host and target.request_headers == NO_EDITS and target.response_headers == NO_EDITS


def _share(target: Target, otherwise: str) -> pb.WeightedCluster.ClusterWeight:
    share = pb.WeightedCluster.ClusterWeight(
        name=target.cluster,
        weight=UInt32Value(value=target.weight),
        request_headers_to_add=_set(target.request_headers),
        request_headers_to_remove=target.request_headers.remove,
        response_headers_to_add=_set(target.response_headers),
        response_headers_to_remove=target.response_headers.remove,
    )
    if target.host or otherwise:
        share.host_rewrite_literal = target.host or otherwise
    return share


def _set(edits: HeaderEdits) -> Iterable[base_pb2.HeaderValueOption]:
    return [
        base_pb2.HeaderValueOption(
            # Envoy would fill in what stands between percent signs.
            header=base_pb2.HeaderValue(key=name, value=value.replace("%", "%%")),
            append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name, value in edits.set
    ]


def _redirect(redirect: Redirect) -> pb.RedirectAction:
    message = pb.RedirectAction(
        host_redirect=redirect.host, port_redirect=redirect.port or 0, response_code=_CODES[redirect.status]
    )
    if redirect.scheme:
        message.scheme_redirect = redirect.scheme
    if redirect.path is not None:
        message.path_redirect = redirect.path
    if redirect.prefix is not None:
        message.prefix_rewrite = redirect.prefix
    return message


def _respond(status: int, body: str) -> pb.DirectResponseAction:
    return pb.DirectResponseAction(status=status, body=base_pb2.DataSource(inline_string=body) if body else None)
