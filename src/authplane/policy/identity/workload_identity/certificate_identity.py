"""The identity that a peer's certificate proves.

The proxy has verified the certificate and that the peer has its key. We read its content again, since a principal can
come from other names than SPIFFE allows, and a proxy can be configured to verify less.
"""

from collections import OrderedDict
from collections.abc import Collection
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_to_bytes

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID

from authplane.core.values import dataclass
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, SpiffeId, parse_spiffe_id

LONGEST: Final = 32_768
"""In characters, percent-encoded."""
MOST: Final = 10_000
"""How many certificates are remembered; the one that was used longest ago goes first."""

_BEGIN: Final = b"-----BEGIN "
_FOR_CLIENTS: Final = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Svid:
    """The content of a workload's X.509 certificate; valid from ``not_before`` to ``not_after``."""

    id: SpiffeId
    not_before: float
    """In seconds since 1970."""
    not_after: float


def parse_svid(certificate: str) -> Svid | NoIdentity:
    """Read a certificate, PEM and percent-encoded, without checking its time and trust domain. Raises nothing."""
    if len(certificate) > LONGEST:
        return NoIdentity(Why.CERTIFICATE_TOO_LARGE)
    try:
        pem = unquote_to_bytes(certificate.encode("ascii"))
        # A chain, or a key, is not what the proxy sends.
        if pem.count(_BEGIN) != 1:
            return NoIdentity(Why.CERTIFICATE_MALFORMED)
        return _parse(x509.load_pem_x509_certificate(pem))
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, x509.InvalidVersion):
        return NoIdentity(Why.CERTIFICATE_MALFORMED)


def fault_in_svid(svid: Svid, principal: str, trust_domains: Collection[str], now: float) -> NoIdentity | None:
    """Say why a certificate is not valid at this time and for these trust domains; None if it is."""
    if now < svid.not_before:
        return NoIdentity(Why.NOT_YET)
    if now > svid.not_after:
        return NoIdentity(Why.EXPIRED)
    if svid.id.trust_domain not in trust_domains:
        return NoIdentity(Why.TRUST_DOMAIN)
    return None if principal == str(svid.id) else NoIdentity(Why.PRINCIPAL)


class PeerCertificates:
    """Identifies peers by their certificates, and remembers those it has read.

    It remembers the content of a certificate and checks its validity every time. It does not remember certificates
    without an identity.
    """

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[bytes, Svid] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def identify(
        self, principal: str, certificate: str, trust_domains: Collection[str], now: float
    ) -> SpiffeId | NoIdentity:
        """Return the workload that a peer is, by what the proxy says of it.

        Only the one URI name of its certificate counts, and the proxy's principal must be the same.
        """
        if not certificate:
            return NoIdentity(Why.NO_CERTIFICATE)
        if len(certificate) > LONGEST:
            return NoIdentity(Why.CERTIFICATE_TOO_LARGE)
        svid = self._read(certificate)
        if isinstance(svid, NoIdentity):
            return svid
        fault = fault_in_svid(svid, principal, trust_domains, now)
        return svid.id if fault is None else fault

    def _read(self, certificate: str) -> Svid | NoIdentity:
        key = sha256(certificate.encode(errors="surrogatepass")).digest()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        svid = parse_svid(certificate)
        if isinstance(svid, Svid):
            self._known[key] = svid
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return svid


def _parse(certificate: x509.Certificate) -> Svid | NoIdentity:
    names = _extension(certificate, x509.SubjectAlternativeName)
    uris = [] if names is None else names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        return NoIdentity(Why.NOT_ONE_URI)
    found = parse_spiffe_id(uris[0])
    if isinstance(found, NotSpiffe):
        return NoIdentity(Why.NOT_SPIFFE)
    if not found.path:
        return NoIdentity(Why.NO_WORKLOAD)
    fault = _fault_in_purpose(certificate)
    if fault is not None:
        return NoIdentity(fault)
    return Svid(
        id=found,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def _fault_in_purpose(certificate: x509.Certificate) -> Why | None:
    """Say why a certificate is not that of a client, such as one of a CA; None if it is."""
    constraints = _extension(certificate, x509.BasicConstraints)
    usage = _extension(certificate, x509.KeyUsage)
    if (constraints is not None and constraints.ca) or (usage is not None and (usage.key_cert_sign or usage.crl_sign)):
        return Why.AUTHORITY
    purposes = _extension(certificate, x509.ExtendedKeyUsage)
    if (usage is not None and not usage.digital_signature) or (
        purposes is not None and _FOR_CLIENTS.isdisjoint(purposes)
    ):
        return Why.USAGE
    return Why.SELF_SIGNED if _self_signed(certificate) else None


def _self_signed(certificate: x509.Certificate) -> bool:
    if certificate.issuer != certificate.subject:
        return False
    try:
        certificate.verify_directly_issued_by(certificate)
    except InvalidSignature:
        return False
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The signature cannot be checked; the names say that it is.
        return True
    return True


def _extension(
    certificate: x509.Certificate, kind: type[x509.extensions.ExtensionTypeVar]
) -> x509.extensions.ExtensionTypeVar | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
