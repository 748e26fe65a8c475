"""Checks over gRPC: Envoy's ``envoy.service.auth.v3``, from the client's side."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.request import Peer, Request
from authplane.policy.external_authorization.check_hops import HOPS, hops_of
from authplane.policy.external_authorization.forwarded_headers import PARTIAL, told_headers
from authplane.policy.external_authorization.service_replies import added_headers, build_declined, is_for_proxies
from authplane.policy.rules.external_service import OverGrpc
from authplane.policy.verdicts.effects import Ask, Declined, Granted, NoAnswer

_FORBIDDEN: Final = 403
_APPEND: Final = base_pb2.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD
_Context = attribute_context_pb2.AttributeContext


def render_question(ask: Ask, protocol: OverGrpc) -> bytes:
    """Build the CheckRequest about a request."""
    request = ask.request
    body = request.body if ask.service.most_body else b""
    headers = _headers(request, protocol)
    if ask.service.most_body:
        headers[PARTIAL] = "false"  # a part is never sent
    http = _Context.HttpRequest(
        id=request.id,
        method=request.method,
        headers=headers,
        path=f"{request.path}?{request.query}" if request.query else request.path,
        host=request.host,
        scheme=request.scheme,
        size=len(body) if ask.service.most_body else -1,
    )
    try:
        http.body = body.decode()
    except UnicodeDecodeError:
        http.raw_body = body
    about = _Context.Request(http=http)
    if request.time is not None:
        about.time.FromDatetime(request.time)
    attributes = _Context(
        source=_peer(request.source),
        destination=_peer(request.destination),
        request=about,
        context_extensions={HOPS: str(hops_of(request) + 1)},
        metadata_context=base_pb2.Metadata(filter_metadata=_metadata(ask.metadata)),
    )
    return pb.CheckRequest(attributes=attributes).SerializeToString()


def parse_answer(reply: bytes) -> Granted | Declined | NoAnswer:
    """Return the decision of a CheckResponse.

    In Envoy an empty response allows; here it is no answer. A response with changes that cannot all be applied is no
    answer either.
    """
    try:
        response = pb.CheckResponse.FromString(reply)
    except DecodeError:
        return NoAnswer("the response is not a CheckResponse")
    kind = response.WhichOneof("http_response")
    if kind == "error_response":
        return NoAnswer("the service returned an error instead of a decision")
    if response.status.code:
        return _declined(response.denied_response)
    if kind == "denied_response":
        return NoAnswer("the response has a denied_response, but its status is OK or not set")
    if not (kind or response.HasField("status")):
        return NoAnswer("the response is empty")
    return _granted(response.ok_response)


def _headers(request: Request, protocol: OverGrpc) -> dict[str, str]:
    """Return the headers by name, several values joined; what is not UTF-8 cannot be said so."""
    found: dict[str, str] = {}
    for name, value in told_headers(request):
        if not protocol.request_headers or name in protocol.request_headers:
            text = value.encode(errors="surrogateescape").decode(errors="replace")
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _peer(peer: Peer) -> _Context.Peer:
    address = address_pb2.Address()
    if peer.address.startswith(("/", "@")):
        address.pipe.path = peer.address
    elif peer.address:
        address.socket_address.address = peer.address
        address.socket_address.port_value = peer.port
    return _Context.Peer(principal=peer.principal, address=address)


def _metadata(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, Struct]:
    found = {}
    for name, members in metadata.items():
        struct = Struct()
        struct.update(dict(members))
        found[name] = struct
    return found


def _granted(ok: pb.OkHttpResponse) -> Granted | NoAnswer:
    """Say what an allowance changes.

    A header that the service names replaces what the client sent under that name. Envoy would append to the client's
    value if the service says so, and the origin would read a forged value first. Here the service appends to what it
    has itself set before.
    """
    if ok.query_parameters_to_set or ok.query_parameters_to_remove:
        return NoAnswer("the service changes the query, which is not supported")
    if any(option.append_action != _APPEND for option in ok.response_headers_to_add):
        return NoAnswer("the service replaces response headers, which is not supported")
    wanted: dict[str, str] = {}
    for option in ok.headers:
        name, value = option.header.key.lower(), _value(option.header)
        if is_for_proxies(name):
            continue
        if name in wanted and option.append_action == base_pb2.HeaderValueOption.ADD_IF_ABSENT:
            continue
        wanted[name] = f"{wanted[name]},{value}" if name in wanted and option.append.value else value
    removed = {name.lower() for name in ok.headers_to_remove} - wanted.keys()
    edits = HeaderEdits(set=tuple(sorted(wanted.items())), remove=tuple(sorted(removed)))
    return Granted(edits, added_headers(_pairs(ok.response_headers_to_add)))


def _declined(denied: pb.DeniedHttpResponse) -> Declined:
    return build_declined(denied.status.code or _FORBIDDEN, _pairs(denied.headers), denied.body.encode())


def _pairs(options: Iterable[base_pb2.HeaderValueOption]) -> Iterator[tuple[str, str]]:
    return ((option.header.key, _value(option.header)) for option in options)


def _value(header: base_pb2.HeaderValue) -> str:
    return header.raw_value.decode(errors="surrogateescape") if header.raw_value else header.value
