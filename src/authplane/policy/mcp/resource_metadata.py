"""The protected resource metadata of RFC 9728: the issuers of tokens for a server."""

import json
import re
from collections.abc import Iterable
from typing import Final

from authplane.policy.mcp.challenge import fit_scope, fit_url
from authplane.policy.mcp.header_front import canonical_path

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_AUTHORITY: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def metadata_path(path: str) -> str:
    """Return where the document of the server at ``path`` is: the well-known part comes before the path."""
    return WELL_KNOWN if path in {"", "/"} else WELL_KNOWN + path


def resource_url(scheme: str, authority: str, path: str) -> str | None:
    """Return the address that names a server (RFC 8707); None if a client sent a host or path that none can have.

    Scheme and host are in lower case, and the root has no slash at the end.
    """
    secure = scheme.lower()
    if secure not in {"http", "https"} or not _AUTHORITY.fullmatch(authority) or not canonical_path(path):
        return None
    url = f"{secure}://{authority.lower()}{'' if path == '/' else path}"
    return url if fit_url(url) else None


def metadata_url(scheme: str, authority: str, path: str) -> str | None:
    """Return the address of the document of the server at ``path``; None if a client sent what no address can have."""
    return (
        None if resource_url(scheme, authority, path) is None else resource_url(scheme, authority, metadata_path(path))
    )


def render_metadata(resource: str, issuers: Iterable[str], scopes: Iterable[str] = ()) -> str:
    """Write the document; raises `ValueError` without an issuer, or for what no document may say."""
    servers, reach = list(dict.fromkeys(issuers)), list(dict.fromkeys(scopes))
    if not servers or not all(fit_url(each) for each in (resource, *servers)) or not all(map(fit_scope, reach)):
        raise ValueError("a protected resource requires a URL, issuer URLs, and scopes as in RFC 6749")
    document: dict[str, object] = {
        "resource": resource,
        "authorization_servers": servers,
        "bearer_methods_supported": ["header"],
    }
    if reach:
        document["scopes_supported"] = reach
    return json.dumps(document, separators=(",", ":"))
