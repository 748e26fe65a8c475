"""Kinds of the agentic networking group: Backend."""

from dataclasses import dataclass
from typing import Annotated, Final

from authplane.resources.kinds.meta import Meta
from authplane.resources.schema import Length, OneOf, Range

_PORT: Final = Range(1, 65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBackend:
    """An MCP server: a Service in the Backend's namespace or an external host name, one of the two."""

    service_name: Annotated[str, Length(1)] | None = None
    hostname: Annotated[str, Length(1, 253)] | None = None
    port: Annotated[int, _PORT]
    path: str = "/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """``spec`` of a Backend."""

    type: Annotated[str, OneOf(("MCP",))] = "MCP"
    mcp: McpBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Something that policies protect."""

    metadata: Meta
    spec: BackendSpec
