"""Reads descriptions of requests for `authplane check` and `authplane test`."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem
from authplane.core.values import dataclass
from authplane.devkit.strict_files import Text, bytes_of, json_object, located, read_as, take
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, parse_spiffe_id
from authplane.resources.documents import Finding
from authplane.resources.typed.schema import Length, OneOf, OneOrMany, Range
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Items, Node

# --- As it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenGateway:
    """The Gateway that a request comes through."""

    name: Annotated[str, Length(1, 253)]
    namespace: Annotated[str, Length(1, 63)] = "default"
    section_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTarget:
    """Where a request goes."""

    kind: Annotated[str, OneOf(("Backend", "XBackend", "Gateway"))]
    name: Annotated[str, Length(1, 253)]
    namespace: Annotated[str, Length(1, 63)] = "default"
    section_name: str = ""
    gateway: WrittenGateway | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenToken:
    """A token; as a text it is a JWT."""

    SHORTHAND: ClassVar = "jwt"

    jwt: Annotated[str, Length(1)] | None = None
    issuer: Annotated[str, Length(1, 2048)] | None = None
    claims: str | None = None
    """Read elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPeer:
    """Who sends a request."""

    spiffe: str | None = None
    certificate: Annotated[str, Length(1)] | None = None
    token: WrittenToken | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMcp:
    """What an MCP request asks for, instead of a body."""

    method: Annotated[str, Length(1, 128)]
    params: str | None = None
    """Read elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRequest:
    """A request."""

    target: WrittenTarget
    method: str = "POST"
    path: str = "/mcp"
    scheme: Annotated[str, OneOf(("http", "https"))] = "https"
    port: Annotated[int, Range(0, 65535)] = 0
    headers: Mapping[str, Annotated[tuple[str, ...], OneOrMany()]] = field(default_factory=lambda: MappingProxyType({}))
    body: str | None = None
    """Read elsewhere."""
    mcp: WrittenMcp | None = None
    peer: WrittenPeer | None = None
    time: str = ""


# --- As it is understood


@dataclass(frozen=True, slots=True)
class AssumedToken:
    """Claims that count as signed by an issuer."""

    issuer: str
    claims: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRequest:
    """A request to evaluate; the peer's certificate and assumed claims are separate fields."""

    target: RequestTarget
    request: Request
    spiffe_id: str = ""
    """Assumed to be proved by the peer's certificate."""
    certificate: str = ""
    """PEM; assumed to be verified by the proxy."""
    token: AssumedToken | None = None
    time: datetime | None = None
    path: Path = ()
    """The path of the request in its file."""
    remarks: tuple[str, ...] = ()
    """What is assumed of its way."""


class RequestFile(NamedTuple):
    """What a file asks, or why it cannot be understood: then there are findings."""

    requests: tuple[AskedRequest, ...]
    many: bool
    """The file has a list, and so has the answer."""
    findings: tuple[Finding, ...]


_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_PATH: Final = re.compile(r"/[!-~]*")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_PARTIAL: Final = "x-envoy-auth-partial-body"
"""In which the proxy says whether a body is only part of one."""
_JSON: Final = ("content-type", "application/json")
_ACCEPT: Final = ("accept", "application/json, text/event-stream")

_Faults: TypeAlias = Iterator[Problem]


def parse_requests(text: Text) -> RequestFile:
    """Read a request, or a list of them, with every problem."""
    if text.root is None:
        return RequestFile((), many=False, findings=text.findings)
    report = Report()
    many = isinstance(text.root, Items)
    nodes = list(text.root.items) if isinstance(text.root, Items) else [text.root]
    if not nodes:
        report.error((), "FieldRequired", "The list is empty. Add a request.")
    read = [parse_request(node, (index,) if many else (), text, report) for index, node in enumerate(nodes)]
    findings = located(text, report.problems)
    return RequestFile(() if findings else tuple(each for each in read if each is not None), many, findings)


def parse_request(node: Node, path: Path, text: Text, report: Report) -> AskedRequest | None:
    """Read one request; None after a problem."""
    before = len(report.problems)
    node, body = take(node, "body")
    node, claims = take(node, "peer", "token", "claims")
    node, params = take(node, "mcp", "params")
    written = read_as(WrittenRequest, node, path, report)
    inner = _Inner(
        body=b"" if body is None else bytes_of(body, text, (*path, "body"), report),
        claims=json_object(claims, (*path, "peer", "token", "claims"), report),
        params=None if params is None else json_object(params, (*path, "mcp", "params"), report),
    )
    if written is None:
        return None
    for fault in _faults(written):
        report.error((*path, *fault.path), fault.reason, fault.message)
    time = _time(written.time) if written.time else None
    if len(report.problems) > before:
        return None
    peer = written.peer or WrittenPeer()
    token = peer.token or WrittenToken()
    return AskedRequest(
        target=_target(written.target),
        request=_request(written, inner, time),
        spiffe_id=peer.spiffe or "",
        certificate=peer.certificate or "",
        token=AssumedToken(token.issuer, inner.claims) if token.issuer else None,
        time=time,
        path=path,
    )


