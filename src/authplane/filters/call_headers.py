"""The headers of a call, as rules ask for them."""

from base64 import b64encode
from typing import Final

from authplane.filters.calls import Call
from authplane.matching.headers import Lookup

AUTHORITY: Final = frozenset({":authority", "host"})
"""The names by which rules ask for the authority of a call."""


def lookup_in(call: Call) -> Lookup:
    """Return what looks up headers the way gRFC A41 has it.

    ``host`` is another name for ``:authority``. Several values are joined by commas, and those of ``-bin`` headers are
    base64. ``te`` belongs to the connection and is never there. The library does not tell the content type of a call,
    so that it is always that of gRPC.
    """

    def lookup(name: str) -> str | None:
        match name:
            case ":path":
                return call.path
            case ":authority" | "host":
                return call.authority
            case ":method":
                return "POST"
            case "content-type":
                return "application/grpc"
            case "te":
                return None
            case _:
                found = [_text(value) for key, value in call.metadata if key == name]
                return ",".join(found) if found else None

    return lookup


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else b64encode(value).rstrip(b"=").decode()
