"""Rewords the log lines of workers about failed TLS handshakes: Envoy writes codes of its TLS library."""

import json
import re
from typing import Final, NamedTuple

from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import HANDSHAKE_FAILED


class _Words(NamedTuple):
    """What a code means, and what to do."""

    why: str
    fix: str


_CLIENT: Final = "Give the client a client certificate that a CA in --tls-ca-path signed."
_SERVER: Final = "Give the client the CA of --tls-cert-path, and a name in that certificate as the server name."
_PLAIN: Final = "Set TLS for this server in the client's configuration."
_REJECTED: Final = _Words("the client rejected the server's certificate", _SERVER)
_NO_TLS: Final = _Words("the client does not use TLS", _PLAIN)
_CODES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _Words("the client presented no certificate", _CLIENT),
    "CERTIFICATE_VERIFY_FAILED": _Words("the client's certificate is not valid", _CLIENT),
    "TLSV1_ALERT_UNKNOWN_CA": _REJECTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _REJECTED,
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _Words("the client's TLS version is too old", "Use TLS 1.2 or 1.3 in the client."),
}
_CODE: Final = re.compile(r"OPENSSL_internal:([A-Z0-9_]+)(.*)", re.DOTALL)


def readable_line(text: str) -> str:
    """Return a line of a worker; one about a failed handshake says why in words, and what to do."""
    if HANDSHAKE_FAILED not in text:
        return text
    try:
        line = json.loads(text)
        given = str(line["why"])
    except (ValueError, KeyError, TypeError):
        return text
    found = _CODE.search(given)
    words = _CODES.get(found[1]) if found is not None else None
    if found is None or words is None:
        return text
    # "…:_certificate_verification_error_at_depth_0:_certificate_has_expired": the last part says most.
    detail = found[2].removesuffix("TLS_error_end").rstrip(":|_").rpartition(":")[2].replace("_", " ").strip()
    why = f"{words.why}: {detail}" if detail else words.why
    return json.dumps(line | {"why": why, "fix": words.fix})
