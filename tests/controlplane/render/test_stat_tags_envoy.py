"""Counters of rules have labels in Envoy's metrics."""

import json
from typing import Any

import httpx2
import pytest
from google.protobuf.json_format import MessageToDict
from prometheus_client.parser import text_string_to_metric_families
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import START_LIMIT
from tests.support.ports import free_port

from authplane.controlplane.render.stat_tags import stats_config
from authplane.devkit.diagnosis.envoy_stats import STATS, parse_envoy_stats
from authplane.devkit.diagnosis.tallies import By, Effect, Tally, add_up
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

RBAC = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
RULES = {
    "/ask": "!ask",
    "/a": "shop/tools.v1/rule.a/0:InlineTools",
    "/b": "shop/plain/r/1:CEL",
    "/c": "shop/plain//base",
    "/d": "native/all",
}


def granted(path: str) -> dict[str, Any]:
    return {"permissions": [{"url_path": {"path": {"exact": path}}}], "principals": [{"any": True}]}


ANY: dict[str, Any] = {"permissions": [{"any": True}], "principals": [{"any": True}]}


def filters() -> list[dict[str, Any]]:
    """Return a filter that tries a policy, one that is one of several, and the one that decides; then the router."""
    rules = {name: granted(path) for path, name in RULES.items()}
    tried = {"action": "ALLOW", "policies": {"shop/next/r/0:CEL": granted("/a"), "~none/shop/next.v2": ANY}}
    configs: list[dict[str, Any]] = [
        {"shadow_rules": tried, "shadow_rules_stat_prefix": "shadow."},
        {"shadow_rules": {"action": "ALLOW", "policies": rules}},
        {"rules": {"action": "ALLOW", "policies": rules}},
    ]
    named = [
        {"name": f"f{number}", "typed_config": {"@type": RBAC, "track_per_rule_stats": True, **config}}
        for number, config in enumerate(configs)
    ]
    return [*named, {"name": "router", "typed_config": {"@type": ROUTER}}]


def bootstrap(port: int) -> str:
    answer = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    manager = {
        "@type": MANAGER,
        "stat_prefix": "gateway",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [answer]}]},
        "http_filters": filters(),
    }
    listener = {
        "name": "l",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "h", "typed_config": manager}]}],
    }
    return json.dumps({"stats_config": MessageToDict(stats_config()), "static_resources": {"listeners": [listener]}})


async def ignore(_line: Line) -> None:
    pass


def tally(policy: str = "", rule: str = "", entry: str = "", effect: Effect = Effect.DECIDED, **counts: int) -> Tally:
    return Tally(by=By.ENVOY, policy=policy, rule=rule, entry=entry, effect=effect, **counts)


@pytest.mark.real
@pytest.mark.parametrize("envoy", VERSIONS, ids=str)
async def test_rules_are_told_apart_by_labels_and_no_rule_makes_a_metric_of_its_own(envoy: Version) -> None:
    port = free_port()
    async with run_envoy(bootstrap(port), sink=ignore, settings=envoy.settings()) as running:
        await running.ready(limit=START_LIMIT)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            answers = [(await http.get(path)).status_code for path in ("/ask", "/a", "/a", "/b", "/c", "/d", "/e")]
        stats = await running.admin(STATS)
        shown = await running.admin("/stats/prometheus?usedonly&filter=rbac")
    assert answers == [200, 200, 200, 200, 200, 200, 403]
    one = Effect.ONE_OF_SEVERAL
    assert add_up(parse_envoy_stats(stats.body.encode())) == (
        tally(denied=1),
        tally("shop/next", "r", "0:CEL", Effect.SHADOW, allowed=2),
        tally("shop/next.v2", effect=Effect.SHADOW, denied=5),
        tally("shop/plain", "", "base", allowed=1),
        tally("shop/plain", "", "base", one, allowed=1),
        tally("shop/plain", "r", "1:CEL", allowed=1),
        tally("shop/plain", "r", "1:CEL", one, allowed=1),
        tally("shop/tools.v1", "rule.a", "0:InlineTools", allowed=2),
        tally("shop/tools.v1", "rule.a", "0:InlineTools", one, allowed=2),
    )
    families = list(text_string_to_metric_families(shown.body))
    assert {family.name for family in families} == {
        "envoy_http_rbac_allowed",
        "envoy_http_rbac_denied",
        "envoy_http_rbac_policy__none_shadow_allowed",
        "envoy_http_rbac_policy_allowed",
        "envoy_http_rbac_policy_shadow_allowed",
        "envoy_http_rbac_shadow_allowed",
        "envoy_http_rbac_shadow_denied",
    }
    labels = {
        tuple(sample.labels.get(name, "") for name in ("policy", "rule", "entry")): sample.value
        for family in families
        if family.name == "envoy_http_rbac_policy_allowed"
        for sample in family.samples
    }
    assert labels == {
        ("", "", ""): 1,
        ("native/all", "", ""): 1,
        ("shop/plain", "", "base"): 1,
        ("shop/plain", "r", "1:CEL"): 1,
        ("shop/tools.v1", "rule.a", "0:InlineTools"): 2,
    }