class _Inner(NamedTuple):
    """What is not of a fixed shape."""

    body: bytes
    claims: Mapping[str, Any]
    params: Mapping[str, Any] | None


def _fault(path: Path, message: str) -> Problem:
    return Problem(path, "FieldInvalid", message)


def _faults(written: WrittenRequest) -> _Faults:
    """Yield what is wrong with values, and with several of them together."""
    if not _METHOD.fullmatch(written.method):
        yield _fault(("method",), "The value is not an HTTP method. Use a method such as 'POST'.")
    if not _PATH.fullmatch(written.path) or "#" in written.path:
        yield _fault(("path",), "The value is not a path. Use a path such as '/mcp', with an optional query.")
    if written.body is not None and written.mcp is not None:
        yield _fault(
            ("mcp",), "'body' and 'mcp' are mutually exclusive, because 'mcp' creates the body. Remove one of them."
        )
    if written.time and _time(written.time) is None:
        yield _fault(("time",), "The value is not a time with a zone. Use a time such as '2026-01-31T12:00:00Z'.")
    for name, values in written.headers.items():
        if not fit_name(name) or not all(_VALUE.fullmatch(value) for value in values):
            yield _fault(
                ("headers", name),
                "The header name or a value is not valid. Use a valid name, and put each value on one line.",
            )
    yield from _target_faults(written.target)
    yield from _peer_faults(written.peer or WrittenPeer(), written.headers)


def _target_faults(target: WrittenTarget) -> _Faults:
    if target.kind == "Gateway" and target.gateway is not None:
        yield _fault(("target", "gateway"), "The target is a Gateway itself. Remove 'gateway'.")
    if target.kind != "Gateway" and target.section_name:
        yield _fault(("target", "sectionName"), "Only a Gateway has listeners. Move 'sectionName' below 'gateway'.")


def _peer_faults(peer: WrittenPeer, headers: Mapping[str, tuple[str, ...]]) -> _Faults:
    if peer.spiffe is not None:
        found = parse_spiffe_id(peer.spiffe)
        if isinstance(found, NotSpiffe):
            yield _fault(
                ("peer", "spiffe"), f"The value is not a SPIFFE ID: {found.why}. Use spiffe://<trust domain>/<path>."
            )
        if peer.certificate is not None:
            yield _fault(
                ("peer", "certificate"), "'spiffe' and 'certificate' are mutually exclusive. Remove one of them."
            )
    token = peer.token
    if token is None:
        return
    if any(name.lower() == "authorization" for name in headers):
        yield _fault(
            ("peer", "token"), "'token' and the header 'authorization' are mutually exclusive. Remove one of them."
        )
    if (token.jwt is None) == (token.issuer is None):
        yield _fault(
            ("peer", "token"),
            "The value is not a token. Use a JWT as a string, or use 'issuer' and 'claims', which"
            " authplane treats as verified.",
        )
    elif token.jwt is not None and (token.claims is not None or not _VALUE.fullmatch(token.jwt)):
        yield _fault(
            ("peer", "token"),
            "The token is not a JWT on one line, or it also has 'claims'. Use a JWT only, because it"
            " contains its claims.",
        )


def _target(written: WrittenTarget) -> RequestTarget:
    ref = Ref(written.kind, written.namespace, written.name)
    if written.kind == "Gateway":
        return RequestTarget(gateway=ref, section=written.section_name)
    through = written.gateway
    if through is None:
        return RequestTarget(backend=ref)
    gateway = Ref("Gateway", through.namespace, through.name)
    return RequestTarget(backend=ref, gateway=gateway, section=through.section_name)


def _request(written: WrittenRequest, inner: _Inner, time: datetime | None) -> Request:
    """Build the request as a proxy would describe it."""
    body = inner.body if written.mcp is None else _message(written.mcp, inner.params)
    given = [(name.lower(), value) for name, values in written.headers.items() for value in values]
    names = {name for name, _ in given}
    host = next((value for name, value in given if name == "host"), "localhost")
    path, _, query = written.path.partition("?")
    headers = [pair for pair in given if pair[0] != "host"]
    headers += [pair for pair in (_JSON, _ACCEPT) if written.mcp is not None and pair[0] not in names]
    if body and not names & {"content-length", "transfer-encoding"}:
        headers.append(("content-length", str(len(body))))
    if body and _PARTIAL not in names:
        headers.append((_PARTIAL, "false"))
    if written.peer is not None and written.peer.token is not None and written.peer.token.jwt is not None:
        headers.append(("authorization", f"Bearer {written.peer.token.jwt}"))
    around = ((":authority", host), (":method", written.method), (":path", written.path), (":scheme", written.scheme))
    return Request(
        method=written.method,
        scheme=written.scheme,
        host=host,
        path=path,
        query=query,
        headers=(*around, *headers),
        destination=Peer(port=written.port),
        body=body,
        time=time,
    )


def _message(written: WrittenMcp, params: Mapping[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if not written.method.startswith("notifications/"):
        message["id"] = 1
    message["method"] = written.method
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Certificates and tokens are made for that time, which have no others.
    return None if found.tzinfo is None or not 1970 < found.year < 9999 else found
