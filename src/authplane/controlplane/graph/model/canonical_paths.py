"""Canonical paths, as a proxy matches them."""

import re
from typing import Final

_SEGMENTS: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})*)+")
_ENCODED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PRINTED: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})+")
_SLASHES: Final = frozenset("/\\")


def path_problem(path: str) -> str:
    """Say why no request could ever match ``path``, or nothing.

    Envoy decodes, merges slashes and resolves dots before it looks for a route, and so do we ask it to. A condition in
    any other form would be dead, and the requests that it was meant for would meet a less strict route.
    """
    if not path.startswith("/"):
        return "does not start with a slash. Add one in front."
    if "?" in path or "#" in path:
        return "has a query or a fragment. Remove it."
    if "//" in path:
        return "has two slashes in a row, which Envoy merges before it matches routes. Use one slash."
    if any(segment in {".", ".."} for segment in path.split("/")):
        return "has a segment . or .., which Envoy resolves before it matches routes. Write the resolved path."
    if not _SEGMENTS.fullmatch(path):
        return "has characters that a URL cannot have. Write them as %XX with upper-case digits."
    return _encoding_problem(path)


def target_problem(path: str) -> str:
    """Say why a path cannot be given to an origin or a client, or nothing."""
    if not path.startswith("/"):
        return "does not start with a slash. Add one in front."
    if path.startswith("//"):
        return "starts with two slashes, so a client would read the text after them as a host. Use one slash."
    if "?" in path or "#" in path:
        return "has a query or a fragment. Remove it."
    if not _PRINTED.fullmatch(path):
        return "has characters that a URL cannot have. Write them as %XX."
    return ""


def _encoding_problem(path: str) -> str:
    for digits in _ENCODED.findall(path):
        character = chr(int(digits, 16))
        if character in _SLASHES:
            return "has an encoded slash, and Envoy rejects such requests. Use a plain slash."
        if character in _UNRESERVED:
            return f"has %{digits}, which Envoy decodes before it matches routes. Write {character!r} instead."
    return ""
