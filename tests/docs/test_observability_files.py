"""The dashboard and the alert rules can be used as they are, and alerts fire when they should."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from tests.support.promql import FOLDER, Asked, alerts, asked_in, dashboard, expressions, panels

from authplane.cli.main import COMMANDS, build_app
from authplane.runtime.servers.admin import ADMIN_ADDRESS, CONTROL_ADDRESS

PROMTOOL: Final = shutil.which("promtool")
needs_promtool: Final = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed; on Debian it is in the package prometheus"
)


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run([PROMTOOL or "", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ASKED: Final = {
    "up": [Asked("up", frozenset())],
    'sum by (a) (rate(x_total{c="d"}[5m])) > 0.1 * y': [Asked("x_total", frozenset({"c"})), Asked("y", frozenset())],
    'x unless on (i) y offset 15m or z{a!="{b=",c=~"d|e"}': [
        Asked("x", frozenset()), Asked("y", frozenset()), Asked("z", frozenset({"a", "c"})),
    ],
    "histogram_quantile(0.99, sum by (le) (rate(t_bucket[$__rate_interval]))) > 26 * 3600": [
        Asked("t_bucket", frozenset()),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("expression", "want"), ASKED.items())
def test_the_metrics_of_an_expression_are_found(expression: str, want: list[Asked]) -> None:
    assert list(asked_in(expression)) == want


def test_every_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    shown = dashboard()["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    assert [panel["title"] for panel in panels() if not panel["description"].endswith(".")] == []
    places = [(panel["title"], panel["gridPos"]) for panel in shown]
    overlapping = [(one[0], two[0]) for one, two in combinations(places, 2) if _overlap(one[1], two[1])]
    assert overlapping == []
    assert {each["datasource"]["uid"] for panel in panels() for each in panel["targets"]} == {"${datasource}"}


def _overlap(one: dict[str, int], two: dict[str, int]) -> bool:
    return all(one[at] < two[at] + two[size] and two[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h")))


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    for alert in alerts():
        assert set(alert["annotations"]) == {"summary", "meaning", "action"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}, alert["alert"]
        commands = re.findall(r'"authplane (\w+)', " ".join(alert["annotations"].values()))
        assert set(commands) <= set(COMMANDS), alert["alert"]


def test_the_scrape_configuration_names_the_addresses_at_which_programs_answer_by_default() -> None:
    jobs = yaml.safe_load((FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    start = json.loads(CliRunner().invoke(build_app(), ["bootstrap"]).stdout)
    envoy = start["admin"]["address"]["socketAddress"]
    assert {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs} == {
        "envoy": [f"{envoy['address']}:{envoy['portValue']}"],
        "authplane-policy-server": [str(ADMIN_ADDRESS)],
        "authplane-control-plane": [str(CONTROL_ADDRESS)],
    }


@needs_promtool
def test_prometheus_can_use_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", FOLDER / "rules.yaml")
    promtool("check", "config", FOLDER / "prometheus.yaml")


@needs_promtool
def test_prometheus_can_read_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    read = [expression.replace("$__rate_interval", "5m") for expression in expressions().values()]
    rules = [{"record": f"expression_{number}", "expr": expression} for number, expression in enumerate(read)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", file)


def _checks(errors: int) -> dict[str, str]:
    rates = {"ok": 1000 - errors, "denied": 0, "error": errors}
    return {f"envoy_http_ext_authz_{name}": f"0+{rate}x60" for name, rate in rates.items()}


CP: Final = 'job="authplane-control-plane",instance="c"'
POLICY: Final = 'envoy_cluster_upstream_rq_total{envoy_cluster_name="authplane_policy"}'
FAILED: Final = "authplane_cel_failures_total"
FIRING: Final[dict[str, tuple[dict[str, str], set[str]]]] = {
    "nothing is wrong": (
        {
            f"up{{{CP}}}": "1x60", 'authplane_control_proxies{instance="c",release="1.39"}': "1x60",
            "authplane_control_rejected_resources": "0x60", "authplane_control_documents_with_errors": "0x60",
            "envoy_control_plane_connected_state": "1x60", "envoy_server_days_until_first_cert_expiring": "90x60",
            POLICY: "0+10x60", 'authplane_checks_total{decision="allow"}': "0+10x60",
            'authplane_checks_total{decision="failed"}': "0x60", FAILED: "7x60", **_checks(5),
            "authplane_issuer_keys_age_seconds": "80000x60", "authplane_control_issuer_keys_age_seconds": "299x60",
            "authplane_issuer_ready": "1x60", "authplane_log_lines_lost_total": "3x60",
            "authplane_worker_restarts_total": "1x60", 'authplane_check_seconds_bucket{le="0.01"}': "0+9x60",
            'authplane_check_seconds_bucket{le="+Inf"}': "0+9x60",
        },
        set(),
    ),
    "a proxy rejects": ({"authplane_control_rejected_resources": "2x60"}, {"EnvoyRejectsConfiguration"}),
    "a program is down": ({f"up{{{CP}}}": "0x60"}, {"AuthplaneProgramDown"}),
    "no proxy": ({f"up{{{CP}}}": "1x60"}, {"NoProxyConnected"}),
    "Envoy is alone": ({"envoy_control_plane_connected_state": "0x60"}, {"EnvoyWithoutControlPlane"}),
    "two of a hundred without a decision": (_checks(20), {"RequestsWithoutDecision"}),
    "failOpen": ({"envoy_http_ext_authz_failure_mode_allowed": "0+1x60"}, {"RequestsGrantedWithoutDecision"}),
    "Envoy cannot connect": (
        {'envoy_cluster_upstream_cx_connect_fail{envoy_cluster_name="authplane_policy"}': "0+1x60"},
        {"EnvoyCannotConnectToPolicyServer"},
    ),
    "another origin cannot be reached": (
        {'envoy_cluster_upstream_cx_connect_fail{envoy_cluster_name="shop"}': "0+1x60"}, set(),
    ),
    "a certificate ends soon": ({"envoy_server_days_until_first_cert_expiring": "13x90"}, {"CertificateEnding"}),
    "a certificate has ended": (
        {"envoy_server_days_until_first_cert_expiring": "0x90"}, {"CertificateEnding", "CertificateEnded"},
    ),
    "the policy server refuses": (
        {'authplane_control_policy_server_accepts{address="a"}': "0x60"}, {"PolicyServerDoesNotAccept"},
    ),
    "the policy server cannot decide": (
        {'authplane_checks_total{decision="allow"}': "0+90x60",
         'authplane_checks_total{decision="unavailable"}': "0+10x60"},
        {"PolicyServerUndecided"},
    ),
    "too many checks": ({"authplane_checks_shed_total": "0+1x60"}, {"ChecksRejectedForLoad"}),
    "slow checks": (
        {'authplane_check_seconds_bucket{le="0.1"}': "0x60", 'authplane_check_seconds_bucket{le="0.25"}': "0+9x60",
         'authplane_check_seconds_bucket{le="+Inf"}': "0+9x60"},
        {"ChecksSlow"},
    ),
    "lines are lost": ({"authplane_log_lines_lost_total": "0+1x60"}, {"DecisionLogLinesLost"}),
    "somebody else decides": ({POLICY: "0+10x60"}, {"DecisionsNotCounted"}),
    "workers restart": ({'authplane_worker_restarts_total{front="grpc"}': "0+1x60"}, {"WorkersRestart"}),
    "policies with errors": ({'authplane_reloads_total{result="failed"}': "0+1x60"}, {"PoliciesNotReloaded"}),
    "an expression fails for the first time": ({FAILED: "_x57 1 1 1"}, {"ExpressionsFail"}),
    "an expression fails again": ({FAILED: "1x57 2 2 2"}, {"ExpressionsFail"}),
    "a shadow policy would deny": (
        {'authplane_shadow_decisions_total{outcome="deny",decision="allow"}': "_x57 1 1 1"}, {"ShadowPolicyWouldDeny"},
    ),
    "a shadow policy agrees": (
        {'authplane_shadow_decisions_total{outcome="deny",decision="deny"}': "_x57 1 1 1"}, set(),
    ),
    "no keys": ({"authplane_issuer_ready": "0x60"}, {"IssuerWithoutKeys"}),
    "old keys": ({"authplane_issuer_keys_age_seconds": "100000x60"}, {"IssuerKeysOld"}),
    "old keys for Envoy": ({"authplane_control_issuer_keys_age_seconds": "1801x60"}, {"IssuerKeysOld"}),
    "other keys": ({'authplane_issuer_events_total{event="KeysChanged"}': "_x57 1 1 1"}, {"IssuerKeysChanged"}),
    "the same keys": ({'authplane_issuer_events_total{event="Fetched"}': "0+1x60"}, set()),
    "documents with errors": ({"authplane_control_documents_with_errors": "1x60"}, {"DocumentsWithErrors"}),
    "a fault of ours": (
        {'authplane_control_generations_total{result="failed"}': "0x50 1 1 1 1 1 1 1 1 1"}, {"ConfigurationNotBuilt"},
    ),
    "a change waits": ({"authplane_control_changes_waiting": "1x60"}, {"ChangeWaits"}),
    "slow changes": (
        {'authplane_control_push_seconds_bucket{le="5.0"}': "0x60",
         'authplane_control_push_seconds_bucket{le="10.0"}': "0+9x60",
         'authplane_control_push_seconds_bucket{le="+Inf"}': "0+9x60"},
        {"ChangesSlow"},
    ),
}  # fmt: skip
"""What is wrong, the series that Prometheus has read each minute, and the alerts that fire in the end."""


def _test(name: str, series: dict[str, str], firing: set[str]) -> dict[str, Any]:
    minutes = 90 if any("x90" in values for values in series.values()) else 60
    alive = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(firing)]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minutes}m",
                "exp_samples": alive,
            }
        ],
    }


@needs_promtool
def test_alerts_fire_when_something_is_wrong_and_only_then(tmp_path: Path) -> None:
    tests = [_test(name, series, firing) for name, (series, firing) in FIRING.items()]
    file = tmp_path / "rules.test.yaml"
    rules = {"rule_files": [str(FOLDER / "rules.yaml")], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(rules), encoding="utf-8")
    promtool("test", "rules", file)


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    assert {alert["alert"] for alert in alerts()} == set().union(*(firing for _, firing in FIRING.values()))
