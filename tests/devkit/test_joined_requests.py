"""A decision and the access log's line of the same request become one line."""

import pytest

from authplane.devkit.local.joined_requests import PATIENCE, JoinedRequest, JoinedRequests
from authplane.policy.check.decision import Allow
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Grounds, Verdict

VERDICT = Verdict(Allow(), Grounds(policy="p"))


def request(ident: str) -> Request:
    return Request(method="POST", path="/mcp", headers=(("x-request-id", ident),) if ident else ())


def test_a_decision_waits_for_the_end_of_its_request() -> None:
    requests = JoinedRequests()
    first, second = request("1"), request("2")
    assert list(requests.decided(first, VERDICT, 0)) == []
    assert list(requests.decided(second, VERDICT, 0)) == []
    record = {"request_id": "2", "status": 200}
    assert requests.ended(record) == JoinedRequest(record=record, request=second, verdict=VERDICT)
    assert requests.ended(record) == JoinedRequest(record=record)


def test_a_request_without_a_decision_is_shown_alone() -> None:
    assert JoinedRequests().ended({"request_id": None}) == JoinedRequest(record={"request_id": None})


def test_a_request_that_stays_open_is_shown_once_and_again_at_its_end() -> None:
    requests = JoinedRequests()
    stream = request("1")
    list(requests.decided(stream, VERDICT, 10))
    assert list(requests.due(10 + PATIENCE / 2)) == []
    assert list(requests.due(10 + PATIENCE)) == [JoinedRequest(record=None, request=stream, verdict=VERDICT)]
    assert list(requests.due(10 + PATIENCE * 2)) == []
    assert requests.ended({"request_id": "1"}).verdict == VERDICT


def test_a_check_without_an_id_is_shown_at_once() -> None:
    assert [each.record for each in JoinedRequests().decided(request(""), VERDICT, 0)] == [None]


@pytest.mark.parametrize("shown", [False, True])
def test_decisions_whose_request_never_ends_do_not_pile_up(shown: bool) -> None:
    requests = JoinedRequests()
    for number in range(1000):
        assert list(requests.decided(request(str(number)), VERDICT, 0)) == []
    if shown:
        assert len(list(requests.due(PATIENCE))) == 1000
    pushed = list(requests.decided(request("new"), VERDICT, PATIENCE))
    assert [each.request for each in pushed] == ([] if shown else [request("0")])
    assert requests.ended({"request_id": "0"}).verdict is None
