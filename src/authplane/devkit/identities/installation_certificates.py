"""Certificates for the connections between the parts of an installation, kept as Secrets of a cluster.

One CA signs a certificate for each part. A certificate is renewed in time, and when it no longer fits.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue

CA_TYPE: Final = "authplane.dev/ca"
"""The type of the Secret with the CA. No resource can refer to a Secret of this type."""
_CA_LIFETIME: Final = timedelta(days=3650)
_LEFT: Final = 3
"""A certificate is renewed when this part of its lifetime is left."""

Data: TypeAlias = Mapping[str, bytes]
"""The data of a Secret."""


class AuthorityError(Exception):
    """The CA cannot be used. The message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that needs a certificate."""

    secret: str
    """The name of the Secret."""
    host: str
    """The DNS name in the certificate."""


def new_authority(name: str, now: datetime) -> Data:
    """Return the data of a new CA."""
    pair = create_authority(f"authplane {name}", now=now, lifetime=_CA_LIFETIME)
    return {"ca.crt": pair.certificate, "ca.key": pair.key.reveal()}


def read_authority(secret: str, data: Data, now: datetime, lifetime: timedelta) -> KeyPair:
    """Return the CA of a Secret; raises `AuthorityError` if it cannot sign certificates of this lifetime."""
    remedy = f"Delete the Secret {secret} to get a new CA, run this command again, and restart all parts."
    try:
        certificate = x509.load_pem_x509_certificate(data["ca.crt"])
        key = serialization.load_pem_private_key(data["ca.key"], password=None)
    except (KeyError, TypeError, ValueError):
        raise AuthorityError(f"The Secret {secret} has no usable CA in ca.crt and ca.key. {remedy}") from None
    if key.public_key() != certificate.public_key():
        raise AuthorityError(f"The key in the Secret {secret} does not fit its certificate. {remedy}")
    if certificate.not_valid_after_utc < now + lifetime:
        end = certificate.not_valid_after_utc.date()
        raise AuthorityError(f"The CA in the Secret {secret} ends on {end}, before the certificates would. {remedy}")
    return KeyPair(certificate=data["ca.crt"], key=Secret(data["ca.key"]))


def renewed(authority: KeyPair, part: Part, found: Data | None, *, now: datetime, lifetime: timedelta) -> Data | None:
    """Return the data of a new certificate; None if the one that there is can stay."""
    if found is not None and _fits(authority, part, found, now, lifetime):
        return None
    leaf = Leaf(name=part.host[:64], usage=Usage.BOTH, dns=(part.host,))
    pair = issue(authority, leaf, now=now, lifetime=lifetime)
    return {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key.reveal()}


def _fits(authority: KeyPair, part: Part, found: Data, now: datetime, lifetime: timedelta) -> bool:
    if found.get("ca.crt") != authority.certificate:
        return False
    try:
        certificate = x509.load_pem_x509_certificate(found["tls.crt"])
        key = serialization.load_pem_private_key(found["tls.key"], password=None)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (KeyError, TypeError, ValueError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return (
        names.get_values_for_type(x509.DNSName) == [part.host]
        and key.public_key() == certificate.public_key()
        and certificate.not_valid_after_utc - now > lifetime / _LEFT
    )
