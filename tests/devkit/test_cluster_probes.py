"""What `authplane doctor --kubernetes` says of versions, Leases and permissions."""

from datetime import UTC, datetime

import pytest

from authplane.controlplane.election.lease_record import Lease
from authplane.devkit.diagnosis.cluster_permissions import Component, Permission, needed_permissions
from authplane.devkit.diagnosis.cluster_probes import leader_outcome, version_outcome
from authplane.devkit.diagnosis.examination import Outcome

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
PROXIES = "httpproxies.projectcontour.io"


@pytest.mark.parametrize(
    ("major", "minor", "outcome"),
    [("1", "36", Outcome.OK), ("1", "30+", Outcome.OK), ("1", "29", Outcome.FINDING), ("", "", Outcome.UNKNOWN)],
)
def test_an_old_api_server_is_a_finding(major: str, minor: str, outcome: Outcome) -> None:
    assert version_outcome(major, minor, f"v{major}.{minor}.0")[0] is outcome


@pytest.mark.parametrize(
    ("holder", "renewed", "outcome"),
    [
        ("pod-1", "2026-01-31T11:59:55.000000Z", Outcome.OK),
        ("pod-1", "2026-01-31T12:00:05.000000Z", Outcome.OK),  # its clock is ahead of ours
        ("pod-1", "2026-01-31T11:58:00.000000Z", Outcome.WARNING),
        ("pod-1", "soon", Outcome.UNKNOWN),
        ("", "", Outcome.WARNING),
    ],
)
def test_a_lease_that_nobody_renews_is_a_warning(holder: str, renewed: str, outcome: Outcome) -> None:
    assert leader_outcome(Lease(holder=holder, duration=10, acquired="", renewed=renewed), NOW)[0] is outcome


def test_without_a_lease_nobody_writes_statuses() -> None:
    assert leader_outcome(None, NOW)[0] is Outcome.WARNING


def test_permissions_are_needed_for_installed_kinds_in_the_namespaces_that_are_read() -> None:
    needed = needed_permissions(Component.CONTROL, [PROXIES], ["shop", "blog"], "authplane")
    about_proxies = [str(each) for each in needed if each.group == "projectcontour.io"]
    assert about_proxies == [
        f"{verb} {PROXIES}{sub} in {place}"
        for place in ("shop", "blog")
        for verb, sub in (("get", ""), ("list", ""), ("watch", ""), ("patch", "/status"))
    ]
    assert {each.namespace for each in needed if each.resource == "leases"} == {"authplane"}


def test_the_policy_server_writes_nothing() -> None:
    needed = needed_permissions(Component.POLICY, [PROXIES], [], "authplane")
    assert {each.verb for each in needed if each.resource == "httpproxies"} == {"get", "list", "watch"}
    review = Permission(verb="create", group="authentication.k8s.io", resource="tokenreviews")
    assert [each for each in needed if each.verb not in {"get", "list", "watch"}] == [review]
