"""Checks as messages of ``envoy.service.auth.v3``."""

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeAlias
from urllib.parse import quote

from envoy.config.core.v3 import address_pb2
from envoy.service.auth.v3 import attribute_context_pb2 as context_pb
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf.message import DecodeError

from authplane.core.problems import printable
from authplane.dataplane.filters.calls import Call, Change, Connection, Endpoint, Metadata, Mutation
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown, shows_header
from authplane.dataplane.filters.extauthz.service_decision import Allow, Deny, Failed, Outcome
from authplane.dataplane.filters.grpc_status import code_of_http
from authplane.dataplane.filters.headers import Edits, Review, Rules, mutated
from authplane.dataplane.filters.wire import parse_mutations

METHOD: Final = "/envoy.service.auth.v3.Authorization/Check"
CACHE_NAMESPACE: Final = "authplane.decision_cache"
"""The member of ``dynamic_metadata`` in which a service says for how long its decision may be remembered."""

PLAIN_ALLOW: Final = Allow()
"""What a service says that changes nothing: there is no other with the same content."""
_PLAIN_REPLIES: Final = frozenset({b"", b"\n\0", b"\x1a\0", b"\n\0\x1a\0"})
"""How such replies look: nothing, an empty status, an empty ok_response, or both."""
_ENVOY: Final = CheckForm.ENVOY
_FORBIDDEN: Final = 403
_DENIED: Final = "denied by the authorization service"
_LONGEST_MESSAGE: Final = 1024
_UNCLEAN: Final = re.compile(r"[^\t\x20-\x7e]")
_MOST_KNOWN: Final = 1024
"""Maximum number of cached names and frames: new ones cost time, but no memory."""
_LARGEST_FRAME: Final = 8192

_Raw: TypeAlias = list[tuple[str, bytes]]
_Http: TypeAlias = context_pb.AttributeContext.HttpRequest
_Frame: TypeAlias = tuple[object, ...]


class Questions:
    """Writes the checks of one filter."""

    __slots__ = ("_frames", "_known", "_shown")

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._known: dict[str, str] = {}
        """As what headers are shown, empty if they are not: calls have the same names again and again."""
        self._frames: dict[_Frame, bytes] = {}
        """Checks without headers and times: to read one takes a third of the time to write it."""

    def check(self, call: Call) -> bytes:
        """Write the CheckRequest for a call."""
        key = self._frame_of(call)
        frame = self._frames.get(key)
        message = pb.CheckRequest.FromString(self._draw(key, call) if frame is None else frame)
        attributes, started = message.attributes, call.started
        request = attributes.request
        headers = self._fill_headers(request.http, call.metadata)
        if self._shown.form is _ENVOY:
            _fill_joined(request.http, headers)
        time = request.time
        time.seconds = int(started.timestamp())
        time.nanos = started.microsecond * 1000
        if call.connection is not None and self._shown.peer_address:
            port = call.connection.remote.port
            if port:
                attributes.source.address.socket_address.port_value = port
        return message.SerializeToString()

    def key(self, call: Call) -> bytes:
        """Return a digest of everything that a check shows of a call, except its time and the client's port.

        A token cannot be recovered from it, and no other call has the same. Building the message instead would cost
        several times as much.
        """
        known = self._known
        # The fixed parts of the frame come first, so that no header can be mistaken for a certificate.
        parts: list[object] = [*self._frame_of(call)]
        for name, value in call.metadata:
            shown = known.get(name)
            if self._learn(name) if shown is None else shown:
                parts += (name, value)
        # Python's repr of a list of texts, bytes and numbers is unambiguous.
        return sha256(repr(parts).encode()).digest()

    def _frame_of(self, call: Call) -> _Frame:
        """Return all that the frame of a check is drawn from."""
        shown, connection = self._shown, call.connection
        authority = call.authority if shown.form is _ENVOY else None
        if connection is None:
            return call.path, authority
        local, remote, certificate = connection.local, connection.remote, connection.certificate
        peer = (remote.address, remote.port == 0) if shown.peer_address else None
        proof = certificate and (certificate.principal, certificate.pem if shown.peer_certificate else None)
        return call.path, authority, local.address, local.port, peer, proof, connection.own_principal

    def _draw(self, key: _Frame, call: Call) -> bytes:
        message = pb.CheckRequest()
        attributes = message.attributes
        if call.connection is not None:
            self._fill_peers(attributes, call.connection)
        http = attributes.request.http
        http.method = "POST"
        http.path = _clean(call.path)
        http.size = -1
        http.protocol = "HTTP/2"
        http.header_map.SetInParent()
        if self._shown.form is _ENVOY:
            http.host = _clean(call.authority or "")
        frame = message.SerializeToString()
        if len(frame) <= _LARGEST_FRAME:
            if len(self._frames) >= _MOST_KNOWN:
                self._frames.clear()
            self._frames[key] = frame
        return frame

    def _fill_peers(self, attributes: context_pb.AttributeContext, connection: Connection) -> None:
        source, destination, shown = attributes.source, attributes.destination, self._shown
        source.SetInParent()
        destination.SetInParent()
        if shown.peer_address:
            _fill_address(source.address, connection.remote)
        certificate = connection.certificate
        if certificate is not None:
            source.principal = _clean(certificate.principal)
            if shown.peer_certificate:
                source.certificate = _quoted(certificate.pem)
        local = connection.local
        _fill_address(destination.address, local)
        if local.port:
            destination.address.socket_address.port_value = local.port
        own = connection.own_principal
        if own:
            destination.principal = _clean(own)

    def _fill_headers(self, http: _Http, metadata: Metadata) -> _Raw:
        add, known = http.header_map.headers.add, self._known
        found: _Raw = []
        for name, value in metadata:
            shown = known.get(name)
            if shown is None:
                shown = self._learn(name)
            if shown:
                raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else _base64(value)
                add(key=shown, raw_value=raw)
                found.append((shown, raw))
        return found

    def _learn(self, name: str) -> str:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        shown = self._known[name] = _clean(name) if shows_header(self._shown, name) else ""
        return shown


