"""Checks as Envoy's messages: ``envoy.service.auth.v3``."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias, assert_never

from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from envoy.type.v3 import http_status_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from authplane.policy.check.answer_headers import fit_name
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import AUTH_SPELLINGS, Headers, Malformed, Peer, Request, partly_read

_Attributes: TypeAlias = attribute_context_pb2.AttributeContext
_Http: TypeAlias = attribute_context_pb2.AttributeContext.HttpRequest

_OK: Final = 0
_PERMISSION_DENIED: Final = 7
_UNAVAILABLE: Final = 14
_UNAUTHENTICATED: Final = 16

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62_135_596_800
_LAST: Final = 253_402_300_799
"""The seconds that a date can have: the years 1 to 9999."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_parse: Final = pb.CheckRequest.FromString
_NO_PEER: Final = Peer()
_NO_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({})


class CheckParser:
    """Reads CheckRequests, one after the other."""

    def __init__(self) -> None:
        self.plain: set[str] = set()
        """Names of headers that are fit, in lower case, without underscores and not like ours.

        Clients send the same ones again and again: to know them takes the reading of a check from 12 to 5 µs.
        """

    def parse(self, body: bytes) -> Request | Malformed:
        """Read a CheckRequest; what lacks a method, a path or headers is malformed."""
        try:
            attributes = _parse(body).attributes
        except DecodeError:
            return Malformed(reason="the message is not a CheckRequest")
        http = attributes.request.http
        method, host = http.method, http.host
        path, _, _ = http.path.partition("?")
        # One quick test of all three, which only saves time: `_fault` has the rules.
        text = f"{method}{path}{host}"
        if not (method and path.startswith("/") and text.isascii() and text.isprintable() and " " not in text):
            reason = _fault(method, path, host)
            if reason:
                return Malformed(reason=reason)
        names = http.headers
        plain = self.plain.issuperset(names) and not http.HasField("header_map") and len(names) > 0
        if not plain:
            reason = self._header_fault(http)
            if reason:
                return Malformed(reason=reason)
        reader = _PLAINLY if plain else _CAREFULLY
        if not host:
            host = next(iter(reader.values(attributes, ":authority")), "")
        context = attributes.context_extensions
        known = _context(context) if context else _NO_CONTEXT
        return partly_read(reader, attributes, method, host, path, known)

    def _header_fault(self, http: _Http) -> str:
        """Say what is wrong with the headers; a message without headers in either form cannot come from a proxy."""
        names = [*http.headers, *(header.key for header in http.header_map.headers)]
        if not names and not http.HasField("header_map"):
            return "the request has no headers"
        for name in names:
            if name in self.plain:
                continue
            if not fit_name(name.removeprefix(":")):
                return "a header has an invalid name"
            if name == name.lower() and "_" not in name and not name.startswith(AUTH_SPELLINGS):
                # A client that always sends new names costs time, but no memory.
                if len(self.plain) >= _MOST_NAMES:
                    self.plain.clear()
                self.plain.add(name)
        return ""


def with_context(body: bytes, key: str, value: str) -> bytes:
    """Add an entry to the context of a serialized CheckRequest; the request's own entry takes precedence."""
    said = attribute_context_pb2.AttributeContext(context_extensions={key: value})
    # Concatenated messages are one message, in which later fields win.
    return pb.CheckRequest(attributes=said).SerializeToString() + body


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
            response = _undecided(decision)
        case _:
            assert_never(decision)
    return response.SerializeToString(deterministic=True)


def render_failure() -> bytes:
    """Build the CheckResponse for a check that failed by a fault of ours: a denial.

    Unlike `Unavailable`, it applies even where the proxy allows calls without a decision. Otherwise a client that can
    cause the fault could bypass the check.
    """
    response = pb.CheckResponse(status=status_pb2.Status(code=_UNAVAILABLE), denied_response=_reply(503))
    return response.SerializeToString(deterministic=True)


