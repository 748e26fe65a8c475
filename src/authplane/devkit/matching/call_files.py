"""Reads descriptions of gRPC calls for `authplane match`."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from authplane.core.problems import Path, Problem
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Endpoint, PeerCertificate, Side
from authplane.dataplane.filters.filter_metadata import FilterMetadata
from authplane.devkit.strict_files import Text, json_object, located, read_as, take
from authplane.resources.documents import Finding
from authplane.resources.typed.schema import Length, OneOf, OneOrMany, Range
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Items, Node

# --- As it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPeer:
    """Who calls a server, and over what."""

    address: str = ""
    port: Annotated[int, Range(0, 65535)] = 0
    tls_version: str = ""
    server_name: str = ""
    certificate: Annotated[str, Length(1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call."""

    path: str
    authority: str | None = None
    side: Annotated[str, OneOf(("server", "client"))] = "server"
    headers: Mapping[str, Annotated[tuple[str, ...], OneOrMany()]] = field(default_factory=lambda: MappingProxyType({}))
    peer: WrittenPeer | None = None
    route_metadata: str | None = None
    """Read elsewhere."""
    cluster_metadata: str | None = None
    """Read elsewhere."""


# --- As it is understood

_NOWHERE: Final = Endpoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConnection:
    """What is written of a connection."""

    remote: Endpoint
    tls_version: str
    requested_server_name: str
    certificate: PeerCertificate | None
    local: Endpoint = _NOWHERE
    own_principal: str = ""


class CallFile(NamedTuple):
    """What a file describes, or why it cannot be understood: then there are findings."""

    calls: tuple[Call, ...]
    many: bool
    """The file has a list, and so has the answer."""
    findings: tuple[Finding, ...]


_PATH: Final = re.compile(r"/[!-~]*")
_NAME: Final = re.compile(r"[0-9a-z_.-]+")
_VALUE: Final = re.compile(r"[ -~]*")

_Faults: TypeAlias = Iterator[Problem]


def parse_calls(text: Text, now: datetime) -> CallFile:
    """Read a call, or a list of them, with every problem."""
    if text.root is None:
        return CallFile((), many=False, findings=text.findings)
    report = Report()
    many = isinstance(text.root, Items)
    nodes = list(text.root.items) if isinstance(text.root, Items) else [text.root]
    if not nodes:
        report.error((), "FieldRequired", "The list is empty. Add a call.")
    read = [_parse_call(node, (index,) if many else (), now, report) for index, node in enumerate(nodes)]
    findings = located(text, report.problems)
    return CallFile(() if findings else tuple(each for each in read if each is not None), many, findings)


def _parse_call(node: Node, path: Path, now: datetime, report: Report) -> Call | None:
    node, route = take(node, "routeMetadata")
    node, cluster = take(node, "clusterMetadata")
    written = read_as(WrittenCall, node, path, report)
    members = json_object(route, (*path, "routeMetadata"), report)
    others = json_object(cluster, (*path, "clusterMetadata"), report)
    if written is None:
        return None
    before = len(report.problems)
    for fault in _faults(written, members, others):
        report.error((*path, *fault.path), fault.reason, fault.message)
    if len(report.problems) > before:
        return None
    side = Side(written.side)
    return Call(
        side=side,
        path=written.path,
        authority=written.authority,
        metadata=tuple(
            (name, _bytes(value) if name.endswith("-bin") else value)
            for name, values in written.headers.items()
            for value in values
        ),
        started=now,
        remaining=None,
        connection=_connection(written.peer or WrittenPeer()) if side is Side.SERVER else None,
        route_metadata=FilterMetadata(members),
        cluster_metadata=FilterMetadata(others),
    )


def _fault(path: Path, message: str) -> Problem:
    return Problem(path, "FieldInvalid", message)


def _faults(written: WrittenCall, *metadata: Mapping[str, Any]) -> _Faults:
    if not _PATH.fullmatch(written.path):
        yield _fault(
            ("path",), "The value is not a method path. Use the full name of a method, such as '/shop.Cart/Add'."
        )
    if written.side == "client" and written.peer is not None:
        yield _fault(("peer",), "A client has no connection when its filters run. Remove 'peer', or set side: server.")
    for name, values in written.headers.items():
        fault = _header_fault(name, values)
        if fault is not None:
            yield _fault(("headers", name), fault)
    for field_name, members in zip(("routeMetadata", "clusterMetadata"), metadata, strict=True):
        for name, value in members.items():
            if not isinstance(value, dict):
                yield _fault(
                    (field_name, name),
                    "The value is not a mapping. Expected a mapping with the metadata of one filter.",
                )


def _header_fault(name: str, values: tuple[str, ...]) -> str | None:
    if not _NAME.fullmatch(name):
        return "This is not a header name. Use lower case. Set path and authority in their own fields."
    if name.endswith("-bin"):
        return (
            None
            if all(map(_is_base64, values))
            else "The value of this '-bin' header is not base64. Encode the value as base64."
        )
    return (
        None
        if all(map(_VALUE.fullmatch, values))
        else "The value is not valid in a header. Use printable ASCII on one line."
    )


def _connection(peer: WrittenPeer) -> WrittenConnection:
    return WrittenConnection(
        remote=Endpoint(address=peer.address, port=peer.port),
        tls_version=peer.tls_version,
        requested_server_name=peer.server_name,
        certificate=None if peer.certificate is None else PeerCertificate(pem=peer.certificate.encode()),
    )


def _is_base64(text: str) -> bool:
    try:
        _bytes(text)
    except (NotBase64, ValueError):
        return False
    return True


def _bytes(text: str) -> bytes:
    bare = text.rstrip("=")
    return b64decode(bare + "=" * (-len(bare) % 4), validate=True)
