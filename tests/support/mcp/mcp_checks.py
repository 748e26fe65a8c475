"""Checks about calls of MCP servers, as Envoy sends them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.certificates import authority

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue

AGENT: Final = "spiffe://cluster.local/ns/default/sa/agent"
SHOP: Final = {"authplane.target": "Backend/default/shop", "authplane.gateway": "Gateway/default/authplane/default"}


@cache
def workload(spiffe_id: str = AGENT) -> KeyPair:
    """Return a certificate that proves a SPIFFE id."""
    leaf = Leaf(name="workload", usage=Usage.CLIENT, uris=(spiffe_id,))
    return issue(authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


def call_body(tool: str = "add", **arguments: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    ).encode()


def mcp_check(
    body: bytes,
    *,
    spiffe_id: str = "",
    context: Mapping[str, str] = SHOP,
    headers: Mapping[str, str] | None = None,
    path: str = "/mcp",
) -> pb.CheckRequest:
    """Build a check of a POST, with the certificate of a workload if it is one that asks."""
    source = attribute_context_pb2.AttributeContext.Peer()
    source.address.socket_address.address = "10.0.0.1"
    if spiffe_id:
        source.principal = spiffe_id
        source.certificate = quote(workload(spiffe_id).certificate)
    http = attribute_context_pb2.AttributeContext.HttpRequest(
        id="42",
        method="POST",
        scheme="https",
        host="mcp.example",
        path=path,
        raw_body=body,
        headers={
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            "x-envoy-auth-partial-body": "false",
            **(headers or {}),
        },
    )
    return pb.CheckRequest(
        attributes=attribute_context_pb2.AttributeContext(
            source=source,
            request=attribute_context_pb2.AttributeContext.Request(http=http),
            context_extensions=dict(context),
        )
    )


def tool_check(tool: str = "add", *, spiffe_id: str = "", **more: Any) -> pb.CheckRequest:
    return mcp_check(call_body(tool), spiffe_id=spiffe_id, **more)
