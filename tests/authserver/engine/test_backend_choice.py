"""Several backends behind one door."""

from dataclasses import dataclass
from datetime import datetime

import pytest

from authplane.authserver.engine.backend_choice import Branch, ByContext, ByHost, ByPath, Choice, Condition
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request

NOBODY = Deny(http_status=403, rule="no backend is responsible")


@dataclass(frozen=True, slots=True)
class Named:
    """Says who it is."""

    name: str

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return Allow(identity=self.name)


CASES: dict[str, tuple[Condition, Request, bool]] = {
    "the context": (ByContext("realm", "a"), Request(method="GET", path="/", context={"realm": "a"}), True),
    "another context": (ByContext("realm", "a"), Request(method="GET", path="/", context={"realm": "b"}), False),
    "no context": (ByContext("realm", ""), Request(method="GET", path="/"), False),
    "a host": (ByHost("A.example"), Request(method="GET", path="/", host="a.EXAMPLE:8443"), True),
    "another host": (ByHost("a.example"), Request(method="GET", path="/", host="a.example.evil"), False),
    "a host below": (ByHost("*.example"), Request(method="GET", path="/", host="x.y.example"), True),
    "the wildcard itself": (ByHost("*.example"), Request(method="GET", path="/", host="example"), False),
    "no host": (ByHost("*.example"), Request(method="GET", path="/", host=""), False),
    "a host with its dot": (ByHost("a.example"), Request(method="GET", path="/", host="a.example.:80"), True),
    "an address": (ByHost("[::1]"), Request(method="GET", path="/", host="[::1]:80"), True),
    "a path": (ByPath("/a"), Request(method="GET", path="/a"), True),
    "below it": (ByPath("/a"), Request(method="GET", path="/a/b"), True),
    "beside it": (ByPath("/a"), Request(method="GET", path="/ab"), False),
    "everything": (ByPath("/"), Request(method="GET", path="/x"), True),
    "another case": (ByPath("/a"), Request(method="GET", path="/A"), False),
}


@pytest.mark.parametrize(("condition", "request_", "holds"), CASES.values(), ids=CASES.keys())
def test_a_branch_is_taken_if_its_condition_matches(condition: Condition, request_: Request, holds: bool) -> None:
    choice = Choice((Branch("it", (condition,), Named("it")),))
    assert choice.pick(request_) == (choice.branches[0] if holds else NOBODY)


def test_the_first_branch_whose_conditions_all_match_decides() -> None:
    choice = Choice(
        (
            Branch("admin", (ByHost("a.example"), ByPath("/admin")), Named("admin")),
            Branch("a", (ByHost("a.example"),), Named("a")),
            Branch("rest", (), Named("rest")),
        )
    )
    requests = [("a.example", "/admin/x"), ("a.example", "/"), ("b.example", "/admin")]
    assert [choice.pick(Request(method="GET", host=host, path=path)) for host, path in requests] == [*choice.branches]


def test_a_request_without_a_backend_is_denied() -> None:
    assert Choice(()).pick(Request(method="GET", path="/")) == NOBODY


CLEAR = ("/", "/a", "/a/b.c", "/a/..b/c...", "/caf%C3%A9", "/a%20b", "/a%3Fb", "/%7B", "/%40", "/%60", "/%5E", "/%2A")
UNCLEAR = (
    "//a", "/a//b", "/x/../a", "/x/..", "/./a", "/a/.", "/x\\..\\a", "/a;b", "/%61", "/%2e%2E/a", "/x%2fa", "/x%5Ca",
    "/%2561", "/a%3bb", "/%41", "/%5A", "/%7a", "/%30", "/%39", "/%5f", "/%7E", "/%2D", "/%4f", "/%6F",
)  # fmt: skip


@pytest.mark.parametrize("path", [*CLEAR, *UNCLEAR])
def test_a_path_that_can_be_read_in_two_ways_is_denied_where_paths_matter(path: str) -> None:
    asked = Request(method="GET", path=path)
    by_path = Choice((Branch("a", (ByPath("/a"),), Named("a")), Branch("rest", (), Named("rest"))))
    picked = by_path.pick(asked)
    assert (isinstance(picked, Deny) and picked.http_status == 400) == (path in UNCLEAR)
    alone = Choice((Branch("rest", (), Named("rest")),))
    assert alone.pick(asked) == alone.only == alone.branches[0]
