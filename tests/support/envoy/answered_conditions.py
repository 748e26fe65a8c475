"""A real Envoy that answers conditions: one route for each, and 200 where it holds."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx2
from envoy.config.rbac.v3 import rbac_pb2
from google.protobuf import json_format
from tests.support.envoy.releases import INSTALLED, Version
from tests.support.eventually import START_LIMIT
from tests.support.issuers.minting import ISSUER, claims, signer
from tests.support.mcp.lua_reader import lua_filter

from authplane.cel.envoy.translate import Condition
from authplane.cel.envoy.wire import render_policy
from authplane.policy.attached.attachments import PolicyChain
from authplane.policy.check.request import Peer, Request
from authplane.policy.decide.decide import MEANS
from authplane.policy.decide.request_case import NOBODY, Case, Identity
from authplane.policy.identity.tokens.frozen_json import freeze
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.placement.source_placement import header_key
from authplane.policy.rules.access_settings import Settings
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

ACCEPT: Final = "application/json, text/event-stream"
_MARKS: Final = dict.fromkeys(range(0xDC80, 0xDD00), "!")
_TYPES: Final = "type.googleapis.com/envoy.extensions"
_WAY: Final = PolicyChain(attachments=(), guarded=True, uses_tokens=True, reads_mcp=True, is_mcp=True, proof=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request that is sent through Envoy and judged by us."""

    method: str = "POST"
    path: str = "/mcp"
    host: str = "shop.test"
    headers: tuple[tuple[str, str | bytes], ...] = ()
    body: str = ""
    claims: dict[str, Any] | None = None

    def all_headers(self) -> list[tuple[str, str | bytes]]:
        found: list[tuple[str, str | bytes]] = [("host", self.host), ("user-agent", "test"), ("accept", ACCEPT)]
        if self.body:
            found.append(("content-type", "application/json"))
        if self.claims is not None:
            found.append(("authorization", f"Bearer {signer('ES256').token(self.token())}"))
        return [*found, *self.headers]

    def token(self) -> dict[str, Any]:
        now = int(datetime.now(UTC).timestamp())
        return claims(iat=now, exp=now + 600) | (self.claims or {})

    def is_unicode(self) -> bool:
        """Tell whether all headers are UTF-8."""
        return not any(isinstance(value, bytes) for _, value in self.headers)

    def case(self, evidence: Any = None) -> Case:
        """Return the request as the policy engine judges it."""
        return Case(Settings(), _WAY, self.request(), evidence, datetime.now(UTC), MEANS)

    def request(self) -> Request:
        """Return the request as Envoy tells it to those whom it asks."""
        path, _, query = self.path.partition("?")
        headers = [(name.lower(), _text(value)) for name, value in self.all_headers() if name != "host"]
        return Request(
            method=self.method,
            host=self.host,
            path=path,
            query=query,
            headers=(*headers, (":authority", self.host)),
            body=self.body.encode(),
            time=datetime.now(UTC),
            destination=Peer(address="127.0.0.1", port=0),
        )

    def identity(self) -> Identity:
        if self.claims is None:
            return NOBODY
        made = self.token()
        verified = Verified(issuer=ISSUER, subject="alice", claims=freeze(made), expires_at=made["exp"], id="")
        return Identity("alice", verified)


@dataclass(slots=True)
class Asked:
    """Asks a running Envoy."""

    client: httpx2.AsyncClient
    statuses: set[int] = field(default_factory=set)
    scheme: str = "http"

    async def holds(self, number: int, sent: Sent) -> bool:
        headers = [(name.encode(), _bytes(value)) for name, value in (("x-case", str(number)), *sent.all_headers())]
        response = await self.client.send(
            self.client.build_request(
                sent.method,
                f"{self.scheme}://shop.test/",
                headers=headers,
                content=sent.body,
                extensions={"target": sent.path.encode("latin-1")},
            )
        )
        self.statuses.add(response.status_code)
        return response.status_code == 299


def rbac(condition: Condition, principals: Sequence[rbac_pb2.Principal] = ()) -> dict[str, Any]:
    """Return the rules of a route with one condition."""
    policy = render_policy(condition)
    policy.principals.extend(principals or [rbac_pb2.Principal(any=True)])
    rules = rbac_pb2.RBAC(policies={"p": policy})
    return {"rules": json_format.MessageToDict(rules, preserving_proto_field_name=True)}


def bootstrap(
    conditions: Sequence[Condition],
    socket: Path,
    principals: Sequence[rbac_pb2.Principal] = (),
    underscores: str = "ALLOW",
    arguments: Sequence[str] = (),
) -> str:
    """Return a configuration with a route for each condition; all of them read these tool arguments."""
    keeps = {
        "reader": {
            "@type": f"{_TYPES}.filters.http.lua.v3.LuaPerRoute",
            "filter_context": {"arguments": "\n".join(arguments)},
        }
    }
    routes = [
        {
            "match": {"prefix": "/", "headers": [{"name": "x-case", "string_match": {"exact": str(number)}}]},
            "direct_response": {"status": 299},
            "typed_per_filter_config": {
                "rbac": {"@type": f"{_TYPES}.filters.http.rbac.v3.RBACPerRoute", "rbac": rbac(condition, principals)},
                **(keeps if arguments else {}),
            },
        }
        for number, condition in enumerate(conditions)
    ]
    provider = {
        "issuer": ISSUER,
        "local_jwks": {"inline_string": json.dumps({"keys": [signer("ES256").jwk()]})},
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "payload_in_metadata": ISSUER,
        "header_in_metadata": header_key(ISSUER),
        "require_expiration": True,
        "clock_skew_seconds": 30,
        "forward": True,
    }
    rule = {"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": [
        {"provider_name": "p"}, {"allow_missing_or_failed": {}},
    ]}}}  # fmt: skip
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "oracle",
        "common_http_protocol_options": {"headers_with_underscores_action": underscores},
        "route_config": {"virtual_hosts": [{"name": "oracle", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {
                "name": "jwt",
                "typed_config": {
                    "@type": f"{_TYPES}.filters.http.jwt_authn.v3.JwtAuthentication",
                    "providers": {"p": provider},
                    "rules": [rule],
                },
            },
            {"name": "reader", "typed_config": lua_filter()},
            {"name": "rbac", "typed_config": {"@type": f"{_TYPES}.filters.http.rbac.v3.RBAC", "rules": {}}},
            {"name": "router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}},
        ],
    }
    listener = {
        "name": "oracle",
        "address": {"pipe": {"path": str(socket)}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener]}})


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def answering(
    conditions: Sequence[Condition],
    folder: Path,
    *,
    underscores: str = "ALLOW",
    arguments: Sequence[str] = (),
    envoy: Version = INSTALLED,
) -> AsyncGenerator[Asked]:
    """Run Envoy with these conditions, and tell it what to do with headers that have underscores."""
    socket = folder / "s"
    config = bootstrap(conditions, socket, (), underscores, arguments)
    async with (
        run_envoy(config, sink=_ignore, settings=envoy.settings()) as running,
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(socket)), timeout=20) as client,
    ):
        await running.ready(limit=START_LIMIT)
        yield Asked(client)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(value: str | bytes) -> str:
    """Return a header as Envoy tells it to those whom it asks: what is not UTF-8 becomes exclamation marks."""
    return value if isinstance(value, str) else value.decode(errors="surrogateescape").translate(_MARKS)
