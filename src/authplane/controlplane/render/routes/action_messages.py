"""Renders the actions of routes."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, assert_never

from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.controlplane.graph.model.match_model import PathMatch, Segments
from authplane.controlplane.graph.model.route_model import (
    Forward,
    NewPath,
    NewPrefix,
    Redirect,
    RedirectToHttps,
    ResourceMetadata,
    Respond,
    Route,
    Target,
)
from authplane.controlplane.render.envoy_pieces import limit
from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.policy.mcp.resource_metadata import render_metadata

NOWHERE: Final = "authplane/nowhere"
"""A cluster that never exists: where the share of a backend goes that cannot be found."""
_NOT_FOUND: Final = pb.RouteAction.ClusterNotFoundResponseCode.INTERNAL_SERVER_ERROR
_AUTHORITY: Final = "%REQ(:AUTHORITY)%"
_SAMPLE: Final = "authority.invalid"
_HTTPS_PORT: Final = 443

_CODES: Final = {
    301: pb.RedirectAction.RedirectResponseCode.MOVED_PERMANENTLY,
    302: pb.RedirectAction.RedirectResponseCode.FOUND,
    303: pb.RedirectAction.RedirectResponseCode.SEE_OTHER,
    307: pb.RedirectAction.RedirectResponseCode.TEMPORARY_REDIRECT,
    308: pb.RedirectAction.RedirectResponseCode.PERMANENT_REDIRECT,
}


class TargetExtras(NamedTuple):
    """What a target adds that is authorized by itself."""

    removed: list[str]
    changes: dict[str, Any]


_NOTHING: Final = TargetExtras([], {})


def add_action(message: pb.Route, route: Route, beside: Sequence[TargetExtras] = ()) -> None:
    """Put into a route what it does; ``beside`` is for each of its targets, or for none."""
    match route.action:
        case Forward():
            message.route.CopyFrom(_forward(route.action, route.match.path, beside))
        case RedirectToHttps():
            message.redirect.CopyFrom(_redirect_to_https(route.action))
        case Redirect():
            message.redirect.CopyFrom(_redirect(route.action))
        case Respond(status=status, body=body):
            message.direct_response.CopyFrom(_respond(status, body))
        case ResourceMetadata():
            message.direct_response.CopyFrom(_document(route.action))
        case _:
            assert_never(route.action)
    message.request_headers_to_add.extend(_set(route.request_headers))
    message.request_headers_to_remove.extend(route.request_headers.remove)
    message.response_headers_to_add.extend(_set(route.response_headers))
    message.response_headers_to_remove.extend(route.response_headers.remove)


# --- Sending on


def _forward(forward: Forward, path: PathMatch, beside: Sequence[TargetExtras]) -> pb.RouteAction:
    message = pb.RouteAction(timeout=limit(forward.response_timeout), idle_timeout=limit(forward.idle_timeout))
    if forward.rewrite is not None:
        _rewrite(message, path, forward.rewrite)
    if any(target.cluster is None for target in forward.targets):
        message.cluster_not_found_response_code = _NOT_FOUND
    # Envoy prefers the host of a route to that of a target, so only one of the two is set.
    by_target = any(target.host for target in forward.targets)
    if forward.host and not by_target:
        message.host_rewrite_literal = forward.host
    if forward.websockets:
        message.upgrade_configs.add(upgrade_type="websocket")
    if len(forward.targets) == 1 and not beside and _is_plain(forward.targets[0]):
        message.cluster = forward.targets[0].cluster or NOWHERE
    else:
        otherwise = forward.host if by_target else ""
        shares = zip(forward.targets, beside or [_NOTHING] * len(forward.targets), strict=True)
        message.weighted_clusters.clusters.extend(_share(target, otherwise, own) for target, own in shares)
    if forward.mirror is not None:
        mirrored = message.request_mirror_policies.add(cluster=forward.mirror.cluster)
        mirrored.runtime_fraction.default_value.numerator = forward.mirror.percent  # of a hundred
    return message


def _is_plain(target: Target) -> bool:
    return not target.host and target.request_headers == NO_EDITS and target.response_headers == NO_EDITS


def _share(target: Target, otherwise: str, beside: TargetExtras) -> pb.WeightedCluster.ClusterWeight:
    share = pb.WeightedCluster.ClusterWeight(
        name=target.cluster or NOWHERE,
        weight=UInt32Value(value=target.weight),
        request_headers_to_add=_set(target.request_headers),
        request_headers_to_remove=(*target.request_headers.remove, *beside.removed),
        response_headers_to_add=_set(target.response_headers),
        response_headers_to_remove=target.response_headers.remove,
        typed_per_filter_config=beside.changes,
    )
    if target.host is not None or otherwise:
        share.host_rewrite_literal = target.host or otherwise
    return share


def _rewrite(action: pb.RouteAction, path: PathMatch, rewrite: NewPrefix | NewPath) -> None:
    match rewrite:
        case NewPath(new):
            action.regex_rewrite.CopyFrom(_replaced("^/.*$", new))
        case NewPrefix("/") if isinstance(path, Segments):
            # Otherwise the slash after the prefix would be the second one.
            action.regex_rewrite.CopyFrom(_replaced(f"^{re.escape(path.path)}/*", "/"))
        case NewPrefix(new):
            action.prefix_rewrite = new
        case _:
            assert_never(rewrite)


def _replaced(pattern: str, path: str) -> regex_pb2.RegexMatchAndSubstitute:
    return regex_pb2.RegexMatchAndSubstitute(pattern=regex_pb2.RegexMatcher(regex=pattern), substitution=path)


def _set(edits: HeaderEdits) -> Iterable[base_pb2.HeaderValueOption]:
    return [
        base_pb2.HeaderValueOption(
            # Envoy would substitute text between percent signs.
            header=base_pb2.HeaderValue(key=name, value=value.replace("%", "%%")),
            append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name, value in edits.set
    ]


# --- Answering


def _redirect_to_https(redirect: RedirectToHttps) -> pb.RedirectAction:
    """Render a redirect that never keeps the port of the request's Host header: that one is not for TLS.

    Envoy's ``https_redirect`` drops port 80 alone. It drops others if the action has a host or a port. With a host,
    the default port of https can stay out of the address.
    """
    in_address = redirect.port != _HTTPS_PORT or not redirect.host
    return pb.RedirectAction(
        https_redirect=True, host_redirect=redirect.host, port_redirect=redirect.port if in_address else 0
    )


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


def _document(action: ResourceMetadata) -> pb.DirectResponseAction:
    """Render the document with the host that the client sent: the client knows the resource by that name."""
    path = "" if action.path == "/" else action.path
    text = render_metadata(f"{action.scheme}://{_SAMPLE}{path}", action.issuers, action.scopes)
    fields = {name: _escaped(value) for name, value in json.loads(text).items()}
    fields["resource"] = f"{action.scheme}://{_AUTHORITY}{_escaped(path)}"
    body = Struct()
    body.update(fields)
    return pb.DirectResponseAction(
        status=200, body_format=substitution_format_string_pb2.SubstitutionFormatString(json_format=body)
    )


def _escaped(value: Any) -> Any:
    """Keep Envoy from substituting text between percent signs."""
    if isinstance(value, str):
        return value.replace("%", "%%")
    return [_escaped(each) for each in value] if isinstance(value, list) else value
