"""Where the MCP server of a Backend is: a Service, a host name, or a URL."""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from authplane.core.addresses import parse_ip_address
from authplane.core.problems import Problem
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.resources.kinds.agentic import McpBackend

DEFAULT_PATH: Final = "/mcp"
_EXAMPLE: Final = "Use a URL such as http://127.0.0.1:7000/mcp."
_SCHEMES: Final = {"http": 80, "https": 443}
_WHERE: Final = ("spec", "mcp")
_PRINTED: Final = re.compile(r"[!-~]+")
_LONGEST_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class McpService:
    """A port of a Service in the Backend's namespace."""

    name: str
    port: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHost:
    """A host outside, over TLS."""

    hostname: str
    port: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class McpUrl:
    """One address, with or without TLS."""

    text: str
    """As its author wrote it."""
    secure: bool
    host: str
    """A DNS name or an IP address, in lower case and without brackets."""
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the server gets as host: the port is left out if the scheme implies it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _SCHEMES["https" if self.secure else "http"] else f"{host}:{self.port}"


McpPlace: TypeAlias = McpService | McpHost | McpUrl


def mcp_place(mcp: McpBackend) -> McpPlace:
    """Return where a server is; the document has passed `place_problems`."""
    if mcp.url is not None:
        parsed = parse_mcp_url(mcp.url)
        if isinstance(parsed, str):
            raise ValueError(parsed)
        return parsed
    path = DEFAULT_PATH if mcp.path is None else mcp.path
    if mcp.port is None:
        raise ValueError("a Backend without a port is not accepted")
    if mcp.service_name is not None:
        return McpService(name=mcp.service_name, port=mcp.port, path=path)
    return McpHost(hostname=mcp.hostname or "", port=mcp.port, path=path)


def place_problems(mcp: McpBackend) -> Iterator[Problem]:
    """Find what is wrong with the fields together, and with the form of a URL."""
    given = {"serviceName": mcp.service_name, "hostname": mcp.hostname, "url": mcp.url}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        found = f"{' and '.join(named)} are set." if named else "None of them is set."
        message = f"A Backend needs exactly one of serviceName, hostname and url. {found} Set one of the three."
        yield Problem(_WHERE, "FieldInvalid", message)
        return
    if mcp.url is None:
        if mcp.port is None:
            yield Problem((*_WHERE, "port"), "FieldRequired", f"'port' is required with {named[0]}. Set port.")
        return
    for field, value in (("port", mcp.port), ("path", mcp.path)):
        if value is not None:
            message = f"{field!r} and 'url' exclude each other. Remove {field!r}: the URL contains it."
            yield Problem((*_WHERE, field), "FieldInvalid", message)
    parsed = parse_mcp_url(mcp.url)
    if isinstance(parsed, str):
        yield Problem((*_WHERE, "url"), "FieldInvalid", parsed)


def parse_mcp_url(text: str) -> McpUrl | str:
    """Read a URL; the answer is a message for its author if that is not possible."""
    shown = repr(shorten(text, _LONGEST_SHOWN))
    if not _PRINTED.fullmatch(text):
        return f"{shown} contains spaces or characters that a URL must encode. Write them as %XX."
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return f"{shown} is not a URL. {_EXAMPLE}"
    host = (parts.hostname or "").removesuffix(".")
    wrong = _problem(text, parts, host)
    if wrong:
        return wrong.format(shown=shown)
    if port == 0 or parts.netloc.endswith(":"):
        return f"{shown} has no usable port. Use a port from 1 to 65535, or leave out the colon."
    address = parse_ip_address(host)
    return McpUrl(
        text=text,
        secure=parts.scheme == "https",
        host=host if address is None else str(address),
        port=_SCHEMES[parts.scheme] if port is None else port,
        path=parts.path or "/",
    )


def _problem(text: str, parts: SplitResult, host: str) -> str:
    """Say what is wrong with a URL, with ``{shown}`` in place of the URL; empty if nothing."""
    if parts.scheme not in _SCHEMES or not text.lower().startswith(f"{parts.scheme}://"):
        return f"{{shown}} does not start with http:// or https://. {_EXAMPLE}"
    if "@" in parts.netloc:
        return "The URL contains a user name or a password. Remove them: authplane sends no credentials to a Backend."
    if "?" in text or "#" in text:
        return "{shown} has a query or a fragment. Remove the '?' or '#' and everything after it."
    if not host or "%" in host or (parts.netloc.startswith("[") and parse_ip_address(host) is None):
        return f"{{shown}} does not name a host. {_EXAMPLE}"
    return ""
