"""Which changes take away something that protects."""

from typing import NamedTuple

import pytest

from authplane.resources.catalogue import KINDS, Resource
from authplane.sources.document_versions import Library
from authplane.sources.loosening import LooseningContext, loosening

AGENTIC = "agentic.networking.x-k8s.io/v1alpha1"
CONTOUR = "projectcontour.io/v1"
TOKEN = "{type: OIDC, oidc: {issuerUrl: 'https://i.example', audiences: [shop]}}"
SPIFFE = "{type: SPIFFE, spiffe: ['spiffe://a/b']}"
QUIET = ""
WIDER = "has a rule that is new or grants more"


def read(text: str) -> Resource | None:
    """Read one document; an empty text is none."""
    if not text:
        return None
    library = Library()
    library.changed("f", text.encode())
    loaded = library.current()
    assert not loaded.findings, loaded.findings
    key = next(iter(loaded.origins.claims))
    resource = loaded.origins.claims[key][0].doc.resource
    assert resource is not None
    return resource


def head(api: str, kind: str, more: str = "") -> str:
    return f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: x{more}}}\n"


def policy(rules: str, *, targets: str = "mine", mode: str = "Enforce", more: str = "", kind: str = "") -> str:
    refs = ", ".join(f"{{kind: Backend, name: {name}}}" for name in targets.split())
    spec = f"spec: {{targetRefs: [{refs}], mode: {mode}, {kind}rules: [{rules}]}}"
    return head(AGENTIC, "XAccessPolicy" if kind else "AccessPolicy", more) + spec


def rule(source: str = TOKEN, tools: str = "add, sub", name: str = "") -> str:
    named = f"name: {name}, " if name else ""
    given = f"source: {source}, " if source else ""
    return f"{{{named}{given}authorization: [{{type: InlineTools, tools: [{tools}]}}]}}"


def inline(conditions: str, source: str = TOKEN) -> str:
    return policy(f"{{source: {source}, authorization: [{{type: Inline, {conditions}}}]}}")


AUTHORIZED = "authorization: {extensionRef: {name: a, namespace: b}}"
HOST_OFF = "authorization: {authPolicy: {disabled: true}}"
OFF = "authPolicy: {disabled: true}"


def route(prefix: str, more: str = "") -> str:
    return f"{{conditions: [{{prefix: {prefix}}}], services: [{{name: s, port: 80}}]{', ' + more if more else ''}}}"


def proxy(*routes: str, host: str = "h.example", vhost: str = "", includes: str = "", more: str = "") -> str:
    extra = f", {vhost}" if vhost else ""
    spec = f"spec: {{virtualhost: {{fqdn: {host}{extra}}}, routes: [{', '.join(routes)}], includes: [{includes}]}}"
    return head(CONTOUR, "HTTPProxy", more) + spec


SERVICE = head("v1", "Service") + "spec: {ports: [{port: 80}]}"
SECRET = head("v1", "Secret") + "stringData: {a: b}"
CONFIG_MAP = head("v1", "ConfigMap") + "data: {ca.crt: x}"
CONTOUR_MAP = head("v1", "ConfigMap").replace("x", "contour") + "data: {contour.yaml: 'disablePermitInsecure: true'}"
BACKEND = head(AGENTIC, "Backend") + "spec: {mcp: {serviceName: s, port: 80}}"
GRPC = head(AGENTIC, "Backend") + "spec: {type: GRPC, grpc: {port: 80, tls: {certificateProvider: a"
CONFIGURATION = head("authplane.dev/v1alpha1", "AuthplaneConfiguration")
GATEWAY = head("gateway.networking.k8s.io/v1", "Gateway") + (
    "spec: {gatewayClassName: authplane, listeners: [{name: a, port: 80, protocol: HTTP}]}"
)
ROUTE = head("gateway.networking.k8s.io/v1", "HTTPRoute")
GRANT = head("gateway.networking.k8s.io/v1", "ReferenceGrant") + (
    "spec: {from: [{group: '', kind: A, namespace: n}], to: [{group: '', kind: Service}]}"
)
DELEGATION = head(CONTOUR, "TLSCertificateDelegation") + (
    "spec: {delegations: [{secretName: s, targetNamespaces: [n]}]}"
)
TLS = head("gateway.networking.k8s.io/v1", "BackendTLSPolicy") + (
    "spec: {targetRefs: [{group: '', kind: Service, name: s}], "
    "validation: {hostname: s.example, wellKnownCACertificates: System}}"
)
EXTENSION = head("projectcontour.io/v1alpha1", "ExtensionService") + "spec: {services: [{name: s, port: 80}]}"


