"""What Envoy is told to decide by itself: the same for the same documents, complete on every route, taken by Envoy."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from envoy.config.route.v3 import route_components_pb2 as routes_pb
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as jwt_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.envoy.validation import validate
from tests.support.gateways.contour_gateway import service
from tests.support.issuers.minting import ISSUER, signer
from tests.support.resources.contour_documents import World

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ
from authplane.controlplane.render.native.native_filters import DECIDE, FRONT, READER, REFUSE
from authplane.controlplane.render.rendered import Rendered, render_graph
from authplane.core.envoy_releases import CURRENT, OLDEST, Release, known_release

GOLDEN = Path(__file__).parents[2] / "golden" / "gateway" / "native" / "in.yaml"
KEYS = {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})}
TOKENS = f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: people}}
spec:
  targetRefs: [{{kind: Backend, name: weather}}]
  rules:
  - name: same
    source: {{type: OIDC, oidc: {{issuerUrl: "{ISSUER}", audiences: [a]}}}}
    authorization: [{{type: CEL, cel: 'identity.group == "a"'}}, {{type: InlineTools, tools: [add]}}]
  - source: {{type: OIDC, oidc: {{issuerUrl: "{ISSUER}", audiences: [b]}}}}
    authorization: [{{type: CEL, cel: 'identity.group == "b"'}}]
"""
NATIVE_ON = {READER, FRONT, REFUSE}
"""What a route leaves as it is if it needs it."""


def build(keys: dict[str, str] | None = None) -> World:
    documents = [GOLDEN.read_text(encoding="utf-8"), TOKENS, service("echo", 80)]
    return World(
        [*documents, tls_secret("tls", server("web.example")), ca_secret("ca")], KEYS if keys is None else keys
    )


def managers(rendered: Rendered) -> Iterator[hcm_pb.HttpConnectionManager]:
    for listener in rendered.listeners:
        for chain in listener.filter_chains:
            manager = hcm_pb.HttpConnectionManager()
            chain.filters[0].typed_config.Unpack(manager)
            yield manager


def places(rendered: Rendered, table: str) -> Iterator[tuple[str, Any]]:
    """Return what every route, or every share of it, says of the filters."""
    [found] = [each for each in rendered.routes if each.name == table]
    for route in (route for host in found.virtual_hosts for route in host.routes):
        shares = route.route.weighted_clusters.clusters
        yield from ((f"{route.name}/{each.name}", each.typed_per_filter_config) for each in shares)
        if not shares:
            yield route.name, route.typed_per_filter_config


def test_every_route_says_something_of_every_filter_that_decides() -> None:
    rendered = render_graph(build().graph)
    [manager] = managers(rendered)
    names = [each.name for each in manager.http_filters]
    assert names == [
        "authplane/tokens",
        READER,
        "authplane/policy-0",
        "authplane/policy-1",
        DECIDE,
        REFUSE,
        "authplane/shadow-0",
        EXT_AUTHZ,
        "envoy.filters.http.router",
    ]
    unchecked = []
    for place, changes in places(rendered, manager.rds.route_config_name):
        assert set(names[:-1]) - set(changes) <= NATIVE_ON, place
        off = {name for name in changes if changes[name].Is(routes_pb.FilterConfig.DESCRIPTOR)}
        if EXT_AUTHZ in off:
            unchecked.append(place)
            assert off == {*names[:-1]}, place
        elif DECIDE in off:
            assert off == {*names[:-2]}, place
        else:
            assert changes[DECIDE].Is(rbac_pb2.RBACPerRoute.DESCRIPTOR), place
    documents = [f"default/edge/https#=/.well-known/oauth-protected-resource/{each}" for each in ("all", "weather")]
    # The backend without a policy, and what is not there.
    assert unchecked == [*documents, "default/web#^/all/service/default/echo/80", "", ""]


MIXED = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 8001, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules:
"""
NO_BASE = "mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}"
MIXED_RULES = {
    "paths": f"[{{authorization: [{{type: Inline, {NO_BASE}, paths: [/paths]}}]}}]",
    "tools": "[{authorization: [{type: Inline, mcp: {methods: [{name: tools/call, params: [add]}]}}]}]",
    "arguments": """[{authorization: [{type: CEL, cel: {
        expression: 'request.mcp.params.to == "a" && request.mcp.params.amount < 5.0'}}]}]""",
    "people": f"""[{{source: {{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [a]}}}},
                   authorization: [{{type: Inline, {NO_BASE}, paths: [/people]}}]}}]""",
    "callers": f"""[{{source: {{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [a]}}}},
                    authorization: [{{type: Inline, mcp: {{methods: [{{name: tools/call, params: [add]}}]}}}}]}}]""",
}


def mixed(*names: str) -> World:
    """Build a listener with a Backend for each of these policies."""
    routed, written = [], []
    for name in names:
        routed.append(f"""
  - matches: [{{path: {{value: /{name}}}}}]
    backendRefs: [{{group: agentic.networking.x-k8s.io, kind: Backend, name: {name}}}]""")
        written.append(f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec: {{mcp: {{serviceName: echo, port: 80}}}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: XAccessPolicy
metadata: {{name: {name}}}
spec: {{targetRefs: [{{kind: Backend, name: {name}}}], rules: {MIXED_RULES[name]}}}
""")
    return World([MIXED + "".join(routed), *written, service("echo", 80)], KEYS)


