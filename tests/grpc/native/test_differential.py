"""A real server does with generated calls under generated policies what ``authplane check`` says, and asks less."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import grpc
import pytest
from tests.grpc.native.cases import CALLERS, PolicySet, Sent, draw_calls, draw_set, is_plain
from tests.grpc.native.site import Ended, Site, serving

from authplane.policy.placement.grpc_plan import ByServer

SEED: Final = 8
CALLS: Final = 12
METHOD: Final = re.compile("/[^/]+/[^/]+")
OK, DENIED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED


class Compared(NamedTuple):
    """A call, how it should have ended and how it did."""

    policies: PolicySet
    sent: Sent
    wanted: Ended
    got: Ended
    asked: int


STRICTER: Final[dict[str, Callable[[Compared], bool]]] = {
    # A call that names no method of a service is answered before anybody judges it.
    "no method": lambda each: each.got.code is grpc.StatusCode.UNIMPLEMENTED and not METHOD.fullmatch(each.sent.path),
    # Only the policy server has words for what it denies, and it is not asked about what no rule could grant.
    "no words": lambda each: each.got.code is DENIED and each.wanted.code is not OK and not each.asked,
    # A path of gRPC has no query: the policy engine takes it off, and the server has no such method.
    "a query": lambda each: each.got.code is DENIED and "?" in each.sent.path,
}
"""Where a server is stricter than the reference, and why."""


def compare(site: Site, policies: PolicySet, chance: Random, seen: Counter[str]) -> list[Compared]:
    """Make calls under a set of policies; returns those that end otherwise than they should."""
    site.publish(policies)
    entries = [entry for policy in site.plan.policies for entry in policy.entries]
    alone = site.plan.grants is not None and all(isinstance(each.place, ByServer) for each in entries)
    seen["sets with grants"] += site.plan.grants is not None
    found = []
    for sent in draw_calls(chance, CALLS):
        wanted = site.reference(sent)
        each = Compared(policies, sent, wanted, *site.call(sent))
        seen["cases"] += 1
        seen["granted"] += each.got.code is OK
        seen["granted without a check"] += each.got.code is OK and not each.asked
        seen["checks"] += each.asked
        if each.wanted != each.got:
            names = [name for name, covers in STRICTER.items() if covers(each)]
            seen.update(names)
            found += [] if names else [each]
        elif alone and not site.foreign and is_plain(sent) and "issuers" not in policies.settings and each.asked:
            found.append(each)
    return found


def run(stack: str, kind: str, root: Path, sets: int) -> Counter[str]:
    chance, seen = Random(SEED), Counter[str]()  # noqa: S311 (cases, no secrets)
    with serving(stack, root, draw_set(chance, 1), CALLERS, kind) as site:
        found = [each for _ in range(sets) for each in compare(site, draw_set(chance, site.port), chance, seen)]
    assert found == [], (len(found), found[0])
    return seen


@pytest.mark.slow
def test_a_server_allows_what_the_reference_allows_and_asks_less(stack: str, tmp_path: Path) -> None:
    seen = run(stack, "Auto", tmp_path, 100)
    assert seen["cases"] == 1200
    assert seen["sets with grants"] > 40
    assert seen["granted without a check"] > 100
    assert seen["granted without a check"] > seen["granted"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CallOut", "foreign"])
def test_a_server_that_leaves_all_to_the_policy_server_or_is_of_another_maker_grants_nothing_unasked(
    stack: str, kind: str, tmp_path: Path
) -> None:
    seen = run(stack, kind, tmp_path, 25)
    assert seen["granted"] > 30
    assert seen["granted without a check"] == 0
