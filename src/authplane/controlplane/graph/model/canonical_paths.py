"""Paths as a proxy matches them: after it has made them canonical."""

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
        return "must start with /"
    if "?" in path or "#" in path:
        return "must not have a query or a fragment"
    if "//" in path:
        return "must not have two slashes in a row: they are merged before routes are matched"
    if any(segment in {".", ".."} for segment in path.split("/")):
        return "must not have the segments . or ..: they are resolved before routes are matched"
    if not _SEGMENTS.fullmatch(path):
        return "must be written as in a URL: other characters as %XX with upper-case digits"
    return _encoding_problem(path)


def target_problem(path: str) -> str:
    """Say why a path cannot be given to an origin or a client, or nothing."""
    if not path.startswith("/"):
        return "must start with /"
    if path.startswith("//"):
        return "must not start with two slashes: a client would take what follows for a host"
    if "?" in path or "#" in path:
        return "must not have a query or a fragment"
    if not _PRINTED.fullmatch(path):
        return "must be written as in a URL: other characters as %XX"
    return ""


def _encoding_problem(path: str) -> str:
    for digits in _ENCODED.findall(path):
        character = chr(int(digits, 16))
        if character in _SLASHES:
            return "must not have an encoded slash: such requests are refused"
        if character in _UNRESERVED:
            return f"must have {character!r} instead of %{digits}, which is decoded before routes are matched"
    return ""
