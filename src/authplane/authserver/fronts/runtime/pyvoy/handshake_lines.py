"""Rewords the log lines of workers about failed TLS handshakes: Envoy writes codes of its TLS library."""

import json

from authplane.runtime.servers.handshake_words import HANDSHAKE_FAILED, handshake_words


def readable_line(text: str) -> str:
    """Return a line of a worker; one about a failed handshake says why in words, and what to do."""
    if HANDSHAKE_FAILED not in text:
        return text
    try:
        line = json.loads(text)
        words = handshake_words(str(line["why"]))
    except (ValueError, KeyError, TypeError):
        return text
    return text if words is None else json.dumps(line | words._asdict())