USED = {
    "paths": {DECIDE, EXT_AUTHZ},
    "tools": {READER, DECIDE, EXT_AUTHZ},
    "people": {"authplane/tokens", FRONT, DECIDE, REFUSE, EXT_AUTHZ},
    # The reader of messages reads their tokens too.
    "callers": {"authplane/tokens", READER, DECIDE, REFUSE, EXT_AUTHZ},
}
"""Which filters the requests to a Backend go through."""


@pytest.mark.real
@pytest.mark.parametrize(
    "names", [["paths"], ["paths", "tools"], ["people", "tools"], ["callers"], ["callers", "people", "paths", "tools"]]
)
async def test_a_listener_has_the_filters_of_all_its_targets_and_each_target_uses_its_own(names: list[str]) -> None:
    rendered = render_graph(mixed(*names).graph)
    [manager] = managers(rendered)
    filters = [each.name for each in manager.http_filters][:-1]
    assert set(filters) == set().union(*(USED[name] for name in names))
    used = {}
    for place, changes in places(rendered, manager.rds.route_config_name):
        off = {name for name in changes if changes[name].Is(routes_pb.FilterConfig.DESCRIPTOR)}
        used[place.rpartition("/")[2]] = set(filters) - off
    assert {name: used[name] for name in names} == {name: USED[name] for name in names}
    verdict = await validate(json_text(static_bootstrap(rendered)))
    assert verdict.ok, verdict.output


def test_without_a_word_of_the_route_nobody_passes_a_filter_that_decides() -> None:
    [manager] = managers(render_graph(build().graph))
    for each in manager.http_filters:
        if each.name == DECIDE or each.name.startswith("authplane/policy-"):
            rules = rbac_pb2.RBAC()
            assert each.typed_config.Unpack(rules)
            assert rules.HasField("rules")
            assert not rules.rules.policies


def test_which_keys_are_known_changes_no_listener() -> None:
    known, unknown = (render_graph(build(keys).graph) for keys in (KEYS, {}))
    assert known.listeners == unknown.listeners
    assert [each.name for each in known.routes] == [each.name for each in unknown.routes]
    assert [each.name for each in unknown.extensions] == ["authplane/tokens"]


def test_an_envoy_that_is_too_old_or_unknown_decides_nothing() -> None:
    rendered = render_graph(build().graph, known_release(Release(1, 35)))
    [manager] = managers(rendered)
    assert [each.name for each in manager.http_filters] == [EXT_AUTHZ, "envoy.filters.http.router"]
    assert not rendered.extensions


def test_every_release_reads_messages_in_the_same_way() -> None:
    found = {
        READER in [each.name for each in manager.http_filters]
        for release in (OLDEST, Release(1, 38), CURRENT)
        for manager in managers(render_graph(build().graph, release))
    }
    assert found == {True}


def test_the_headers_of_tokens_are_kept_only_where_a_filter_looks_at_them() -> None:
    rendered = render_graph(mixed("callers", "people").graph)
    [manager] = managers(rendered)
    named = {}
    for place, changes in places(rendered, manager.rds.route_config_name):
        chosen = jwt_pb2.PerRouteConfig()
        if changes["authplane/tokens"].Unpack(chosen):
            named[place.rpartition("/")[2]] = chosen.requirement_name
    tokens = jwt_pb2.JwtAuthentication()
    [extension] = rendered.extensions
    assert extension.typed_config.Unpack(tokens)
    kept = {}
    for name, requirement in named.items():
        provider = tokens.providers[tokens.requirement_map[requirement].requires_any.requirements[0].provider_name]
        kept[name] = (provider.issuer, provider.payload_in_metadata, provider.header_in_metadata)
    assert kept == {"callers": (ISSUER, ISSUER, ""), "people": (ISSUER, ISSUER, f"header {ISSUER}")}
    # While a target changes from one to the other, its route names a requirement that is still there.
    assert len(tokens.requirement_map) == 4


def test_a_route_names_the_arguments_that_its_rules_read_and_whether_they_read_tokens() -> None:
    world = mixed("tools", "arguments", "callers", "people")
    rendered = render_graph(world.graph)
    [manager] = managers(rendered)
    kept = {}
    for place, changes in places(rendered, manager.rds.route_config_name):
        told = lua_pb2.LuaPerRoute()
        if READER in changes and changes[READER].Unpack(told):
            kept[place.rpartition("/")[2]] = dict(told.filter_context)
    assert kept == {"arguments": {"arguments": "amount\nto"}, "callers": {"tokens": True}}


@pytest.mark.real
@pytest.mark.parametrize("envoy", VERSIONS, ids=lambda each: each.number)
@pytest.mark.parametrize("keys", [KEYS, {}], ids=["keys", "no keys"])
async def test_envoy_takes_it(envoy: Version, keys: dict[str, str]) -> None:
    config = json_text(static_bootstrap(render_graph(build(keys).graph, envoy.release)))
    verdict = await validate(config, binary=envoy.binary)
    assert verdict.ok, verdict.output


_PROGRAM = """
from hashlib import sha256
from tests.controlplane.render.test_native_filters import ISSUER, build
from authplane.xds.server.served_types import TypeUrl

# Certificates are made anew by every process.
snapshot = build({ISSUER: "the same"}).generation.snapshot
for kind in (TypeUrl.ROUTE, TypeUrl.EXTENSION, TypeUrl.CLUSTER):
    for name, resource in snapshot.resources(kind).items():
        print(name, resource.version)
"""


@pytest.mark.real
def test_the_same_documents_give_the_same_bytes_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    [text] = printed
    assert b"authplane/tokens" in text
