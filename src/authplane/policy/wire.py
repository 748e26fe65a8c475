"""Checks as Envoy's messages: ``envoy.service.auth.v3``."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, assert_never

from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from envoy.type.v3 import http_status_pb2
from google.protobuf import timestamp_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from authplane.policy.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.headers import fit_name
from authplane.policy.request import Malformed, Peer, Request

_OK: Final = 0
_PERMISSION_DENIED: Final = 7
_UNAVAILABLE: Final = 14
_UNAUTHENTICATED: Final = 16

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62_135_596_800
_LAST: Final = 253_402_300_799
"""The seconds that a date can have: the years 1 to 9999."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_NO_PEER: Final = Peer()
_NO_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({})


def parse_check(body: bytes) -> Request | Malformed:
    """Read a CheckRequest; what lacks a method, a path or headers is malformed."""
    try:
        attributes = pb.CheckRequest.FromString(body).attributes
    except DecodeError:
        return Malformed(reason="the message is not a CheckRequest")
    request = attributes.request
    http = request.http
    method, host = http.method, http.host
    path, _, query = http.path.partition("?")
    headers = _headers(http)
    reason = _fault(method, path, host) or _header_fault(http, headers)
    if reason:
        return Malformed(reason=reason)
    context = attributes.context_extensions
    return Request(
        method=method,
        scheme=http.scheme,
        host=host or next((value for name, value in headers if name == ":authority"), ""),
        path=path,
        query=query or http.query,
        headers=headers,
        context=MappingProxyType(dict(sorted(context.items()))) if context else _NO_CONTEXT,
        id=http.id,
        source=_peer(attributes.source) if attributes.HasField("source") else _NO_PEER,
        destination=_peer(attributes.destination) if attributes.HasField("destination") else _NO_PEER,
        body=http.raw_body or http.body.encode(),
        time=_time(request.time) if request.HasField("time") else None,
    )


def render_decision(decision: Decision) -> bytes:
    """Build the CheckResponse; only an `Allow` has the status OK.

    An empty CheckResponse would let the call through, so each branch makes a whole message at once.
    """
    match decision:
        case Allow():
            response = _allowed(decision)
        case Deny():
            response = _denied(decision)
        case Unavailable():
            response = _undecided()
        case _:
            assert_never(decision)
    return response.SerializeToString(deterministic=True)


def render_failure() -> bytes:
    """Build the CheckResponse for a check that failed by a fault of ours: a denial.

    Unlike that of `Unavailable` it holds even where the proxy lets calls pass without a decision, since a client that
    knows how to cause the fault could otherwise choose to pass.
    """
    response = pb.CheckResponse(status=status_pb2.Status(code=_UNAVAILABLE), denied_response=_reply(503))
    return response.SerializeToString(deterministic=True)


def _fault(method: str, path: str, host: str) -> str:
    """Name the first attribute that is absent or unfit; empty means that all are there."""
    # One search for all three: what is fit is the rule.
    if method and path.startswith("/") and not _UNPRINTABLE.search(f"{method}{path}{host}"):
        return ""
    for name, value in (("method", method), ("path", path), ("host", host)):
        if not value and name != "host":
            return f"the request has no {name}"
        if _UNPRINTABLE.search(value):
            return f"the {name} has a blank or a control character"
    return "" if path == "*" else "the path does not start with a slash"


def _header_fault(
    http: attribute_context_pb2.AttributeContext.HttpRequest, headers: tuple[tuple[str, str], ...]
) -> str:
    """Say what is wrong with the headers; a message with neither form of them cannot come from a proxy."""
    if not headers and not http.HasField("header_map"):
        return "the request has no headers"
    for name, _ in headers:
        if not _known_name(name):
            return "a header has an invalid name"
    return ""


# Clients send the same names again and again.
@lru_cache(maxsize=4096)
def _known_name(name: str) -> bool:
    return fit_name(name.removeprefix(":"))


def _headers(http: attribute_context_pb2.AttributeContext.HttpRequest) -> tuple[tuple[str, str], ...]:
    """Join both forms: a proxy that sends raw headers fills ``header_map`` and leaves ``headers`` empty."""
    if not http.HasField("header_map"):
        values = http.headers
        return tuple(sorted([(name.lower(), values[name]) for name in values]))
    listed = tuple(
        (header.key.lower(), header.raw_value.decode(errors="surrogateescape") if header.raw_value else header.value)
        for header in http.header_map.headers
    )
    known = set(listed)
    mapped = ((name.lower(), value) for name, value in sorted(http.headers.items()))
    return (*listed, *(pair for pair in mapped if pair not in known))


def _peer(peer: attribute_context_pb2.AttributeContext.Peer) -> Peer:
    address, port = _address(peer.address)
    return Peer(principal=peer.principal, address=address, port=port, certificate=peer.certificate)


def _address(address: address_pb2.Address) -> tuple[str, int]:
    if address.HasField("pipe"):
        return address.pipe.path, 0
    return address.socket_address.address, address.socket_address.port_value


def _time(stamp: timestamp_pb2.Timestamp) -> datetime | None:
    if not (_FIRST <= stamp.seconds <= _LAST and 0 <= stamp.nanos < 1_000_000_000):
        return None
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def _allowed(allow: Allow) -> pb.CheckResponse:
    # Envoy removes after it has set: a name in both lists would be lost.
    kept = {name.lower() for name, _ in allow.edits.set}
    return pb.CheckResponse(
        status=status_pb2.Status(code=_OK),
        ok_response=pb.OkHttpResponse(
            headers=[_option(name, value) for name, value in allow.edits.set],
            headers_to_remove=[name for name in allow.edits.remove if name.lower() not in kept],
            response_headers_to_add=[_added(name, value) for name, value in allow.response_headers],
        ),
    )


def _denied(deny: Deny) -> pb.CheckResponse:
    return pb.CheckResponse(
        status=status_pb2.Status(code=_UNAUTHENTICATED if deny.http_status == 401 else _PERMISSION_DENIED),
        denied_response=_reply(deny.http_status, deny.headers, deny.body),
    )


def _undecided() -> pb.CheckResponse:
    """Tell that there is no decision: an Envoy that does not know ``error_response`` reads a denial."""
    return pb.CheckResponse(status=status_pb2.Status(code=_UNAVAILABLE), error_response=_reply(503))


def _reply(status: int, headers: tuple[tuple[str, str], ...] = (), body: str = "") -> pb.DeniedHttpResponse:
    # The enumeration is open on the wire: Envoy sends codes that it does not name, such as 451.
    code = http_status_pb2.StatusCode.ValueType(status)
    return pb.DeniedHttpResponse(
        status=http_status_pb2.HttpStatus(code=code),
        headers=[_option(name, value) for name, value in headers],
        body=body,
    )


def _added(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Add a header to the response: what the origin sends under that name stays."""
    actions = base_pb2.HeaderValueOption.HeaderAppendAction
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, value=value), append_action=actions.APPEND_IF_EXISTS_OR_ADD
    )


def _option(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Say "do not append": in a request that replaces, in a denial it lets a name stand twice."""
    option = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value))
    option.append.value = False
    return option