def _fill_address(address: address_pb2.Address, endpoint: Endpoint) -> None:
    """Write where an end is, without its port."""
    if endpoint.port:
        address.socket_address.address = _clean(endpoint.address)
    elif endpoint.address:
        address.pipe.path = _clean(endpoint.address)


def _fill_joined(http: _Http, headers: _Raw) -> None:
    """Write the headers as a map as well: values joined by commas, and what is not text as Envoy shows it."""
    joined: dict[str, str] = {}
    for name, raw in headers:
        value = raw.decode("latin-1")
        if not (value.isascii() and value.isprintable()):
            value = _UNCLEAN.sub("!", value)
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    http.headers.update(joined)


def _clean(text: str) -> str:
    """Replace what no message can carry: half of a surrogate pair, of which odd bytes are made."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _base64(value: bytes) -> bytes:
    return b64encode(value).rstrip(b"=")


@lru_cache(maxsize=256)
def _quoted(pem: bytes) -> str:
    return quote(pem, safe="")


# --- Answers


def read_reply(reply: bytes, rules: Rules, *, a102_append: bool = False) -> Outcome:
    """Read a CheckResponse.

    Status OK allows. So does a status that is not set: gRFC A92 takes the message as protobuf has it, in which the two
    are the same, and so an empty reply allows. Bytes that are not empty and in which there is no field of a
    CheckResponse at all are the reply of something else, and no decision. A ``denied_response`` under status OK, or
    under none, contradicts itself: the check failed. gRFC A92 would ignore it and allow the call.
    """
    if reply in _PLAIN_REPLIES:
        return PLAIN_ALLOW
    try:
        message = pb.CheckResponse.FromString(reply)
    except DecodeError:
        return Failed("the response is not a CheckResponse")
    if reply and not message.ListFields():
        return Failed("the response has no field of CheckResponse")
    if message.HasField("error_response"):
        return Failed("the authorization service reported a failure")
    if message.status.code:
        return _denial(message, rules, a102_append=a102_append)
    return _allowance(message, rules, a102_append=a102_append)


def _denial(message: pb.CheckResponse, rules: Rules, *, a102_append: bool) -> Outcome:
    denied = message.denied_response
    review = Review(rules)
    trailers = review.mutations(parse_mutations(denied.headers, unset_appends=a102_append))
    if review.unfit is not None:
        return Failed(review.unfit.why)
    said = printable(message.status.message[:_LONGEST_MESSAGE])
    return Deny(
        code=code_of_http(int(denied.status.code) or _FORBIDDEN),
        message=f"{_DENIED}: {said}" if said else _DENIED,
        trailers=mutated((), trailers),
        max_age=_max_age(message),
    )


def _allowance(message: pb.CheckResponse, rules: Rules, *, a102_append: bool) -> Outcome:
    if message.HasField("denied_response"):
        return Failed("the response has a denied_response, but its status is OK or not set")
    if not message.HasField("ok_response") and not message.HasField("dynamic_metadata"):
        return PLAIN_ALLOW
    ok = message.ok_response
    review = Review(rules)
    edits = Edits(
        mutations=review.mutations(parse_mutations(ok.headers, unset_appends=a102_append)),
        removals=review.removals(list(ok.headers_to_remove)),
    )
    response = review.mutations(parse_mutations(ok.response_headers_to_add, unset_appends=True))
    if review.unfit is not None:
        return Failed(review.unfit.why)
    additions = _leading_additions(response)
    return Allow(
        edits=edits,
        response_metadata=tuple((each.key, each.value) for each in response[:additions]),
        response_mutations=response[additions:],
        max_age=_max_age(message),
    )


def _leading_additions(mutations: tuple[Mutation, ...]) -> int:
    """Count the additions before the first change of another kind."""
    kinds = (index for index, each in enumerate(mutations) if each.change is not Change.APPEND)
    return next(kinds, len(mutations))


def _max_age(message: pb.CheckResponse) -> float | None:
    """Return for how long the service allows its decision to be cached; not at all if the value is no number."""
    if CACHE_NAMESPACE not in message.dynamic_metadata.fields:
        return None
    said = message.dynamic_metadata.fields[CACHE_NAMESPACE].struct_value.fields
    if "max_age" not in said or said["max_age"].WhichOneof("kind") != "number_value":
        return 0.0
    age = said["max_age"].number_value
    return age if age > 0 else 0.0
