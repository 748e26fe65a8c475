"""Which of a client's headers are removed on account of what an authorization service sets."""

from typing import NamedTuple

import pytest

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    Disabled,
    Enforced,
    FailClosed,
    HeaderNames,
    NameTest,
    OverHttp,
    RouteAuthorization,
)
from authplane.controlplane.render.stripped_headers import stripped_names
from authplane.core.timeouts import UseDefault


def rule(text: str) -> HeaderNames:
    """Return the rule that ``kind name`` means."""
    test, _, name = text.partition(" ")
    return HeaderNames(test=NameTest(test), text=name)


def asked(*read: str) -> Enforced:
    protocol = OverHttp(request_headers=tuple(map(rule, read)))
    service = AuthorizationService(cluster="auth", protocol=protocol, timeout=UseDefault(), on_failure=FailClosed())
    return Enforced(service=service, context=())


class Case(NamedTuple):
    promised: str
    route: RouteAuthorization
    stripped: bool


CASES = {
    "exact, disabled": Case("exact x-user", Disabled(), True),
    "exact, checked": Case("exact x-user", asked(), True),
    "exact, read": Case("exact x-user", asked("exact x-user"), False),
    "exact, read by prefix": Case("exact x-user", asked("prefix x-"), False),
    "exact, read by suffix": Case("exact x-user", asked("suffix -user"), False),
    "exact, another read": Case("exact x-user", asked("exact x-role", "suffix -role", "contains role"), True),
    "prefix, disabled": Case("prefix x-user-", Disabled(), True),
    "prefix, one of them read": Case("prefix x-user-", asked("exact x-user-id"), False),
    "prefix, a longer one read": Case("prefix x-user-", asked("prefix x-user-id-"), False),
    "prefix, a shorter one read": Case("prefix x-user-", asked("prefix x-"), False),
    "prefix, another read": Case("prefix x-user-", asked("prefix x-role-"), True),
    "prefix, a suffix read": Case("prefix x-user-", asked("suffix -id"), False),
    "suffix, another read": Case("suffix -user", asked("suffix -role"), True),
    "suffix, a longer one read": Case("suffix -user", asked("suffix -x-user"), False),
    "contains, disabled": Case("contains user", Disabled(), True),
    "contains, anything read by pattern": Case("contains user", asked("prefix y-"), False),
    "credentials": Case("exact authorization", Disabled(), False),
    "a prefix of credentials": Case("prefix auth", Disabled(), False),
    "cookies": Case("exact cookie", Disabled(), False),
    "what frames the request": Case("contains content", Disabled(), False),
    "pseudo headers": Case("contains path", Disabled(), False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_names_that_a_service_sets_are_stripped_unless_it_reads_them(case: Case) -> None:
    promised = rule(case.promised)
    assert stripped_names((promised,), case.route) == ((promised,) if case.stripped else ())
