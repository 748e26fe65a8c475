"""Why a TLS handshake with a client failed, in words: TLS libraries write codes."""

import re
from typing import Final, NamedTuple

HANDSHAKE_FAILED: Final = "TLS handshake failed"
"""The log message about a client whose certificate is missing or not from the CA."""


class HandshakeWords(NamedTuple):
    """What a code means, and what to do."""

    why: str
    fix: str


_CLIENT: Final = "Give the client a client certificate that a CA in --tls-ca-path signed."
_SERVER: Final = "Give the client the CA of --tls-cert-path, and a name in that certificate as the server name."
_PLAIN: Final = "Set TLS for this server in the client's configuration."
_REJECTED: Final = HandshakeWords("the client rejected the server's certificate", _SERVER)
_NO_TLS: Final = HandshakeWords("the client does not use TLS", _PLAIN)
_CODES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": HandshakeWords("the client presented no certificate", _CLIENT),
    "CERTIFICATE_VERIFY_FAILED": HandshakeWords("the client's certificate is not valid", _CLIENT),
    "TLSV1_ALERT_UNKNOWN_CA": _REJECTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _REJECTED,
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": HandshakeWords("the client's TLS version is too old", "Use TLS 1.2 or 1.3 in the client."),
}
_CODE: Final = re.compile(r"OPENSSL_internal:([A-Z0-9_]+)(.*)", re.DOTALL)
_NO_DETAIL: Final = frozenset({"", "ok", "Invalid certificate verification context"})
"""What gRPC and Envoy write if the library knows no more than the code."""


def handshake_words(given: str) -> HandshakeWords | None:
    """Say in words why a handshake failed, by the text of Envoy or gRPC; None if its code is not known."""
    found = _CODE.search(given)
    words = _CODES.get(found[1]) if found is not None else None
    if found is None or words is None:
        return None
    # "…:_certificate_verification_error_at_depth_0:_certificate_has_expired": the last part says most.
    detail = found[2].removesuffix("TLS_error_end").rstrip(":|_").rpartition(":")[2].replace("_", " ").strip()
    return words if detail in _NO_DETAIL else words._replace(why=f"{words.why}: {detail}")
