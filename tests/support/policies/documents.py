"""AccessPolicies and what they name, written as YAML."""

from tests.support.policies.names import AGENT

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

SPIFFE = "{type: SPIFFE, spiffe: " + AGENT + "}"
OIDC = "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [shop]}}"
SCOPED = "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [shop], scopes: [tools, admin]}}"
ADD = "[{type: InlineTools, tools: [add]}]"


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
