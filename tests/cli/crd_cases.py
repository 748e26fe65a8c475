"""Documents whose fields are valid one by one and not together, and who refuses them."""

from typing import Any, Final, NamedTuple

import yaml

AGENTIC: Final = "agentic.networking.x-k8s.io/v1alpha1"
OWN: Final = "authplane.dev/v1alpha1"


class Case(NamedTuple):
    """A document of a kind, by its ``spec``, and what the API server says; empty if only the status does."""

    kind: str
    spec: str
    message: str = ""
    version: str = AGENTIC

    @property
    def document(self) -> dict[str, Any]:
        """The whole document."""
        head = {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": "case", "namespace": "default"}}
        return {**head, "spec": yaml.safe_load(self.spec)}


_TARGETS: Final = "targetRefs: [{kind: Backend, name: case}]"


def _rule(rule: str, message: str = "") -> Case:
    return Case("AccessPolicy", f"{{{_TARGETS}, rules: [{rule}]}}", message)


def _source(source: str, message: str) -> Case:
    return _rule(f"{{source: {source}, tools: [a]}}", message)


def _entry(entry: str, message: str = "") -> Case:
    return _rule(f"{{authorization: [{entry}]}}", message)


def _mcp(mcp: str, message: str = "") -> Case:
    return Case("Backend", f"{{mcp: {mcp}}}", message)


def _served(backends: str, message: str = "") -> Case:
    return Case("AuthorizationService", f"{{backends: {backends}}}", message, OWN)


REFUSED: Final = (
    _served("[{name: a}]", "A backend has exactly one of"),
    _served("[{name: a, htpasswd: {folder: /f}, testserver: {}}]", "A backend has exactly one of"),
    _served("[{name: a, htpasswd: {}}]", "The backend has no users."),
    _served("[{name: a, testserver: {}, when: [{host: a.example, pathPrefix: /a}]}]", "must have at most 1 item"),
    Case(
        "AuthplaneConfiguration",
        "{issuers: [{url: 'https://a', jwtSvids: {trustDomain: a, audiences: [a]},"
        " serviceAccounts: {audiences: [a], verification: Keys}}]}",
        "'jwtSvids' and 'serviceAccounts' are both set.",
        OWN,
    ),
    Case(
        "AuthplaneConfiguration",
        "{issuers: [{url: 'https://a', caFile: /a, caSecret: {name: a, namespace: a}}]}",
        "'caFile' and 'caSecret' are both set.",
        OWN,
    ),
    Case("AuthplaneConfiguration", "{listeners: {https: {port: 8080}}}", "http and https have the same port.", OWN),
    Case("AuthplaneConfiguration", "{listeners: {http: {address: here}}}", "The address is not an IP address.", OWN),
    Case("AuthplaneConfiguration", "{listeners: {https: {address: here}}}", "The address is not an IP address.", OWN),
    Case(
        "AccessPolicy",
        "{targetRefs: [{kind: Backend, name: a}, {kind: Gateway, name: a}], rules: []}",
        "The targets have different kinds.",
    ),
    Case(
        "AccessPolicy",
        f"{{{_TARGETS}, rules: [{{name: a, tools: [a]}}, {{name: a, tools: [b]}}]}}",
        "Two rules have the same name.",
    ),
    _rule(
        "{tools: [a], authorization: [{type: InlineTools, tools: [a]}]}", "'tools' and 'authorization' are both set."
    ),
    _source("{type: SPIFFE, spiffe: []}", "Type SPIFFE requires 'spiffe'."),
    _source("{type: OIDC, oidc: {issuerUrl: 'https://a'}, spiffe: ['spiffe://a/b']}", "Only type SPIFFE can have"),
    _source("{type: ServiceAccount}", "Type ServiceAccount requires 'serviceAccount'."),
    _source("{type: SPIFFE, spiffe: ['spiffe://a/b'], serviceAccount: {name: a}}", "Only type ServiceAccount can have"),
    _source("{type: OIDC}", "Type OIDC requires 'oidc'."),
    _source("{type: ServiceAccount, serviceAccount: {name: a}, oidc: {issuerUrl: a}}", "Only type OIDC can have"),
    _entry("{type: InlineTools}", "Type InlineTools requires 'tools'."),
    _entry("{type: CEL, cel: {expression: 'true'}, tools: [a]}", "Only type InlineTools can have"),
    _entry("{type: CEL}", "Type CEL requires 'cel'."),
    _entry("{type: InlineTools, tools: [a], cel: {expression: 'true'}}", "Only type CEL can have"),
    _entry("{type: ExternalAuth}", "Type ExternalAuth requires 'externalAuth'."),
    _entry(
        "{type: CEL, cel: {expression: 'true'}, externalAuth: {protocol: GRPC, backendRef: {name: a, port: 1}}}",
        "Only type ExternalAuth can have",
    ),
    _entry("{type: Inline, methods: []}", "Type Inline requires a condition"),
    _entry("{type: InlineTools, tools: [a], methods: [GET]}", "Only type Inline can have conditions."),
    _entry(
        "{type: ExternalAuth, externalAuth: {protocol: GRPC, http: {}, backendRef: {name: a, port: 1}}}",
        "'http' applies only to protocol HTTP.",
    ),
    _entry(
        "{type: ExternalAuth, externalAuth: {protocol: HTTP, grpc: {}, backendRef: {name: a, port: 1}}}",
        "'grpc' applies only to protocol GRPC.",
    ),
    _entry(
        "{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: a}}}", "The reference has no 'port'."
    ),
    _entry("{type: Inline, paths: [{pattern: /a, value: /a}]}", "must validate one and only one schema (oneOf)"),
    _entry("{type: Inline, paths: [{type: Exact}]}", "must validate one and only one schema (oneOf)"),
    _entry("{type: Inline, paths: [{pattern: /a, type: Exact}]}", "must not validate the schema (not)"),
    Case("Backend", "{}", "Type MCP requires 'mcp'."),
    Case("Backend", "{type: GRPC, grpc: {port: 1}, mcp: {url: 'https://a'}}", "Only type MCP can have"),
    Case("Backend", "{type: GRPC}", "Type GRPC requires 'grpc'."),
    Case("Backend", "{mcp: {url: 'https://a'}, grpc: {port: 1}}", "Only type GRPC can have"),
    Case("Backend", "{type: GRPC, grpc: {port: 1, address: here}}", "The address is not an IP address."),
    _mcp("{port: 1}", "A Backend needs exactly one of"),
    _mcp("{serviceName: a, hostname: a, port: 1}", "A Backend needs exactly one of"),
    _mcp("{serviceName: a}", "'port' is required with serviceName and hostname."),
    _mcp("{url: 'https://a', port: 1}", "'port' and 'path' exclude 'url'."),
    _mcp("{url: 'https://a', path: /a}", "'port' and 'path' exclude 'url'."),
    _mcp("{url: 'ftp://a'}", "The URL is not usable."),
    _mcp("{url: 'https://me:secret@a/b'}", "The URL is not usable."),
    Case("XAccessPolicy", f"{{{_TARGETS}, action: ExternalAuth}}", "Action ExternalAuth requires 'externalAuth'"),
    Case(
        "XBackend",
        "{type: GRPC, grpc: {port: 1}}",
        "An XBackend can only be an MCP server.",
        "agentic.networking.x-k8s.io/v0alpha0",
    ),
    Case(
        "BackendTLSPolicy",
        "{targetRefs: [{kind: Service, name: a}], validation: {hostname: a.example}}",
        "Exactly one of 'caCertificateRefs' and 'wellKnownCACertificates'",
        "gateway.networking.k8s.io/v1",
    ),
)
"""The API server refuses them, and so does the reader or the control plane."""

LEFT_TO_THE_STATUS: Final = (
    _served("[{name: a, testserver: {}, when: [{host: a.example}]}, {name: a, testserver: {}}]"),
    _served("[{name: a, testserver: {}}, {name: b, testserver: {}}]"),
    _served("[{name: a, testserver: {}, when: [{host: a.example}, {host: b.example}]}]"),
    _mcp("{url: 'https://[1]/'}"),
    _mcp("{url: 'https://a:0/'}"),
    _entry("{type: CEL, cel: {expression: '1 +'}}"),
    _entry("{type: Inline, mcp: {}}"),
    _entry("{type: Inline, methods: ['not a method']}"),
    _entry("{type: Inline, paths: [{pattern: no-path}]}"),
    _entry("{type: InlineTools, tools: [a, '*']}"),
    _entry("{type: Inline, mcp: {methods: [{name: tools, params: [a]}]}}"),
    _rule("{source: {type: SPIFFE, spiffe: [no-id]}, tools: [a]}"),
    _rule("{source: {type: ServiceAccount, serviceAccount: {name: No_Name}}, tools: [a]}"),
    _rule("{source: {type: OIDC, oidc: {issuerUrl: 'ftp://a'}}, tools: [a]}"),
    Case("AccessPolicy", "{targetRefs: [{kind: Pod, name: a}], rules: []}"),
    Case("AuthplaneConfiguration", "{issuers: [{url: 'https://a', clockSkew: soon}]}", version=OWN),
)
"""The API server accepts them: no schema can refuse them, or only at too high a cost."""

ACCEPTED: Final = (
    _served("[{name: a, htpasswd: {files: [{path: /a}]}, when: [{host: a.example}, {pathPrefix: /.a/..b}]}]"),
    _mcp("{url: 'HTTPS://a:1/b@c'}"),
    _mcp("{hostname: a, port: 1, path: /a}"),
    Case("Backend", "{type: GRPC, grpc: {port: 1, address: '::1'}}"),
    _rule("{source: {type: SPIFFE, spiffe: ['spiffe://a/b']}, tools: [a]}"),
    _rule("{source: {type: ServiceAccount, serviceAccount: {name: a}, spiffe: []}, tools: [a]}"),
    _entry("{type: CEL, cel: {expression: 'request.path == \"/\"'}, methods: []}"),
    _entry("{type: Inline, paths: [{pattern: '/a*'}, {value: /a}, {type: Exact, value: /b}]}"),
    Case("AuthplaneConfiguration", "{listeners: {http: {address: '::', port: 1}}}", version=OWN),
)
"""Neither the API server nor the control plane refuses them."""
