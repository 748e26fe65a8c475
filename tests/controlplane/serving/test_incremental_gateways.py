"""Whatever happened before: what Gateways, routes, Backends and policies come to follows from the documents alone."""

import gc
import json
import weakref
from collections.abc import Mapping
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, gateway, policy, route
from tests.support.issuers.minting import ISSUER, signer
from tests.support.resources.graph_views import authorizations_on, hosts_on

from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.graph.model.route_authorization import Enforced
from authplane.controlplane.graph.model.target_placements import Placing
from authplane.controlplane.render.native.native_enforcement import Placed, placed_of
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.envoy_releases import CURRENT, OLDEST
from authplane.sources.document_versions import Library
from authplane.xds.server.served_types import TypeUrl

OTHER: Final = "https://login.example"
CONFIGURATION: Final = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec:
  gateway: {address: 127.0.0.1}
  policyServer: {address: "unix:/run/policy.sock"}
"""
GATEWAY: Final = gateway(8080, 8443)
NARROW: Final = "  - {name: narrow, port: 8080, protocol: HTTP, hostname: '*.example'}\n"
ELSEWHERE: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: outside}
spec: {type: MCP, mcp: {hostname: mcp.example.com, port: 443}}
"""
GRPC: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: cart}
spec: {type: GRPC, grpc: {port: 50051}}
"""
GRANT: Final = """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: grant, namespace: default}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: team}]
  to: [{group: agentic.networking.x-k8s.io, kind: Backend}]
