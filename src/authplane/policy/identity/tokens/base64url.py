"""Base64 for URLs, of which each value has one spelling."""

from binascii import Error, a2b_base64, b2a_base64
from typing import Final

_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


def decode_base64url(text: bytes) -> bytes | None:
    """Decode ``text``; None if it has padding, foreign characters or unused bits."""
    try:
        value = a2b_base64(text.translate(_TO_STANDARD) + b"=" * (-len(text) % 4))
    except Error:
        return None
    # The decoder skips and ignores a lot; only the one right spelling comes out again.
    return value if encode_base64url(value) == text else None


def encode_base64url(value: bytes) -> bytes:
    """Write a value without padding."""
    return b2a_base64(value, newline=False).translate(_TO_URL).rstrip(b"=")