class Case(NamedTuple):
    old: str
    new: str
    want: str
    around: LooseningContext = LooseningContext()


EXEMPTS, ANY = LooseningContext(exempts=True), LooseningContext(any_policy=True)

CASES = {
    # Policies
    "a new policy": Case("", policy(rule()), QUIET),
    "a new policy where one is enough": Case(
        "", policy(rule()), "is new and may grant more requests", ANY
    ),
    "a policy goes": Case(policy(rule()), "", "is removed"),
    "a target goes": Case(policy(rule(), targets="mine other"), policy(rule()), "no longer has one of its targets"),
    "a target is another": Case(policy(rule()), policy(rule(), targets="mien"), "no longer has one of its targets"),
    "a target comes": Case(policy(rule()), policy(rule(), targets="mine other"), QUIET),
    "a source goes": Case(policy(rule()), policy(rule("")), "has a rule that is new or grants more"),
    "a source comes": Case(policy(rule("")), policy(rule()), QUIET),
    "a source is another": Case(policy(rule()), policy(rule(SPIFFE)), "has a rule that is new or grants more"),
    "a tool goes": Case(policy(rule()), policy(rule(tools="add")), QUIET),
    "a tool comes": Case(policy(rule()), policy(rule(tools="add, sub, rm")), "has a rule that is new or grants more"),
    "all tools come": Case(policy(rule()), policy(rule(tools="'*'")), "has a rule that is new or grants more"),
    "all tools alone": Case(
        policy(rule(tools="add, '*'")), policy(rule(tools="'*'")), "has a rule that is new or grants more"
    ),
    "some of all tools": Case(policy(rule(tools="'*'")), policy(rule()), QUIET),
    "all tools go": Case(policy(rule()), policy(rule(tools="")), "has a rule that is new or grants more"),
    "the authorization goes": Case(
        policy(rule()), policy(f"{{source: {TOKEN}}}"), "has a rule that is new or grants more"
    ),
    "an entry goes": Case(
        policy("{authorization: [{type: InlineTools, tools: [a]}, {type: CEL, cel: 'true'}]}"),
        policy("{authorization: [{type: InlineTools, tools: [a]}]}"),
        QUIET,
    ),
    "an expression is another": Case(
        policy("{authorization: [{type: CEL, cel: 'false'}]}"),
        policy("{authorization: [{type: CEL, cel: 'true'}]}"),
        "has a rule that is new or grants more",
    ),
    "a path goes": Case(inline("paths: [/a/List, /a/Cancel]"), inline("paths: [/a/List]"), QUIET),
    "a path comes": Case(inline("paths: [/a/List]"), inline("paths: [/a/List, /a/Cancel]"), WIDER),
    "all paths go": Case(inline("methods: [POST], paths: [/a/List]"), inline("methods: [POST]"), WIDER),
    "paths come": Case(inline("methods: [POST]"), inline("methods: [POST], paths: [/a/List]"), QUIET),
    "a path of a prefix": Case(inline("paths: [/a/*]"), inline("paths: [/a/List]"), QUIET),
    "a longer prefix": Case(inline("paths: [/a/*]"), inline("paths: [/a/b/*]"), QUIET),
    "a shorter prefix": Case(inline("paths: [/a/b/*]"), inline("paths: [/a/*]"), WIDER),
    "a path beside a prefix": Case(inline("paths: [/a/*]"), inline("paths: [/ab]"), WIDER),
    "the prefix of a path": Case(inline("paths: [/a/List]"), inline("paths: [/a/List*]"), WIDER),
    "a path of the Gateway API goes": Case(
        inline("paths: [/b, {type: Exact, value: /a}]"), inline("paths: [{type: Exact, value: /a}]"), QUIET
    ),
    "a path is a prefix now": Case(
        inline("paths: [{type: Exact, value: /a}]"), inline("paths: [{type: PathPrefix, value: /a}]"), WIDER
    ),
    "an HTTP method goes": Case(inline("methods: [GET, POST]"), inline("methods: [GET]"), QUIET),
    "an HTTP method comes": Case(inline("methods: [GET]"), inline("methods: [GET, POST]"), WIDER),
    "a host goes": Case(inline("hosts: [a.b, c.d]"), inline("hosts: [a.b]"), QUIET),
    "a host comes": Case(inline("hosts: [a.b]"), inline("hosts: [a.b, c.d]"), WIDER),
    "a port goes": Case(inline("ports: [80, 81]"), inline("ports: [80]"), QUIET),
    "a port comes": Case(inline("ports: [80]"), inline("ports: [80, 81]"), WIDER),
    "a header comes": Case(
        inline("headers: [{name: a, value: b}]"), inline("headers: [{name: a, value: b}, {name: c, value: d}]"), QUIET
    ),
    "a header goes": Case(
        inline("headers: [{name: a, value: b}, {name: c, value: d}]"), inline("headers: [{name: a, value: b}]"), WIDER
    ),
    "a path goes and a method comes": Case(
        inline("methods: [GET], paths: [/a, /b]"), inline("methods: [GET, PUT], paths: [/a]"), WIDER
    ),
    "a path goes and the source is another": Case(inline("paths: [/a, /b]"), inline("paths: [/a]", SPIFFE), WIDER),
    "an MCP method goes": Case(
        inline("mcp: {methods: [{name: ping}, {name: tools/list}]}"), inline("mcp: {methods: [{name: ping}]}"), QUIET
    ),
    "an MCP method comes": Case(
        inline("mcp: {methods: [{name: ping}]}"), inline("mcp: {methods: [{name: ping}, {name: tools/list}]}"), WIDER
    ),
    "a name of an MCP method goes": Case(
        inline("mcp: {methods: [{name: tools/call, params: [a, b]}]}"),
        inline("mcp: {methods: [{name: tools/call, params: [a]}]}"),
        QUIET,
    ),
    "all names of an MCP method go": Case(
        inline("mcp: {methods: [{name: tools/call, params: [a, b]}]}"),
        inline("mcp: {methods: [{name: tools/call}]}"),
        WIDER,
    ),
    "the MCP methods go": Case(
        inline("paths: [/a], mcp: {methods: [{name: ping}]}"), inline("paths: [/a], mcp: {methods: []}"), WIDER
    ),
    "MCP methods come": Case(inline("paths: [/a]"), inline("paths: [/a], mcp: {methods: [{name: ping}]}"), QUIET),
    "the base protocol comes": Case(
        inline("mcp: {methods: [{name: ping}]}"),
        inline("mcp: {mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS, methods: [{name: ping}]}"),
        WIDER,
    ),
    "the first form of tools": Case(policy("{tools: [a, b]}"), policy("{tools: [a]}"), QUIET),
    "a rule goes": Case(policy(f"{rule()}, {rule(SPIFFE)}"), policy(rule()), QUIET),
    "a rule comes": Case(policy(rule()), policy(f"{rule()}, {rule(SPIFFE)}"), "has a rule that is new or grants more"),
    "all rules go": Case(policy(rule()), policy(""), QUIET),
    "all rules of an XAccessPolicy go": Case(
        policy(rule(), kind="action: Allow, "), policy("", kind="action: Allow, "), "no longer has rules"
    ),
    "the name of a rule": Case(policy(rule(name="a")), policy(rule(name="b")), QUIET),
    "enforced no more": Case(policy(rule()), policy(rule(), mode="Shadow"), "is no longer enforced"),
    "enforced now": Case(policy(rule(), mode="Shadow"), policy(rule()), QUIET),
    "an annotation": Case(
        policy(rule()), policy(rule(), more=", annotations: {a: b}"), "changes its labels or annotations"
    ),
    # What policies protect
    "a new Backend": Case("", BACKEND, QUIET),
    "a Backend goes": Case(BACKEND, "", "is removed"),
    "a Backend moves": Case(BACKEND, BACKEND.replace("port: 80", "port: 81"), QUIET),
    "a Backend gets an annotation": Case(
        BACKEND, BACKEND.replace("{name: x}", "{name: x, annotations: {a: b}}"), "changes more than its address"
    ),
    "client certificates go": Case(
        GRPC + ", clientCaProvider: b}}}", GRPC + "}}}", "changes more than its address"
    ),
    "a new Gateway": Case("", GATEWAY, QUIET),
    "a Gateway changes": Case(GATEWAY, GATEWAY.replace("80", "81"), "changes"),
    "a Gateway goes": Case(GATEWAY, "", "is removed"),
    "a new HTTPRoute": Case("", ROUTE + "spec: {parentRefs: [{name: g}]}", QUIET),
    "an HTTPRoute goes": Case(ROUTE + "spec: {parentRefs: [{name: g}]}", "", QUIET),
    "the host of an HTTPRoute": Case(
        ROUTE + "spec: {parentRefs: [{name: g}], hostnames: [a.b]}",
        ROUTE + "spec: {parentRefs: [{name: g}], hostnames: [a.c]}",
        QUIET,
    ),
    "an HTTPRoute comes to another listener": Case(
        ROUTE + "spec: {parentRefs: [{name: g, sectionName: a}]}",
        ROUTE + "spec: {parentRefs: [{name: g, sectionName: b}]}",
        "changes its Gateways",
    ),
    # HTTPProxies
    "a new HTTPProxy": Case("", proxy(route("/", OFF)), QUIET, EXEMPTS),
    "a plain route becomes another": Case(proxy(route("/a")), proxy(route("/b")), QUIET),
    "a route of a host with authorization becomes another": Case(
        proxy(route("/a"), vhost=AUTHORIZED), proxy(route("/b"), vhost=AUTHORIZED), QUIET
    ),
    "a route goes and its requests may fall to one without authorization": Case(
        proxy(route("/a"), route("/b")), proxy(route("/a")), "removes a route", EXEMPTS
    ),
    "the same in one document": Case(
        proxy(route("/a"), route("/", OFF)), proxy(route("/", OFF)), "removes a route"
    ),
    "an HTTPProxy goes": Case(proxy(route("/")), "", QUIET),
    "an HTTPProxy goes beside one without authorization": Case(proxy(route("/")), "", "is removed", EXEMPTS),
    "an HTTPProxy with authorization goes": Case(proxy(route("/"), vhost=AUTHORIZED), "", "is removed"),
    "the authorization of a host goes": Case(
        proxy(route("/"), vhost=AUTHORIZED), proxy(route("/")), "changes the authorization of its host"
    ),
    "a host is taken out of global authorization": Case(
        proxy(route("/")),
        proxy(route("/"), vhost=HOST_OFF),
        "replaces the global authorization of its host",
    ),
    "a host gets authorization that may fail": Case(
        proxy(route("/")),
        proxy(route("/"), vhost="authorization: {failOpen: true, extensionRef: {name: auth}}"),
        "replaces the global authorization of its host",
    ),
    "a route goes beside a host without authorization": Case(
        proxy(route("/a"), route("/b", "authPolicy: {disabled: false}"), vhost=HOST_OFF),
        proxy(route("/a"), vhost=HOST_OFF),
        "removes a route",
    ),
    "the authorization of a host comes": Case(proxy(route("/")), proxy(route("/"), vhost=AUTHORIZED), QUIET),
    "the TLS of a host goes": Case(
        proxy(route("/"), vhost="tls: {secretName: s}"), proxy(route("/")), "changes the TLS of its host"
    ),
    "a host with authorization is another": Case(
        proxy(route("/"), vhost=AUTHORIZED), proxy(route("/"), vhost=AUTHORIZED, host="i.example"), "changes its host"
    ),
    "a plain host is another": Case(proxy(route("/")), proxy(route("/"), host="i.example"), QUIET),
    "authorization is switched off": Case(
        proxy(route("/a")), proxy(route("/a", OFF)), "changes the authorization of a route"
    ),
    "a route without authorization comes": Case(
        proxy(route("/a")), proxy(route("/a"), route("/b", OFF)), "disables authorization for a route"
    ),
    "a route without authorization goes": Case(proxy(route("/a"), route("/b", OFF)), proxy(route("/a")), QUIET),
    "authorization is switched on": Case(proxy(route("/a", OFF)), proxy(route("/a")), QUIET),
    "another context": Case(
        proxy(route("/", "authPolicy: {context: {a: b}}")),
        proxy(route("/", "authPolicy: {context: {a: c}}")),
        "changes the authorization of a route",
    ),
    "plain HTTP is permitted": Case(
        proxy(route("/")), proxy(route("/", "permitInsecure: true")), "changes the authorization of a route"
    ),
    "another service": Case(proxy(route("/")), proxy(route("/").replace("80", "81")), QUIET, EXEMPTS),
    "an include goes": Case(
        proxy(route("/"), includes="{name: c}"), proxy(route("/")), "changes its includes", EXEMPTS
    ),
    "an include goes where everything is authorized": Case(
        proxy(route("/"), includes="{name: c}"), proxy(route("/")), QUIET
    ),
    "an annotation of a host with authorization": Case(
        proxy(route("/"), vhost=AUTHORIZED),
        proxy(route("/"), vhost=AUTHORIZED, more=", annotations: {a: b}"),
        "changes more than its routes",
    ),
    # The rest
    "a Service comes": Case("", SERVICE, QUIET),
    "a Service changes": Case(SERVICE, SERVICE.replace("80", "81"), QUIET),
    "a Service goes": Case(SERVICE, "", QUIET),
    "a Secret changes": Case(SECRET, SECRET.replace("b}", "c}"), QUIET),
    "a ConfigMap goes": Case(CONFIG_MAP, "", QUIET),
    "a ConfigMap changes": Case(CONFIG_MAP, CONFIG_MAP.replace("x}", "y}"), QUIET),
    "Contour's settings come": Case("", CONTOUR_MAP, "is new"),
    "Contour's settings change": Case(CONTOUR_MAP, CONTOUR_MAP.replace("true", "false"), "changes"),
    "Contour's settings go": Case(CONTOUR_MAP, "", "is removed"),
    "Contour's settings go from their ConfigMap": Case(
        CONTOUR_MAP, CONTOUR_MAP.replace("contour.yaml", "else"), "is removed"
    ),
    "Contour's settings come into their ConfigMap": Case(
        CONTOUR_MAP.replace("contour.yaml", "else"), CONTOUR_MAP, "changes"
    ),
    "a configuration comes": Case("", CONFIGURATION, "is new"),
    "a configuration changes": Case(CONFIGURATION, CONFIGURATION + "spec: {strict: true}", "changes"),
    "a configuration goes": Case(CONFIGURATION, "", "is removed"),
    "a grant comes": Case("", GRANT, "is new and permits references"),
    "a grant changes": Case(GRANT, GRANT.replace("namespace: n", "namespace: m"), "changes"),
    "a grant goes": Case(GRANT, "", QUIET),
    "a delegation comes": Case("", DELEGATION, "is new and permits references"),
    "a delegation goes": Case(DELEGATION, "", QUIET),
    "TLS to a Service comes": Case("", TLS, QUIET),
    "TLS to a Service changes": Case(TLS, TLS.replace("s.example", "t.example"), "changes"),
    "TLS to a Service goes": Case(TLS, "", "is removed"),
    "an authorization service comes": Case("", EXTENSION, QUIET),
    "an authorization service is another": Case(EXTENSION, EXTENSION.replace("name: s", "name: t"), "changes"),
    "an authorization service goes": Case(EXTENSION, "", QUIET),
    "the same": Case(policy(rule()), policy(rule()), QUIET),
    "nothing": Case("", "", QUIET),
}  # fmt: skip


@pytest.mark.requirement("F12")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_change_takes_away(case: Case) -> None:
    assert loosening(read(case.old), read(case.new), case.around) == case.want


def test_every_kind_has_a_case() -> None:
    named = {type(read(text)).__name__ for case in CASES.values() for text in (case.old, case.new) if text}
    # The earlier forms share the code of the later ones; an EndpointSlice is as a Service; the last is never watched.
    others = {
        "XBackend",
        "XAccessPolicyV0",
        "EndpointSlice",
        "ContourConfiguration",
        "ContourDeployment",
        "AuthorizationService",
    }
    assert named | others == {kind.__name__ for kind in KINDS.values()} | {"ContourFile"}
