"""What no translation ever holds, whatever is written in documents."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.resources.contour_documents import PROXY, world

from authplane.controlplane.graph.model.envoy_regexes import LARGEST_PROGRAM
from authplane.controlplane.render.dump import dump

ROOT = Path(__file__).parent
OUTPUTS = sorted(ROOT.glob("*/*/out.yaml"))
KNOWN = {
    "envoy.config.core.v3.TypedExtensionConfig",
    "envoy.config.route.v3.FilterConfig",
    "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
    "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.lua.v3.LuaPerRoute",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.rbac.v3.RBACPerRoute",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
    "envoy.extensions.rbac.principals.mtls_authenticated.v3.Config",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    # For gRPC servers.
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
    "envoy.extensions.filters.http.composite.v3.Composite",
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
    "envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute",
    "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
    "xds.type.v3.TypedStruct",
    "envoy.extensions.grpc_service.channel_credentials.insecure.v3.InsecureCredentials",
    "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
}
"""Nothing that runs code but Lua, which runs our own script: who adds an extension looks here."""
SCRIPT = re.compile(r"MOST_BYTES = [0-9]+\n-- policy/mcp/reader\.lua")
"""What golden files show of it."""


def every(value: Any, key: str) -> Iterator[Any]:
    """Yield what stands under a key, at any depth."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == key:
                yield each
            yield from every(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from every(each, key)


def messages(value: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Yield every message of a kind."""
    if isinstance(value, dict):
        if str(value.get("@type", "")).endswith(f".{kind}"):
            yield value
        for each in value.values():
            yield from messages(each, kind)
    elif isinstance(value, list):
        for each in value:
            yield from messages(each, kind)


def for_envoy(output: dict[str, Any]) -> dict[str, Any]:
    """Leave out what gRPC servers get: they take no path that is not a service and a method, and show no bodies."""
    return {name: each for name, each in output.items() if name != "grpcListeners"}


@pytest.fixture(scope="module", name="outputs")
def _outputs() -> list[Any]:
    return [yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) for path in OUTPUTS]


@pytest.mark.slow
@pytest.mark.requirement("X13")
def test_no_extension_runs_code_but_our_own(outputs: list[Any]) -> None:
    found = {kind.rpartition("/")[2] for output in outputs for kind in every(output, "@type")}
    assert found <= KNOWN
    for name in ("inlineCode", "sourceCode", "sourceCodes"):
        assert not any(list(every(output, name)) for output in outputs)
    scripts = [each["inlineString"] for output in outputs for each in every(output, "defaultSourceCode")]
    assert scripts
    assert [each for each in scripts if not SCRIPT.fullmatch(each)] == []


@pytest.mark.slow
@pytest.mark.requirement("E12")
def test_paths_are_made_canonical_on_every_listener(outputs: list[Any]) -> None:
    managers = [each for output in outputs for each in messages(for_envoy(output), "HttpConnectionManager")]
    assert len(managers) > 100
    assert {
        (each["normalizePath"], each["mergeSlashes"], each["pathWithEscapedSlashesAction"]) for each in managers
    } == {(True, True, "REJECT_REQUEST")}


@pytest.mark.slow
@pytest.mark.requirement("E19")
def test_policies_are_asked_about_whole_bodies_only() -> None:
    outputs = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in OUTPUTS if path.parts[-3] == "gateway"]
    filters = [each for output in outputs for each in messages(for_envoy(output), "ExtAuthz")]
    assert filters
    for each in filters:
        body = each["withRequestBody"]
        assert (body["packAsBytes"], body.get("allowPartialMessage", False)) == (True, False)


HOSTILE = "%REQ(authorization)% ${env:HOME} {{7*7}} %DYNAMIC_METADATA(a:b)%"


@pytest.mark.requirement("X13")
def test_what_users_write_is_never_filled_in_by_the_proxy() -> None:
    edits = f"  - requestHeadersPolicy: {{set: [{{name: x-a, value: '{HOSTILE}'}}]}}\n    services:"
    plain = dump(world().generation.rendered, show_secrets=False)
    hostile = world(proxy=PROXY.replace("  - services:", edits))
    assert hostile.problems("HTTPProxy") == []
    made = dump(hostile.generation.rendered, show_secrets=False)
    [value] = {each["value"] for each in every(made, "header") if each["key"] == "x-a"}
    assert value == HOSTILE.replace("%", "%%")
    # The formats of logs are ours alone.
    assert list(every(made, "logFormat")) == list(every(plain, "logFormat"))


@pytest.mark.requirement("X13")
def test_a_pattern_that_is_too_large_is_refused_and_leads_nowhere() -> None:
    route = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {type: RegularExpression, value: '/(a{999}|b{999})'}}]
    backendRefs: [{name: echo, port: 80}]
"""
    gateway = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 8000, protocol: HTTP}]}
"""
    made = world(gateway=gateway, route=route)
    [(reason, message)] = made.problems("HTTPRoute")
    assert reason == "UnsupportedValue"
    assert message.endswith(f"more than the limit of {LARGEST_PROGRAM}. Simplify it.")
    [port] = made.graph.gateways
    assert "a{999}" not in str(port)
