"""Small worlds of policies: documents in, decisions out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity
from authplane.policy.attached.attachments import Policies, Target
from authplane.policy.check.basic import Absent
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.request import Peer, Request
from authplane.policy.compile.compile_policies import Compiled, compile_policies
from authplane.policy.decide.decide import MEANS, decide
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Token
from authplane.policy.identity.tokens.frozen_json import freeze
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.workload_identity.peer_outcome import Why
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.rules.access_settings import Options
from authplane.policy.verdicts.effects import Ask, NoAnswer, Outcome
from authplane.policy.verdicts.verdict import Verdict
from authplane.resources.loaded_resources import Loaded
from authplane.sources.library import Library

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISSUER = "https://issuer.example"
AGENT = "spiffe://cluster.local/ns/default/sa/agent"
OTHER = "spiffe://cluster.local/ns/default/sa/other"
SHOP = Ref("Backend", "default", "shop")
EDGE = Ref("Gateway", "default", "edge")
TO_SHOP = Target(backend=SHOP)
THROUGH_EDGE = Target(backend=SHOP, gateway=EDGE)

BACKEND = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {type: MCP, mcp: {serviceName: shop, port: 80}}
"""
GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 80, protocol: HTTP}, {name: admin, port: 81, protocol: HTTP}]}
"""
SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: authz}
spec: {ports: [{port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {name: authz2}
spec: {ports: [{port: 9000}]}
"""

SPIFFE = "{type: SPIFFE, spiffe: " + AGENT + "}"
OIDC = "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [shop]}}"
SCOPED = "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [shop], scopes: [tools, admin]}}"
ADD = "[{type: InlineTools, tools: [add]}]"


def external(name: str = "authz", more: str = "") -> str:
    return f"{{protocol: GRPC, backendRef: {{name: {name}, port: 9000}}{more}}}"


def asks(name: str = "authz") -> str:
    return f"{{type: ExternalAuth, externalAuth: {external(name)}}}"


def policy(  # noqa: PLR0913 (a document has as many parts)
    rules: str = "[]",
    *,
    name: str = "p",
    namespace: str = "default",
    targets: str = "[{kind: Backend, name: shop}]",
    kind: str = "AccessPolicy",
    version: str = "v1alpha1",
    created: str = "",
    more: str = "",
) -> str:
    stamp = f", creationTimestamp: '{created}'" if created else ""
    return f"""
apiVersion: agentic.networking.x-k8s.io/{version}
kind: {kind}
metadata: {{name: {name}, namespace: {namespace}{stamp}}}
spec:
  targetRefs: {targets}
  rules: {rules}
{more}
"""


def rule(source: str = SPIFFE, authorization: str = ADD) -> str:
    return f"[{{source: {source}, authorization: {authorization}}}]"


def anybody(authorization: str) -> str:
    return f"[{{authorization: {authorization}}}]"


def settings(text: str) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {text}
"""


OPEN = settings("{unprotectedBackends: Allow}")
"""Lets everybody do everything where no policy is enforced."""


def load(*documents: str) -> Loaded:
    library = Library()
    library.changed("a.yaml", "\n---\n".join(documents).encode())
    return library.current()


def compiled(*documents: str, options: Options | None = None) -> Compiled:
    return compile_policies(load(*documents).resources, options)


def policies(*documents: str, options: Options | None = None) -> Policies:
    """Compile what must be without an error."""
    made = compiled(*documents, options=options)
    assert errors(made) == []
    return made.policies


def errors(made: Compiled) -> list[str]:
    return said(made, Severity.ERROR)


def warnings(made: Compiled) -> list[str]:
    return said(made, Severity.WARNING)


def said(made: Compiled, severity: Severity) -> list[str]:
    found: list[Problem] = [each for problems in made.problems.values() for each in problems]
    return [str(each) for each in found if each.severity is severity]


@dataclass
class Proof:
    """What a request proves; counts how often it is asked for the token."""

    ids: tuple[str, ...] = ()
    shown: Token = field(default_factory=Absent)
    sa: ServiceAccount | None = None
    looked: int = 0

    def spiffe_ids(self) -> tuple[str, ...]:
        return self.ids

    def account(self) -> ServiceAccount | None:
        return self.sa

    def fault(self) -> Why | None:
        return None

    def token(self) -> Token:
        self.looked += 1
        return self.shown


def workload(*ids: str) -> Proof:
    return Proof(ids=ids or (AGENT,))


def token(issuer: str = ISSUER, **claims: Any) -> Verified:
    whole = {"iss": issuer, "sub": "alice", "aud": "shop", "exp": 2_000_000_000, **claims}
    kept = {name: value for name, value in whole.items() if value is not None}
    return Verified(issuer=issuer, subject="alice", claims=freeze(kept), expires_at=2e9)


def bearer(issuer: str = ISSUER, **claims: Any) -> Proof:
    return Proof(shown=token(issuer, **claims))


HEADERS = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))


def request(
    method: str = "tools/call",
    params: Mapping[str, Any] | None = None,
    *,
    headers: Sequence[tuple[str, str]] = (),
    id: object = 7,  # noqa: A002
    **more: Any,
) -> Request:
    message = {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": params} if params is not None else {})
    if id is None:
        del message["id"]
    whole: dict[str, Any] = {
        "method": "POST",
        "path": "/mcp",
        "scheme": "https",
        "host": "mcp.example",
        "headers": (*HEADERS, *headers),
        "body": json.dumps(message).encode(),
        "destination": Peer(port=80),
    }
    return Request(**(whole | more))


def call(tool: str = "add", arguments: Mapping[str, Any] | None = None, **more: Any) -> Request:
    return request(params={"name": tool, "arguments": dict(arguments or {})}, **more)


INITIALIZE = request("initialize", {"protocolVersion": "2025-06-18"})
LIST = request("tools/list")
ADD_CALL = call()


class Services:
    """External services that answer as they were told; notes who was asked."""

    def __init__(self, **answers: Outcome) -> None:
        self._answers = answers
        self.asked: list[Ask] = []

    def answer(self, effect: object) -> Outcome:
        assert isinstance(effect, Ask)
        self.asked.append(effect)
        return self._answers.get(effect.service.service.name, NoAnswer("nobody"))

    @property
    def names(self) -> list[str]:
        return [each.service.service.name for each in self.asked]


def judge(  # noqa: PLR0913 (as above)
    made: Policies,
    asked: Request = ADD_CALL,
    proof: Proof | None = None,
    services: Services | None = None,
    *,
    target: Target = TO_SHOP,
    means: Means = MEANS,
) -> Verdict:
    """Decide, with external services that answer at once."""
    flow = decide(made, target, asked, proof or Proof(), NOW, means=means)
    if isinstance(flow, Verdict):
        return flow
    replies = services or Services()
    try:
        effect = next(flow)
        while True:
            effect = flow.send(replies.answer(effect))
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict


def word(verdict: Verdict) -> str:
    """Say in a word how it ended: ``allow``, the status of a denial, or ``unavailable``."""
    match verdict.decision:
        case Allow():
            return "allow"
        case Deny(http_status=status):
            return str(status)
        case Unavailable():
            return "unavailable"
