"""The queue of statuses: the newest counts, what is written is not looked at again, proxies get their time."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.statuses import condition

from authplane.controlplane.publishing.write_queue import PATIENCE, WriteQueue
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject, StoredObjects
from authplane.controlplane.status.resource_status import Status
from authplane.core.names import Ref

WEB, SHOP = Ref("HTTPProxy", "a", "web"), Ref("HTTPProxy", "a", "shop")


def status(ref: Ref, programmed: str = "True", valid: str = "True") -> Status:
    conditions = (condition("Valid", valid), condition("Programmed", programmed))
    return Status(ref=ref, api_version="v", generation=1, conditions=conditions)


class Lab:
    """A queue, and an API server of which it sees what a test says."""

    def __init__(self) -> None:
        self.objects = StoredObjects()
        self.queue = WriteQueue(self.objects)
        for ref in (WEB, SHOP):
            self.see(ref, "1")

    def see(self, ref: Ref, version: str, **more: Any) -> None:
        body = {"apiVersion": "v", "metadata": {"resourceVersion": version, "generation": 1, "uid": "u"}, **more}
        self.objects.put(ref, f"/apis/v/namespaces/a/p/{ref.name}", body)
        self.queue.seen(ref)

    def waiting(self) -> list[str]:
        found = []
        while (ref := self.queue.take()) is not None:
            found.append(ref)
        for ref in found:
            self.queue.finish(ref)
            self.queue.again(ref)
        return [ref.name for ref in found]

    def write(self, wanted: Status, version: str) -> StoredObject:
        """Take an object from the queue, and write its status."""
        ref = self.queue.take()
        assert ref == wanted.ref
        before = self.queue.stored(ref)
        assert before is not None
        after = replace(before, resource_version=version)
        self.queue.wrote(wanted, before, after, self.queue.seen_version(ref))
        self.queue.finish(ref)
        return after


def test_what_has_its_status_is_not_looked_at_again() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 0.0)
    lab.write(status(WEB), "2")
    lab.queue.offer([status(WEB)], 1.0)
    assert lab.waiting() == []
    lab.see(WEB, "2")
    assert lab.waiting() == [], "the watch shows our own write"
    lab.queue.offer([status(WEB, valid="False")], 1.0)
    assert lab.waiting() == ["web"]


def test_what_others_wrote_is_looked_at() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 0.0)
    lab.write(status(WEB), "2")
    lab.see(WEB, "3")
    assert lab.waiting() == ["web"]
    stored = lab.queue.stored(WEB)
    assert stored is not None
    assert stored.resource_version == "3"


def test_until_the_watch_shows_it_the_answer_to_a_write_counts() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 0.0)
    lab.write(status(WEB), "2")
    stored = lab.queue.stored(WEB)
    assert stored is not None
    assert stored.resource_version == "2"


def test_a_version_that_was_seen_while_a_write_was_on_its_way_counts() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 0.0)
    ref = lab.queue.take()
    assert ref == WEB
    before, seen = lab.queue.stored(WEB), lab.queue.seen_version(WEB)
    assert before is not None
    lab.see(WEB, "3")
    lab.queue.wrote(status(WEB), before, replace(before, resource_version="2"), seen)
    lab.queue.finish(WEB)
    stored = lab.queue.stored(WEB)
    assert stored is not None
    assert stored.resource_version == "3"


def test_the_newest_status_of_an_object_counts_and_one_worker_has_it() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 0.0)
    assert lab.queue.take() == WEB
    lab.queue.offer([status(WEB, valid="False")], 0.1)
    assert lab.queue.take() is None, "another worker has it"
    lab.queue.finish(WEB)
    assert lab.queue.take() == WEB
    assert lab.queue.wanted(WEB) == status(WEB, valid="False")


def test_an_object_without_status_is_forgotten() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB), status(SHOP)], 0.0)
    lab.objects.drop(WEB)
    lab.queue.offer([status(SHOP)], 0.0)
    assert lab.queue.wanted(WEB) is None
    assert WEB not in lab.queue


def test_an_object_that_exists_and_has_no_status_any_more_is_left() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB), status(SHOP)], 0.0)
    lab.queue.offer([status(SHOP)], 0.0)
    assert (lab.queue.leaves(WEB), lab.queue.leaves(SHOP), WEB in lab.queue) == (True, False, True)
    lab.queue.offer([status(WEB), status(SHOP)], 0.0)
    assert not lab.queue.leaves(WEB)
    lab.queue.offer([], 0.0)
    lab.queue.left(WEB)
    lab.queue.offer([], 0.0)
    assert (lab.queue.leaves(WEB), lab.queue.leaves(SHOP)) == (False, True)


@pytest.mark.requirement("KU-14")
def test_while_proxies_may_still_answer_objects_are_not_looked_at() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB)], 100.0)
    lab.write(status(WEB), "2")
    lab.queue.offer([status(WEB, "Unknown")], 100.0)
    assert lab.waiting() == []
    lab.queue.offer([status(WEB)], 101.0)
    assert lab.waiting() == []
    lab.queue.offer([status(WEB, "Unknown")], 102.0)
    lab.queue.revise(102.0 + PATIENCE)
    assert lab.waiting() == ["web"]
    lab.queue.offer([status(WEB, "Unknown", valid="False")], 103.0)
    assert lab.waiting() == ["web"]


@pytest.mark.requirement("KU-14")
def test_proxies_have_ten_seconds_to_answer() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB, "Unknown")], 100.0)
    assert lab.queue.patient(WEB, 100.0 + PATIENCE - 1)
    lab.write(status(WEB, "Unknown"), "2")
    lab.queue.offer([status(WEB, "Unknown")], 105.0)
    assert (lab.waiting(), lab.queue.due()) == ([], 100.0 + PATIENCE)
    lab.queue.revise(100.0 + PATIENCE)
    assert not lab.queue.patient(WEB, 100.0 + PATIENCE)
    assert (lab.waiting(), lab.queue.due()) == (["web"], None)
    lab.write(status(WEB, "Unknown"), "3")
    lab.queue.offer([status(WEB, "True")], 120.0)
    lab.queue.offer([status(WEB, "Unknown")], 121.0)
    assert lab.queue.patient(WEB, 122.0)


@pytest.mark.requirement("KU-14")
def test_a_new_leader_gives_proxies_their_time_again() -> None:
    lab = Lab()
    lab.queue.offer([status(WEB, "Unknown"), status(SHOP)], 100.0)
    lab.queue.revise(200.0)
    assert not lab.queue.patient(WEB, 200.0)
    lab.queue.start_again(200.0)
    assert lab.queue.patient(WEB, 209.0)
    assert lab.waiting() == ["web", "shop"]
