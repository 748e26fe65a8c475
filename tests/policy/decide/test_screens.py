"""Whom a policy with the action ExternalAuth selects: nobody escapes by a request that can be read in two ways."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.support.policies.callers import Proof
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, OIDC, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, call

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.basic import Unfit
from authplane.policy.check.decision import Allow
from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Declined, Granted

PATHS = "{type: Inline, paths: [/admin/*]}"
HEADERS = "{type: Inline, headers: [{name: x-env, value: prod}]}"
HOSTS = "{type: Inline, hosts: [a.example]}"
PORTS = "{type: Inline, ports: [80]}"
METHODS = "{type: Inline, methods: [POST]}"


class Case(NamedTuple):
    entry: str
    asked: Request
    selected: bool = True


def asked(**more: Any) -> Request:
    return call(**more)


def headed(*headers: tuple[str, str]) -> Request:
    return call(headers=headers)


CASES = {
    "the path": Case(PATHS, asked(path="/admin/x")),
    "another path": Case(PATHS, asked(path="/mcp"), selected=False),
    "a path with dots": Case(PATHS, asked(path="/a/../admin/x")),
    "a path with empty steps": Case(PATHS, asked(path="//admin/x")),
    "a path with parameters": Case(PATHS, asked(path="/admin;a/x")),
    "a path with escapes": Case(PATHS, asked(path="/%61dmin/x")),
    "the header": Case(HEADERS, headed(("x-env", "prod"))),
    "no such header": Case(HEADERS, headed(), selected=False),
    "another value": Case(HEADERS, headed(("x-env", "dev")), selected=False),
    "two headers": Case(HEADERS, headed(("x-env", "prod"), ("x-env", "dev"))),
    "two headers, joined by the proxy": Case(HEADERS, headed(("x-env", "dev,prod"))),
    "a header with an underscore": Case(HEADERS, headed(("x_env", "prod"))),
    "a header and one with an underscore": Case(HEADERS, headed(("x-env", "prod"), ("x_env", "dev"))),
    "the host": Case(HOSTS, asked(host="A.example:443")),
    "the host with a dot": Case(HOSTS, asked(host="a.example.")),
    "another host": Case(HOSTS, asked(host="b.example"), selected=False),
    "a host that is none": Case(HOSTS, asked(host="a.example:")),
    "no host": Case(HOSTS, asked(host="")),
    "the port": Case(PORTS, asked()),
    "another port": Case(PORTS, asked(destination=Peer(port=81)), selected=False),
    "a port that nobody tells": Case(PORTS, asked(destination=Peer())),
    "the method": Case(METHODS, asked()),
    "another method": Case(METHODS, replace(ADD_CALL, method="PUT"), selected=False),
}  # fmt: skip


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_who_can_be_taken_for_somebody_who_is_selected_is_selected(case: Case) -> None:
    action = f"  action: ExternalAuth\n  externalAuth: {external()}"
    held = policies(BACKEND, SERVICES, policy(f"[{{authorization: {case.entry}}}]", kind="XAccessPolicy", more=action))
    services = Services(authz=Declined())
    allowed = word(judge(held, case.asked, Proof(), services)) == "allow"
    assert (allowed, len(services.asked)) == ((False, 1) if case.selected else (True, 0))


PLAIN = ("the path", "the header", "the host", "the host with a dot", "the port", "the method")


@pytest.mark.parametrize("name", CASES)
def test_what_can_be_read_in_two_ways_is_not_granted(name: str) -> None:
    case = CASES[name]
    held = policies(BACKEND, policy(f"[{{authorization: {case.entry}}}]", kind="XAccessPolicy"))
    assert (word(judge(held, case.asked)) == "allow") == (name in PLAIN)


TOKENS = {
    "two tokens": (Unfit("more than one Authorization header"), 1),
    "one that nobody looks at": (Refused(reason=Reason.TOO_MANY_FAILURES), 1),
    "one whose issuer cannot be asked": (
        Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://issuer.example"), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize(("token", "count"), TOKENS.values(), ids=TOKENS.keys())
def test_a_bad_token_does_not_keep_its_bearer_from_being_selected(token: Unfit | Refused, count: int) -> None:
    action = f"  action: ExternalAuth\n  externalAuth: {external()}"
    held = policies(BACKEND, SERVICES, policy(f"[{{source: {OIDC}}}]", kind="XAccessPolicy", more=action))
    services = Services(authz=Declined())
    assert (word(judge(held, ADD_CALL, Proof(shown=token), services)), len(services.asked)) == ("403", count)


@pytest.mark.requirement("R6B")
def test_v0alpha0_leaves_the_base_protocol_to_a_service_for_every_source() -> None:
    held = policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]"), kind="XAccessPolicy", version="v0alpha0"))
    services = Services(authz=Declined())
    assert (word(judge(held, INITIALIZE, Proof(), services)), services.names) == ("403", ["authz"])
    named = policy(rule(authorization=f"[{asks()}]"), kind="XAccessPolicy", version="v0alpha0")
    services = Services(authz=Declined())
    assert (word(judge(policies(BACKEND, SERVICES, named), INITIALIZE, Proof(), services)), services.names) == (
        "allow",
        [],
    )


SETS, REMOVES = HeaderEdits(set=(("x-team", "red"),)), HeaderEdits(remove=("X-Team",))


@pytest.mark.parametrize(
    ("first", "second", "kept", "gone"),
    [(SETS, REMOVES, {}, True), (REMOVES, SETS, {"x-team": "red"}, False)],
    ids=["removed at last", "set at last"],
)
def test_of_two_services_the_later_one_has_the_last_word_on_a_header(
    first: HeaderEdits, second: HeaderEdits, kept: dict[str, str], gone: bool
) -> None:
    screen = policy(name="s", kind="XAccessPolicy", more=f"  action: ExternalAuth\n  externalAuth: {external()}")
    held = policies(BACKEND, SERVICES, screen, policy(anybody(f"[{asks('authz2')}]")))
    services = Services(authz=Granted(first), authz2=Granted(second))
    allowed = judge(held, ADD_CALL, Proof(), services).decision
    assert isinstance(allowed, Allow)
    assert (dict(allowed.edits.set), "x-team" in allowed.edits.remove) == (kept, gone)
