"""Counts of Envoy and of policy servers, read and added up."""

import json

import pytest

from authplane.devkit.diagnosis.envoy_stats import StatsInvalidError, parse_envoy_stats
from authplane.devkit.diagnosis.server_counts import MetricsInvalidError, parse_server_counts
from authplane.devkit.diagnosis.tallies import By, Effect, Tally, add_up

RBAC = "http.gateway.rbac"


def stats(counters: dict[str, int]) -> bytes:
    return json.dumps({"stats": [{"name": name, "value": count} for name, count in counters.items()]}).encode()


def envoy(
    policy: str = "", rule: str = "", entry: str = "", *, effect: Effect = Effect.DECIDED, **counts: int
) -> Tally:
    return Tally(by=By.ENVOY, policy=policy, rule=rule, entry=entry, effect=effect, **counts)


CASES = {
    "policy.shop/tools.v1/rule.a/0:InlineTools.allowed": envoy("shop/tools.v1", "rule.a", "0:InlineTools", allowed=3),
    "policy.shop/tools/r/base.allowed": envoy("shop/tools", "r", "base", allowed=3),
    "policy.shop/tools//0:CEL.allowed": envoy("shop/tools", "", "0:CEL", allowed=3),
    "policy.shop/tools/r/0:CEL#2.allowed": envoy("shop/tools", "r", "0:CEL", allowed=3),
    "policy.shop/tools/r/0:CEL.shadow_allowed": envoy(
        "shop/tools", "r", "0:CEL", effect=Effect.ONE_OF_SEVERAL, allowed=3
    ),
    "shadow.policy.shop/tools/r/0:CEL.shadow_allowed": envoy(
        "shop/tools", "r", "0:CEL", effect=Effect.SHADOW, allowed=3
    ),
    "shadow.policy.~none/shop/tools.v1.shadow_allowed": envoy("shop/tools.v1", effect=Effect.SHADOW, denied=3),
    "denied": envoy(denied=3),
    "allowed": None,
    "policy.native/all.allowed": None,
    "policy.!ask.allowed": None,
    "policy.~ask#2.shadow_allowed": None,
    "policy.~known.allowed": None,
    "shadow_denied": None,
}


@pytest.mark.parametrize(("name", "want"), CASES.items(), ids=CASES.keys())
def test_a_counter_of_envoy_tells_who_granted(name: str, want: Tally | None) -> None:
    assert parse_envoy_stats(stats({f"{RBAC}.{name}": 3})) == (() if want is None else (want,))


def test_requests_without_a_decision_are_undecided() -> None:
    assert parse_envoy_stats(stats({"http.gateway.ext_authz.error": 2, "http.gateway.ext_authz.ok": 7})) == (
        Tally(by=By.ENVOY, undecided=2),
    )


def test_counters_of_other_listeners_are_not_ours() -> None:
    assert parse_envoy_stats(stats({"http.ingress_http.rbac.denied": 2, "http.gateway.rbac2.denied": 7})) == ()


ENDLESS_COUNT = '{"stats": [{"name": "a", "value": 1e999}]}'


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "{}", '{"stats": 1}', '{"stats": [{"name": "a"}]}', "[" * 100_000, ENDLESS_COUNT],
    ids=len,
)
def test_a_page_that_is_none_of_envoys_is_said_to_be_none(text: str) -> None:
    with pytest.raises(StatsInvalidError, match="did not answer with the statistics of Envoy"):
        parse_envoy_stats(text.encode())


METRICS = """\
# TYPE authplane_checks_total counter
authplane_checks_total{backend="policy",decision="allow"} 9
# TYPE authplane_policy_decisions_total counter
authplane_policy_decisions_total{backend="a",policy="AccessPolicy/shop/p.v1",rule="r",entry="0:CEL",decision="allow"} 4
authplane_policy_decisions_total{backend="a",policy="AccessPolicy/shop/p.v1",rule="",entry="",decision="deny"} 2
authplane_policy_decisions_total{backend="a",policy="",rule="",entry="",decision="unavailable"} 1
# TYPE authplane_shadow_decisions_total counter
authplane_shadow_decisions_total{backend="a",policy="XAccessPolicy/shop/s",outcome="deny",decision="allow"} 5
authplane_shadow_decisions_total{backend="a",policy="XAccessPolicy/shop/s",outcome="unknown",decision="deny"} 6
"""


def test_the_metrics_of_a_server_tell_who_decided() -> None:
    assert parse_server_counts(METRICS.encode()) == (
        Tally(by=By.SERVER, policy="shop/p.v1", rule="r", entry="0:CEL", allowed=4),
        Tally(by=By.SERVER, policy="shop/p.v1", denied=2),
        Tally(by=By.SERVER, undecided=1),
        Tally(by=By.SERVER, policy="shop/s", effect=Effect.SHADOW, denied=5),
        Tally(by=By.SERVER, policy="shop/s", effect=Effect.SHADOW, undecided=6),
    )


ENDLESS = b'authplane_policy_decisions_total{policy="a/b",decision="allow"} +Inf\n'


@pytest.mark.parametrize("text", [b"<html> {", b"\xff", b"authplane_policy_decisions_total 4\n", ENDLESS], ids=len)
def test_a_page_without_metrics_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(MetricsInvalidError, match="did not answer with metrics"):
        parse_server_counts(text)


def test_what_several_count_is_added_and_sorted() -> None:
    rule = envoy("shop/p", "r", "0:CEL", allowed=1)
    server = Tally(by=By.SERVER, policy="shop/p", rule="r", entry="0:CEL", denied=2)
    assert add_up([server, rule, envoy("shop/p", "r", "1:CEL"), rule, envoy(denied=1), envoy(undecided=2)]) == (
        envoy(denied=1, undecided=2),
        envoy("shop/p", "r", "0:CEL", allowed=2),
        server,
    )