"""
TEAM: Final = (
    route("team", {"shop": 1})
    .replace("name: team}", "name: team, namespace: team}", 1)
    .replace("[{name: edge}]", "[{name: edge, namespace: default}]")
    .replace("kind: Backend,", "kind: Backend, namespace: default,")
)
OPEN: Final = GATEWAY.replace("protocol: HTTP}", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}")
SERVICE: Final = route("plain", {"shop": 1}).replace(
    "group: agentic.networking.x-k8s.io, kind: Backend, name: shop,", "kind: Service, group: '', name: shop, port: 80,"
)


def oidc(issuer: str = ISSUER, more: str = "") -> str:
    return f"{{type: OIDC, oidc: {{issuerUrl: '{issuer}', audiences: [shop]{more}}}}}"


SPIFFE: Final = '{type: SPIFFE, spiffe: ["spiffe://cluster.local/ns/default/sa/clerk"]}'


def rules(source: str, entry: str = "{type: InlineTools, tools: [add]}", name: str = "one") -> str:
    return f"[{{name: {name}, source: {source}, authorization: [{entry}]}}]"


def cel(expression: str) -> str:
    return f"{{type: CEL, cel: {{expression: '{expression}'}}}}"


def before_gateway(text: str, section: str = "") -> str:
    aim = f"kind: Gateway, name: edge{f', sectionName: {section}' if section else ''}"
    return text.replace("group: agentic.networking.x-k8s.io, kind: Backend, name: shop", aim)


def shadow(text: str) -> str:
    return text.replace("spec:", "spec:\n  mode: Shadow")


def annotated(text: str, note: str) -> str:
    return text.replace("}\nspec", f", annotations: {{{note}}}}}\nspec", 1)


VARIANTS: Final[dict[str, tuple[str, ...]]] = {
    "configuration": (
        CONFIGURATION,
        f"{CONFIGURATION}  maxRequestBody: 1000\n",
        f"{CONFIGURATION}  placement: CallOut\n",
        f"{CONFIGURATION}  unprotectedBackends: Deny\n",
        f"{CONFIGURATION}  policyComposition: Any\n",
        f"{CONFIGURATION}  trustDomain: other.example\n",
        f"{CONFIGURATION}  denialFormat: nonsense\n",
        CONFIGURATION.replace("policy.sock", "other.sock"),
    ),
    "gateway": (
        GATEWAY,
        GATEWAY + NARROW,
        OPEN,
        GATEWAY.replace("8080", "8081"),
        GATEWAY.replace(", frontendValidation: {caCertificateRefs: [{name: ca}]}", ""),
        annotated(GATEWAY, "authplane.dev/placement: CallOut"),
    ),
    "tls": (tls_secret("tls", server("localhost")),),
    "ca": (ca_secret("ca"),),
    "shop": (
        backend("shop"),
        backend("shop").replace("port: 80}", "port: 80, path: /mcp}"),
        backend("shop").replace("serviceName: shop", "serviceName: nothing"),
        annotated(backend("shop"), "authplane.dev/placement: CallOut"),
        backend("shop").replace("Backend", "XBackend").replace("v1alpha1", "v0alpha0"),
    ),
    "till": (backend("till").replace("serviceName: till", "serviceName: shop"),),
    "outside": (ELSEWHERE, ELSEWHERE.replace("mcp.example.com", "tools.example.com")),
    "service": (service("shop", 9000), service("shop", 9001), service("shop", 9000).replace("port: 80,", "port: 81,")),
    "to-shop": (
        route("shop", {"shop": 1}),
        route("shop", {"shop": 1, "till": 3}),
        route("shop", {"shop": 1}).replace("/shop", "/shop/deep"),
        route("shop", {"shop": 1}).replace("  rules:", "  hostnames: [a.example, '*.example']\n  rules:"),
        route("shop", {"shop": 1}).replace("{value: /shop}", "{type: RegularExpression, value: /s.op}"),
        route("shop", {"shop": 1}).replace("{name: edge}", "{name: edge, sectionName: secure}"),
        SERVICE.replace("name: plain", "name: shop"),
    ),
    "to-till": (
        route("till", {"till": 1}),
        route("till", {"till": 1}).replace("value: /till", "value: /shop"),
        route("till", {"till": 1}).replace("name: till}", "name: till, creationTimestamp: '2020-01-01T00:00:00Z'}", 1),
        route("till", {"outside": 1}),
    ),
    "cart": (GRPC, GRPC.replace("50051", "50052"), GRPC.replace("}}", ", tls: {certificateProvider: own}}}")),
    "team": (TEAM,),
    "grant": (GRANT,),
    "policy-shop": (
        policy(rules(oidc())),
        policy(rules(oidc(), cel('identity.role == "a" && request.mcp.tool_name == "b"'))),
        policy(rules(oidc(OTHER))),
        policy(rules(oidc(), name="two")),
        policy(rules(oidc(more=", scopes: [buy]"))),
        policy(rules(oidc(), cel("[1, 2].exists(x, x == 2)"))),
        policy(rules(oidc(), cel("nonsense("))),
        shadow(policy(rules(oidc()))),
        policy(rules(SPIFFE), "shop", "till", name="shop"),
        "kind: AccessPolicy\napiVersion: agentic.networking.x-k8s.io/v1alpha1\nmetadata: {name: shop}\nspec: 7\n",
    ),
    "policy-more": (
        policy(rules(SPIFFE), name="more"),
        policy(rules(SPIFFE), "till", name="more"),
        shadow(policy(rules(oidc(OTHER)), name="more")),
    ),
    "policy-gateway": (
        before_gateway(policy(rules(SPIFFE, cel('request.path != "/x"')), name="edge")),
        before_gateway(policy(rules(oidc()), name="edge"), "plain"),
        shadow(before_gateway(policy(rules(oidc()), name="edge"))),
        before_gateway(policy(rules(oidc()), name="edge"), "missing"),
    ),
}
"""What each file may hold; it may also be away."""
BEGUN: Final = ("configuration", "gateway", "tls", "ca", "shop", "till", "service", "to-shop", "to-till", "policy-shop")
KEYS: Final[tuple[Mapping[str, str], ...]] = (
    {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})},
    {},
    {ISSUER: json.dumps({"keys": [signer("RS256").jwk()]}), OTHER: json.dumps({"keys": [signer("ES256").jwk()]})},
)
Step: TypeAlias = tuple[str, str | None, int]
"""A file, what it holds then, and which keys are known then."""


def variant_of(file: str) -> st.SearchStrategy[tuple[str, str | None]]:
    return st.tuples(st.just(file), st.none() | st.sampled_from(VARIANTS[file]))


STEPS: Final = st.lists(
    st.tuples(st.sampled_from(sorted(VARIANTS)).flatmap(variant_of), st.sampled_from((0, 0, 0, 1, 2))).map(
        lambda drawn: (*drawn[0], drawn[1])
    ),
    min_size=1,
    max_size=8,
)


def apply(library: Library, file: str, text: str | None) -> None:
    if text is None:
        library.removed(f"{file}.yaml")
    else:
        library.changed(f"{file}.yaml", text.encode())


def begun() -> Library:
    library = Library()
    for file in BEGUN:
        apply(library, file, VARIANTS[file][0])
    return library


@pytest.mark.slow
@given(steps=STEPS)
@example(steps=[("gateway", None, 0), ("to-shop", VARIANTS["to-shop"][1], 0), ("gateway", GATEWAY, 1)])
@example(steps=[("policy-more", VARIANTS["policy-more"][2], 0), ("shop", None, 0), ("shop", VARIANTS["shop"][0], 2)])
@settings(max_examples=12, deadline=None)
def test_a_history_leads_where_its_last_state_leads_by_itself(steps: list[Step]) -> None:
    library = begun()
    generation = build_generation(library.current(), keys=KEYS[0])
    generation.edition(OLDEST)
    for file, text, known in steps:
        apply(library, file, text)
        # What a document was before it was broken is for the library to remember.
        loaded = library.current()
        generation = build_generation(loaded, generation, keys=KEYS[known])
        alone = build_generation(loaded, keys=KEYS[known])
        assert generation.built.problems == alone.built.problems
        assert generation.findings == alone.findings
        for release in (OLDEST, None):
            assert generation.edition(release) == alone.edition(release)
        assert generation.snapshot == alone.snapshot
        assert generation.status(NoProxy()) == alone.status(NoProxy())


def test_an_update_without_a_change_changes_nothing() -> None:
    library = begun()
    before = build_generation(library.current(), keys=KEYS[0])
    for file in BEGUN:
        apply(library, file, f"# written again\n{VARIANTS[file][0]}")
    after = build_generation(library.current(), before, keys=KEYS[0])
    assert after.built.graph.gateways[0] is before.built.graph.gateways[0]
    assert all(after.snapshot.collection(url) is before.snapshot.collection(url) for url in TypeUrl)


def placings(generation: Generation) -> list[Placing]:
    found = authorizations_on(generation.built.graph.gateways)
    return [each.placing for each in found if isinstance(each, Enforced) and each.placing is not None]


def decided_before(placing: Placing) -> Placed:
    found = placed_of(placing, CURRENT)
    assert found is not None
    return found


def test_one_policy_more_leaves_what_stands_before_other_targets_as_it_is() -> None:
    library = begun()
    before = build_generation(library.current(), keys=KEYS[0])
    apply(library, "policy-more", VARIANTS["policy-more"][1])
    after = build_generation(library.current(), before, keys=KEYS[0])
    known = {id(each) for each in placings(before)}
    assert [id(each) in known for each in placings(after)] == [True, False, True, False]
    routes = [
        {route.name: route for port in each.built.graph.gateways for host in hosts_on(port) for route in host.routes}
        for each in (before, after)
    ]
    same = {name: routes[1].get(name) is route for name, route in routes[0].items()}
    assert same == {
        "default/edge/plain#=/.well-known/oauth-protected-resource/shop": True,
        "default/edge/secure#=/.well-known/oauth-protected-resource/shop": True,
        "default/shop#^/shop": True,
        "default/till#^/till": False,
    }


def test_what_stood_before_a_target_is_forgotten_with_its_policy() -> None:
    library = begun()
    generation = build_generation(library.current(), keys=KEYS[0])
    held = [weakref.ref(each) for each in placings(generation)]
    decided = [weakref.ref(each) for each in map(decided_before, placings(generation))]
    apply(library, "policy-shop", None)
    for number in range(2):
        apply(library, "service", VARIANTS["service"][number])
        generation = build_generation(library.current(), generation, keys=KEYS[0])
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert [each() for each in decided] == [None, None]
