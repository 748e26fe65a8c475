"""During a change, what the old and the new policies deny must not pass, with the keys of before and of afterwards."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from tests.differential.changes import Either, count_changing
from tests.differential.differences import Tally
from tests.differential.model import ISSUERS, Answer, Case, PolicySet, Sent, World
from tests.differential.placements import AUTO
from tests.differential.site import Listeners, Site
from tests.support.envoy.releases import INSTALLED

DENIED: Final = Answer(False, 403)
ALLOWED: Final = Answer(True, 200, removed=frozenset({"authorization", "x-spiffe-id"}))
CASE: Final = Case(place=0, sent=Sent())
WORLD: Final = World(sets=(PolicySet(),))
FITTING: Final = {
    "all deny": ((DENIED, DENIED), DENIED),
    "one denies": ((ALLOWED, DENIED), DENIED),
    "one allows": ((DENIED, DENIED, ALLOWED, DENIED), ALLOWED),
    "denied with another status": ((DENIED, ALLOWED), Answer(False, 401)),
    "not decided": ((ALLOWED, ALLOWED), Answer(False, 503)),
}
FAULTS: Final = {
    "all deny": ((DENIED, DENIED), ALLOWED, "Envoy allows what the reference denies"),
    "all allow": ((ALLOWED, ALLOWED), DENIED, "Envoy denies what the reference allows"),
    "another form": (
        (DENIED, ALLOWED),
        Answer(True, 200, "with x-spiffe-id"),
        "what reached the server behind is not what was judged",
    ),
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    ports = Listeners(1, 2)
    issuers = dict.fromkeys(ISSUERS, "https://issuer.example")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Site(
        world=WORLD, root=tmp_path, origin=1, external=2, issuers=issuers, gateways=(ports,), proxies=ports, now=now
    )


def counted(site: Site, possible: tuple[Answer, ...], got: Answer) -> Tally:
    tally = Tally(placement=AUTO)
    count_changing(tally, WORLD, INSTALLED, [Either(CASE, site.shot(CASE), possible)], [got])
    assert tally.changing == 1
    return tally


@pytest.mark.parametrize(("possible", "got"), FITTING.values(), ids=FITTING.keys())
def test_an_answer_by_old_or_new_policies_and_keys_is_right(
    site: Site, possible: tuple[Answer, ...], got: Answer
) -> None:
    assert counted(site, possible, got).differences == []


@pytest.mark.parametrize(("possible", "got", "kind"), FAULTS.values(), ids=FAULTS.keys())
def test_any_other_answer_is_found(site: Site, possible: tuple[Answer, ...], got: Answer, kind: str) -> None:
    assert [each.kind for each in counted(site, possible, got).differences] == [kind]


def test_headers_that_every_grant_removes_must_not_reach_the_server_behind(site: Site) -> None:
    other = Answer(True, 200, removed=frozenset({"x-spiffe-id"}))
    shot = site.shot(CASE)
    assert Either(CASE, shot, (DENIED, ALLOWED, other)).removed == {"x-spiffe-id"}
    assert Either(CASE, shot, (DENIED, DENIED)).removed == frozenset()
