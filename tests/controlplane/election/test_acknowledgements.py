"""What the proxies of all replicas accepted, added up by the leader."""

from dataclasses import replace

import pytest

from authplane.controlplane.election.acknowledgements import (
    ANNOTATION,
    LARGEST,
    Report,
    add_up,
    parse_report,
    render_report,
)
from authplane.controlplane.election.lease_record import Lease
from authplane.controlplane.election.replicas import Replicas
from authplane.controlplane.graph.model.programming import Answered, NoProxy, NotServed, ServerAnswers
from authplane.core.envoy_releases import CURRENT, Release
from authplane.xds.server.served_types import TypeUrl, XdsName

WEB, SHOP = (TypeUrl.ROUTE, "web"), (TypeUrl.ROUTE, "shop")
EDGE = (TypeUrl.LISTENER, "edge")
VERSIONS = {TypeUrl.ROUTE: "r1", TypeUrl.LISTENER: "l1"}
ACCEPTED = Report(programming=Answered(), versions=VERSIONS)
NOBODY = Report(programming=NoProxy(), versions=VERSIONS)


def names(kind: TypeUrl) -> frozenset[XdsName]:
    return frozenset(each for each in (WEB, SHOP, EDGE) if each[0] is kind)


def answered(*pending: XdsName, **refused: str) -> Report:
    found = {(TypeUrl.ROUTE, name): words for name, words in refused.items()}
    return Report(programming=Answered(pending=frozenset(pending), refused=found), versions=VERSIONS)


SUMS = {
    "nobody anywhere": (NOBODY, [NOBODY], NoProxy()),
    "a proxy elsewhere": (NOBODY, [ACCEPTED], Answered()),
    "pending anywhere is pending": (ACCEPTED, [answered(WEB), NOBODY], Answered(pending=frozenset({WEB}))),
    "rejected anywhere is rejected": (ACCEPTED, [answered(web="no")], Answered(refused={WEB: "no"})),
    "another configuration is no answer": (
        ACCEPTED,
        [replace(ACCEPTED, versions=VERSIONS | {TypeUrl.ROUTE: "r2"})],
        Answered(pending=frozenset({WEB, SHOP})),
    ),
    "types without names": (
        ACCEPTED,
        [replace(ACCEPTED, whole_types=frozenset({TypeUrl.LISTENER}))],
        Answered(pending=frozenset({EDGE})),
    ),
    "gRPC servers elsewhere": (
        NOBODY,
        [replace(NOBODY, programming=NoProxy(ServerAnswers(asked=frozenset({EDGE}), refused={EDGE: "no"})))],
        NoProxy(ServerAnswers(asked=frozenset({EDGE}), refused={EDGE: "no"})),
    ),
}


@pytest.mark.requirement("KU-24")
@pytest.mark.parametrize(("own", "others", "want"), SUMS.values(), ids=SUMS.keys())
def test_the_sum(own: Report, others: list[Report], want: object) -> None:
    assert add_up(own, others, names).programming == want


def test_the_oldest_release_of_all_proxies_counts() -> None:
    old = replace(ACCEPTED, oldest=Release(1, 36))
    assert add_up(ACCEPTED, [old], names).oldest == Release(1, 36)
    assert add_up(ACCEPTED, [replace(old, oldest=None)], names).oldest is None
    assert add_up(ACCEPTED, [replace(NOBODY, oldest=None)], names).oldest == CURRENT


@pytest.mark.parametrize("report", [NOBODY, ACCEPTED, answered(WEB, EDGE, shop="no"), replace(ACCEPTED, oldest=None)])
def test_a_report_survives_its_annotation(report: Report) -> None:
    assert parse_report(render_report(report)) == report


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"servers": 3}', '{"servers": {}, "pending": [["X", "y"]]}'])
def test_an_annotation_of_somebody_else_is_not_read(text: str) -> None:
    assert parse_report(text) is None


def test_a_report_without_a_control_plane_says_nothing() -> None:
    parsed = parse_report(render_report(Report(programming=NotServed(), versions={})))
    assert parsed is not None
    assert parsed.programming == NoProxy()


def test_a_report_that_is_too_large_names_types_instead() -> None:
    many = frozenset((TypeUrl.ROUTE, f"https/host-{index}.example") for index in range(20_000))
    text = render_report(replace(ACCEPTED, programming=Answered(pending=many, refused={WEB: "no"})))
    assert len(text) <= LARGEST
    parsed = parse_report(text)
    assert parsed is not None
    assert (parsed.whole_types, parsed.programming) == (frozenset({TypeUrl.ROUTE}), Answered(refused={WEB: "no"}))


@pytest.mark.requirement("KU-24")
def test_a_replica_whose_lease_does_not_change_counts_no_more() -> None:
    def lease(holder: str, renewed: str) -> Lease:
        text = {ANNOTATION: render_report(ACCEPTED)}
        return Lease(holder=holder, duration=10, acquired="", renewed=renewed, annotations=text)

    replicas = Replicas("me")
    replicas.observed({"mine": lease("me", "1"), "other": lease("b", "1")}, 100.0)
    assert list(replicas.reports(109.9)) == [ACCEPTED]
    replicas.observed({"mine": lease("me", "2"), "other": lease("b", "1")}, 105.0)
    assert list(replicas.reports(110.0)) == []
    replicas.observed({"other": lease("b", "2")}, 111.0)
    assert list(replicas.reports(112.0)) == [ACCEPTED]
    assert list(replicas.gone(170.0)) == []
    assert list(replicas.gone(171.0)) == ["other"]
    replicas.observed({}, 172.0)
    assert list(replicas.gone(300.0)) == []
