"""A thousand changes, and a thousand proxies that come back at once."""

import gc
import tracemalloc

import pytest

from authplane.core.holdoff import Holdoff
from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest

CLUSTER = TypeUrl.CLUSTER
COUNT = 1000
BODY = bytes(100_000)


def snapshot(number: int) -> Snapshot:
    return Snapshot.of({CLUSTER: {"a": str(number).encode(), "b": BODY}})


@pytest.mark.slow
@pytest.mark.requirement("X08")
def test_who_does_not_answer_is_sent_one_change_and_then_the_last_one() -> None:
    sotw, delta = SotwSession(), DeltaSession()
    first = snapshot(0)
    sotw.publish(first, 0)
    delta.publish(first, 0)
    [whole] = sotw.received(SotwRequest(type_url=CLUSTER, node="edge", names=()), 0).responses
    [part] = delta.received(DeltaRequest(type_url=CLUSTER, node="edge"), 0).responses
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, COUNT + 1):
            latest = snapshot(number)
            assert sotw.publish(latest, 0).responses == ()
            assert delta.publish(latest, 0).responses == ()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What came between is not kept: all of it would be more than that.
    assert grown < COUNT * 100
    answered = SotwRequest(type_url=CLUSTER, names=(), nonce=whole.nonce, version=whole.version)
    [after] = sotw.received(answered, 0).responses
    assert after.version == latest.version(CLUSTER)
    [change] = delta.received(DeltaRequest(type_url=CLUSTER, nonce=part.nonce), 0).responses
    assert [(name, item.body) for name, item in change.resources] == [("a", str(COUNT).encode())]


@pytest.mark.slow
@pytest.mark.requirement("X08")
def test_a_thousand_proxies_share_what_they_are_sent() -> None:
    latest = snapshot(1)
    gc.collect()
    tracemalloc.start()
    try:
        kept = []
        for _ in range(COUNT):
            session = SotwSession()
            session.publish(latest, 0)
            [response] = session.received(SotwRequest(type_url=CLUSTER, node="edge", names=()), 0).responses
            kept.append((session, response))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < COUNT * len(BODY) // 10
    assert {id(item) for _, response in kept for name, item in response.resources if name == "b"} == {
        id(latest.resources(CLUSTER)["b"])
    }


@pytest.mark.requirement("X08")
def test_a_thousand_changes_in_a_second_are_a_few_rebuilds() -> None:
    holdoff, rebuilds = Holdoff(quiet=0.05, longest=0.5), []
    for number in range(COUNT):
        now = number / COUNT
        due = holdoff.due()
        if due is not None and due <= now:
            rebuilds.append(now)
            holdoff.rebuilt()
        holdoff.changed(now)
    assert rebuilds == [0.5]
    assert holdoff.due() is not None
