"""Guards MCP servers against web pages: who may call them from a browser, and under which names they are called."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse

_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """From which pages and under which names a server may be called."""

    origins: frozenset[str] = frozenset()
    """Such as ``https://app.example.com``. A request without ``Origin`` comes from no page and needs none of these."""
    hosts: frozenset[str] | None = None
    """The server's own names in lower case, with the port if requests have one; None means any."""


def fit_origin(origin: str) -> bool:
    """Tell whether this is how a browser writes an origin: scheme, host and perhaps a port, in lower case."""
    return _ORIGIN.fullmatch(origin) is not None


def fault_in_origin(headers: Iterable[tuple[str, str]], host: str, callers: Callers) -> McpRefusal | None:
    """Refuse what a page makes a browser send, unless its origin is listed; None means that the request may go on.

    A page that has its own name resolve to the server (DNS rebinding) is stopped by either of the two lists.
    """
    origins = [value for name, value in headers if name.lower() == "origin"]
    if callers.hosts is not None and host.lower() not in callers.hosts:
        return refuse(Fault.ORIGIN)
    listed = not origins or (len(origins) == 1 and origins[0] in callers.origins)
    return None if listed else refuse(Fault.ORIGIN)
