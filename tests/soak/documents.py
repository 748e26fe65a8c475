"""The resources: a Gateway before MCP servers in two namespaces, an open route, and an HTTPProxy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import EXTENSION, proxy, service
from tests.support.mcp.mcp_checks import AGENT
from tests.support.ports import free_port

WEB = "web.example"
SHOP, BANK, OPEN = "shop", "bank", "open"
NAMESPACES = {SHOP: "default", BANK: "vault"}
_API = "agentic.networking.x-k8s.io"
_CHOICES = {BANK: "authplane.dev/placement: CallOut"}
"""Envoy decides before one server, and asks the policy server about all requests to the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where everybody listens."""

    origin: int
    http: int = field(default_factory=free_port)
    https: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)
    insecure: int = field(default_factory=free_port)
    auth: int = field(default_factory=free_port)
    policy: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)


def configuration(ports: Ports, issuer: str) -> str:
    reach = "allowPrivateNetwork: true, caSecret: {name: ca, namespace: default}"
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{address: 127.0.0.1}}
  listeners:
    http: {{address: 127.0.0.1, port: {ports.insecure}}}
    https: {{address: 127.0.0.1, port: {ports.web}}}
  policyServer: {{address: "127.0.0.1:{ports.policy}"}}
  issuers: [{{url: {issuer}, {reach}}}]
"""


def gateway(ports: Ports) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: authplane
  listeners:
  - {{name: plain, port: {ports.http}, protocol: HTTP, allowedRoutes: {{namespaces: {{from: All}}}}}}
  - name: secure
    port: {ports.https}
    protocol: HTTPS
    tls: {{certificateRefs: [{{name: tls}}], frontendValidation: {{caCertificateRefs: [{{name: ca}}]}}}}
    allowedRoutes: {{namespaces: {{from: All}}}}
"""


def _route(name: str, namespace: str, reference: str) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  parentRefs: [{{name: edge, namespace: default}}]
  rules:
  - matches: [{{path: {{value: /{name}}}}}]
    backendRefs: [{{{reference}}}]
"""


def backend(name: str, ports: Ports) -> str:
    namespace = NAMESPACES[name]
    made = f"""
apiVersion: {_API}/v1alpha1
kind: Backend
metadata: {{name: {name}, namespace: {namespace}, annotations: {{{_CHOICES.get(name, "")}}}}}
spec: {{type: MCP, mcp: {{serviceName: {name}, port: 80}}}}
"""
    reference = f"group: {_API}, kind: Backend, name: {name}"
    return "\n---\n".join([made, service(name, ports.origin, namespace=namespace), _route(name, namespace, reference)])


def policy(target: str, issuer: str, *, sells: bool, name: str = "") -> str:
    """Let bearers of tokens and one workload call tools; whether ``sell`` is one of them is what edits change."""
    tools = "[add, sell]" if sells else "[add]"
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer}', audiences: [soak]}}}}"
    authorization = f"[{{type: InlineTools, tools: {tools}}}]"
    return f"""
apiVersion: {_API}/v1alpha1
kind: AccessPolicy
metadata: {{name: {name or target}, namespace: {NAMESPACES[target]}}}
spec:
  targetRefs: [{{group: {_API}, kind: Backend, name: {target}}}]
  rules:
  - {{name: bearers, source: {source}, authorization: {authorization}}}
  - {{name: agents, source: {{type: SPIFFE, spiffe: "{AGENT}"}}, authorization: {authorization}}}
"""


def files(ports: Ports, issuer: str) -> Mapping[str, str]:
    """Return everything by the name of its file, with both tools allowed."""
    open_route = _route(OPEN, "default", f"name: {OPEN}, port: 80")
    return {
        "gateway.yaml": "\n---\n".join([configuration(ports, issuer), gateway(ports), ca_secret("ca")]),
        "tls.yaml": tls_secret("tls", server("localhost", WEB)),
        "open.yaml": "\n---\n".join([service(OPEN, ports.origin), open_route]),
        "web.yaml": "\n---\n".join([service("echo", ports.origin), service("auth", ports.auth), EXTENSION, proxy(WEB)]),
        **{f"{name}.yaml": backend(name, ports) for name in NAMESPACES},
        **{policy_file(name): policy(name, issuer, sells=True) for name in NAMESPACES},
    }


def policy_file(target: str) -> str:
    return f"{target}-policy.yaml"
