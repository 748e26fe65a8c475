"""The attributes of a call that expressions read (gRFC A106 and A103)."""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

from authplane.cel.calls.call_vocabulary import CLIENT_CALLS, CLUSTER_METADATA, HEADERS, ROUTE_METADATA, SERVER_CALLS
from authplane.cel.check.admissible_data import Admitted, admit, admit_texts
from authplane.cel.evaluate.facts import ABSENT, Absent, Fact, build_fact
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.core.values import dataclass
from authplane.dataplane.filters.call_headers import lookup_in
from authplane.dataplane.filters.calls import Call, Connection, Endpoint, Side
from authplane.dataplane.filters.filter_metadata import FilterMetadata
from authplane.matching.expressions.expression_matcher import Reads
from authplane.matching.header_reader import header_reader

VOCABULARIES: Final[Mapping[Side, Vocabulary]] = {Side.SERVER: SERVER_CALLS, Side.CLIENT: CLIENT_CALLS}

_LONGEST: Final = 256
"""A longer text is not worth keeping."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_PSEUDO: Final = (":path", ":method", ":authority", "host", "content-type")


@dataclass(frozen=True, slots=True)
class AttributesInput:
    """Gives expressions a call."""

    def read(self, subject: Call) -> "CallAttributes":
        """Return what expressions read."""
        return CallAttributes(subject)

    def __str__(self) -> str:
        return "the call"


class CallAttributes:
    """The attributes of one call; each is computed on first use."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def headers(self, names: tuple[str, ...] | None) -> Fact:
        """Return the values of these headers by the names as given, which may be in any case; None means all.

        All of them are there by their names in lower case.
        """
        lookup = lookup_in(self._call)
        if names is not None:
            return admit_texts({name: value for name in names if (value := lookup(name.lower())) is not None})
        every = dict.fromkeys((*_PSEUDO, *(key for key, _ in self._call.metadata)))
        return admit({name: value for name in every if (value := lookup(name)) is not None})

    def fact(self, name: str) -> Fact:
        """Return any other attribute by its dotted name."""
        found = _MAKERS[name](self._call)
        match found:
            case FilterMetadata(fact=fact):
                return fact
            case int():
                # What is admitted otherwise becomes a double.
                return Admitted(found, 8)
            case _:
                return build_fact(found)

    def seen(self, reads: Reads) -> tuple[Hashable, ...] | None:
        """Return the values themselves, unless they are long."""
        readers = _readers(reads)
        if readers is None:
            return None
        call = self._call
        found = [read(call) for read in readers]
        for each in found:
            if type(each) is str and len(each) > _LONGEST:
                return None
        return tuple(found)


@lru_cache(maxsize=4096)
def _readers(reads: Reads) -> tuple[Callable[[Call], Hashable], ...] | None:
    """Return what reads each value; None if all headers are read."""
    found: list[Callable[[Call], Hashable]] = []
    for name, keys in reads:
        if name != HEADERS:
            found.append(_MAKERS[name])
        elif keys is None:
            return None
        else:
            found += [header_reader(key.lower()) for key in keys]
    return tuple(found)


def _header(name: str) -> Callable[[Call], str]:
    return lambda call: lookup_in(call)(name) or ""


def _of_connection(read: Callable[[Connection], Hashable]) -> Callable[[Call], Hashable]:
    return lambda call: ABSENT if call.connection is None else read(call.connection)


def _address(endpoint: Endpoint) -> str:
    """Write an address as Envoy does; the path of a unix socket has no port."""
    if not endpoint.port:
        return endpoint.address
    return f"[{endpoint.address}]:{endpoint.port}" if ":" in endpoint.address else f"{endpoint.address}:{endpoint.port}"


def _digest(connection: Connection) -> str | Absent:
    certificate = connection.certificate
    return "" if certificate is None else _digest_of(certificate.pem)


@lru_cache(maxsize=1024)
def _digest_of(pem: bytes) -> str | Absent:
    """Return the digest of the first certificate of a PEM text."""
    found = _PEM.search(pem)
    try:
        return ABSENT if found is None else sha256(b64decode(found[1])).hexdigest()
    except binascii.Error:
        return ABSENT


_MAKERS: Final[Mapping[str, Callable[[Call], Hashable]]] = {
    "request.path": lambda call: call.path,
    "request.url_path": lambda call: call.path,
    "request.host": lambda call: ABSENT if call.authority is None else call.authority,
    "request.method": lambda _: "POST",
    "request.referer": _header("referer"),
    "request.useragent": _header("user-agent"),
    "request.id": _header("x-request-id"),
    "request.query": lambda _: "",
    "request.scheme": lambda _: ABSENT,
    "request.protocol": lambda _: ABSENT,
    "request.time": lambda _: ABSENT,
    ROUTE_METADATA: lambda call: call.route_metadata,
    CLUSTER_METADATA: lambda call: call.cluster_metadata,
    "source.address": _of_connection(lambda connection: _address(connection.remote)),
    "source.ip": _of_connection(lambda connection: connection.remote.address),
    "source.port": _of_connection(lambda connection: connection.remote.port),
    "connection.requested_server_name": _of_connection(lambda connection: connection.requested_server_name),
    "connection.tls_version": _of_connection(lambda connection: connection.tls_version),
    "connection.sha256_peer_certificate_digest": _of_connection(_digest),
}
