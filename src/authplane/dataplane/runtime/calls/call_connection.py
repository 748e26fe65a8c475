"""The connection of a call as grpcio describes it; each value is looked up on first use."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography import x509

from authplane.dataplane.filters.calls import Endpoint, PeerCertificate
from authplane.dataplane.runtime.calls.local_addresses import LocalAddresses, parse_peer

_TLS: Final = frozenset({"ssl", "tls"})
_NOTHING: Final[Mapping[str, Sequence[bytes]]] = {}


class CallConnection:
    """The connection of one call; what was read once is kept for that call only, as others may reuse its address."""

    __slots__ = ("_addresses", "_auth", "_context", "_own", "_peer")

    def __init__(self, context: Any, addresses: LocalAddresses, own_principal: str, secured: bool) -> None:
        self._context = context
        self._addresses = addresses
        self._own = own_principal
        # A plaintext connection has no certificate, and asking grpcio for it is slow.
        self._auth: Mapping[str, Sequence[bytes]] | None = None if secured else _NOTHING
        self._peer: str | None = None

    @property
    def remote(self) -> Endpoint:
        """The peer's address."""
        peer = self._peer
        return parse_peer(self._named_peer() if peer is None else peer)

    @property
    def local(self) -> Endpoint:
        """The server's own address; raises if it is unknown, so that no rule uses a wrong one."""
        only = self._addresses.only
        return self._addresses.of(self._named_peer()) if only is None else only

    @property
    def certificate(self) -> PeerCertificate | None:
        """What the peer proved."""
        auth = self._auth
        if auth is None:
            auth = self._auth_context()
        if "x509_pem_cert" not in auth:
            return None
        return PeerCertificate(
            uris=_texts(auth, "peer_uri"),
            dns_names=_texts(auth, "peer_dns"),
            subject=_first(auth, "x509_subject"),
            pem=auth["x509_pem_cert"][0],
        )

    @property
    def own_principal(self) -> str:
        """Who we are."""
        own = self._own
        return own if own and _first(self._auth_context(), "transport_security_type") in _TLS else ""

    @property
    def tls_version(self) -> str:
        """The version of TLS."""
        return _first(self._auth_context(), "ssl_tls_version")

    @property
    def requested_server_name(self) -> str:
        """The server name (SNI) that the client sent."""
        return _first(self._auth_context(), "ssl_requested_server_name")

    def _named_peer(self) -> str:
        if self._peer is None:
            self._peer = self._context.peer()
        return self._peer

    def _auth_context(self) -> Mapping[str, Sequence[bytes]]:
        if self._auth is None:
            self._auth = self._context.auth_context() or _NOTHING
        return self._auth


def _texts(auth: Mapping[str, Sequence[bytes]], key: str) -> tuple[str, ...]:
    return tuple(value.decode(errors="replace") for value in auth.get(key, ()))


def _first(auth: Mapping[str, Sequence[bytes]], key: str) -> str:
    values = auth.get(key)
    return values[0].decode(errors="replace") if values else ""


def own_principal(certificate: bytes | None) -> str:
    """Return who a certificate says we are; nothing without one. Raises `ValueError` if it is not a certificate."""
    if certificate is None:
        return ""
    found = x509.load_pem_x509_certificate(certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    return PeerCertificate(
        uris=tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)),
        subject=found.subject.rfc4514_string(),
    ).principal
