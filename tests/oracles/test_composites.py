"""Composite filters at random: what becomes of calls is what the model says, and what grpcio's own filter does."""

from collections import Counter
from random import Random
from typing import Final

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from tests.oracles.composites import DRAWN, PLAIN, Configs, our_judge
from tests.oracles.plans import MILLION, Abort, Choice, Config, Ended, Inner, Passed, Run, judged
from tests.oracles.resources import render_listener, render_tree
from tests.support.matching.native_composite import AUTHORITY, Sent, native_branches
from tests.support.matching.trees import TEXTS, Request

from authplane.dataplane.filters.calls import Side
from authplane.grpc.matching import first_match, header, when

CONFIGS: Final = 160
CALLS: Final = 12


@pytest.mark.slow
@pytest.mark.requirement("CF-5", "CF-7", "CF-9", "CF-11", "CF-12")
def test_calls_end_or_go_on_as_the_model_says() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CONFIGS):
        made = Configs(seed)
        config = made.config()
        judge = our_judge(render_listener(config, made.chance).SerializeToString(), made.answers)
        assert not isinstance(judge, str), (seed, judge)
        for _ in range(CALLS):
            request, drawn = made.request(), made.chance.choice(DRAWN)
            want = judged(config, request, drawn)
            assert judge(request, drawn) == want, (seed, request, drawn)
            seen[sort_of(want)] += 1
    assert min(seen[each] for each in SORTS) >= 10, seen


SORTS: Final = (
    "passed", "passed after a check", "passed and written", "no match", "not supported", "authority", "denied",
    "no decision", "fault injected", "an RBAC policy",
)  # fmt: skip


def sort_of(found: Ended | Passed) -> str:
    match found:
        case Ended(message=message):
            return next(each for each in SORTS if each in message)
        case Passed(asked=(_, *_)):
            return "passed after a check"
        case Passed(response=(_, *_)):
            return "passed and written"
        case _:
            return "passed"


# --- grpcio

NAMES: Final = ("x-a", "x-b", "x-c", ":path", "content-type")
"""Those that grpcio's filter has on the client."""
TREES: Final = 100
THERE: Final = header(":path").is_there()


def native_configs(seed: int) -> list[Choice]:
    """Return what both filters know: chains, also empty ones, shares of nothing and of all, faults, rules."""
    kinds, shares = ("abort", "abort", "abort", "permit"), (0, MILLION)
    return [
        Configs(seed + number, names=NAMES, prefixes=TEXTS[1:], kinds=kinds, shares=shares).choice()
        for number in range(TREES)
    ]


@pytest.mark.real
@pytest.mark.requirement("CF-5", "CF-7", "CF-9", "CF-11", "CF-12")
async def test_grpcio_does_the_same_with_chains_and_shares() -> None:
    choices = native_configs(1_000)
    chance = Random(31)  # noqa: S311 (the same cases every time)
    sent = []
    for number in range(TREES * CALLS):
        # Grpcio reads a header that is missing as the empty text: here they are all there.
        metadata = tuple((name, chance.choice(PLAIN)) for name in ("x-a", "x-b", "x-c"))
        path = chance.choice(("/s/m", "/s/n", "/t/m"))
        sent.append(Sent(number % TREES, Request(path=path, authority=AUTHORITY, metadata=metadata)))
    native = await native_branches([render_tree(choice) for choice in choices], sent)
    seen: Counter[int] = Counter()
    for each, (code, message) in zip(sent, native, strict=True):
        config = Config(side=Side.CLIENT, filter=choices[each.tree])
        want = judged(config, each.request, 0.5)
        assert (code, message) == native_status(want), (each, want)
        seen[code] += 1
    assert seen[0] >= 100
    assert seen[14] >= 100
    assert sum(seen.values()) - seen[0] - seen[14] >= 100


@pytest.mark.real
async def test_grpcio_does_not_survive_a_composite_in_a_composite() -> None:
    """If it ever does, the docs are wrong and the test above can have more."""
    fault = Choice(first_match(when(THERE, then=StringValue(value="1"))), {"1": Run((Abort(5),))})
    tree = Choice(fault.tree, {"1": Run((Inner(fault),))})
    request = Request(path="/s/m", authority=AUTHORITY)
    assert judged(Config(side=Side.CLIENT, filter=tree), request, 0.5) == Ended(5, "fault injected by the fault filter")
    assert await native_branches([render_tree(fault)], [Sent(0, request)]) == [(5, "Fault injected")]
    assert await native_branches([render_tree(tree)], [Sent(0, request)]) == []


def native_status(found: Ended | Passed) -> tuple[int, str]:
    """Return how a call of grpcio ends."""
    if isinstance(found, Passed):
        return 0, ""
    return found.code, "Fault injected" if found.message == "fault injected by the fault filter" else found.message