class _Plain:
    """Reads messages in which no header is repeated and the parser knows every name."""

    plain: Final = True

    def read(self, message: _Attributes, attribute: str) -> object:
        """Return an attribute of the request."""
        if attribute == "headers":
            headers = message.request.http.headers
            return tuple([(name, headers[name]) for name in sorted(headers)])
        return _READERS[attribute](message)

    def values(self, message: _Attributes, name: str) -> tuple[str, ...]:
        """Return every value of a header."""
        headers = message.request.http.headers
        return (headers[name],) if name in headers else ()

    def headers_for(self, message: _Attributes, names: tuple[str, ...]) -> Headers:
        """Return the headers of these names."""
        headers = message.request.http.headers
        return {name: headers[name] for name in names if name in headers}


class _Careful:
    """Reads any message."""

    plain: Final = False

    def read(self, message: _Attributes, attribute: str) -> object:
        """Return an attribute of the request."""
        return _READERS[attribute](message)

    def values(self, message: _Attributes, name: str) -> tuple[str, ...]:
        """Return every value of a header."""
        return tuple(value for each, value in _headers(message.request.http) if each == name)

    def headers_for(self, message: _Attributes, _names: tuple[str, ...]) -> Headers:
        """Return all headers: one may be there twice or have an odd name."""
        return _headers(message.request.http)


_PLAINLY: Final = _Plain()
_CAREFULLY: Final = _Careful()


def _fault(method: str, path: str, host: str) -> str:
    """Name the first attribute that is absent or unfit; empty means that all are there."""
    for name, value in (("method", method), ("path", path), ("host", host)):
        if not value and name != "host":
            return f"the request has no {name}"
        if _UNPRINTABLE.search(value):
            return f"the {name} has a space or a control character"
    return "" if path == "*" or path.startswith("/") else "the path does not start with a slash"


_MOST_NAMES: Final = 4096


def _headers(http: _Http) -> tuple[tuple[str, str], ...]:
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


def _query(http: _Http) -> str:
    return http.path.partition("?")[2] or http.query


def _context(context: Mapping[str, str]) -> Mapping[str, str]:
    known = {}
    # Key by key: a comprehension takes half as long again, and the items of a message take twice as long.
    for key in context:
        known[key] = context[key]
    return MappingProxyType(known)


def _peer(peer: attribute_context_pb2.AttributeContext.Peer) -> Peer:
    address, port = _address(peer.address)
    return Peer(principal=peer.principal, address=address, port=port, certificate=peer.certificate)


def _address(address: address_pb2.Address) -> tuple[str, int]:
    if address.HasField("pipe"):
        return address.pipe.path, 0
    return address.socket_address.address, address.socket_address.port_value


def _address_text(address: address_pb2.Address) -> str:
    # Only one of the two is set; asking which one takes a third of the time.
    return address.socket_address.address or address.pipe.path


def _time(request: attribute_context_pb2.AttributeContext.Request) -> datetime | None:
    stamp = request.time
    if not request.HasField("time") or not (_FIRST <= stamp.seconds <= _LAST and 0 <= stamp.nanos < 1_000_000_000):
        return None
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


_READERS: Final[Mapping[str, Callable[[_Attributes], object]]] = {
    "scheme": lambda attributes: attributes.request.http.scheme,
    "query": lambda attributes: _query(attributes.request.http),
    "headers": lambda attributes: _headers(attributes.request.http),
    "id": lambda attributes: attributes.request.http.id,
    "source": lambda attributes: _peer(attributes.source) if attributes.HasField("source") else _NO_PEER,
    "source_address": lambda attributes: _address_text(attributes.source.address),
    "destination": lambda attributes: _peer(attributes.destination) if attributes.HasField("destination") else _NO_PEER,
    "body": lambda attributes: attributes.request.http.raw_body or attributes.request.http.body.encode(),
    "time": lambda attributes: _time(attributes.request),
}


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
        status=status_pb2.Status(
            code=_UNAUTHENTICATED if deny.http_status == 401 else _PERMISSION_DENIED, message=deny.message
        ),
        denied_response=_reply(deny.http_status, deny.headers, deny.body),
    )


def _undecided(unavailable: Unavailable) -> pb.CheckResponse:
    """Tell that there is no decision: an Envoy that does not know ``error_response`` reads a denial."""
    reply = _reply(503, unavailable.headers, unavailable.body)
    return pb.CheckResponse(status=status_pb2.Status(code=_UNAVAILABLE), error_response=reply)


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
    """Say "do not append": in a request that replaces the header, in a denial it allows repeated names."""
    option = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value))
    option.append.value = False
    return option
