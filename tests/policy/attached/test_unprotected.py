"""What is said of Backends that no policy protects."""

import pytest
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, policy, rule, settings
from tests.support.policies.names import EDGE, SHOP

from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.unprotected import unprotected_backends, unprotected_problems

WEB, ADMIN = (RequestTarget(backend=SHOP, gateway=EDGE, section=name) for name in ("web", "admin"))
OF_WEB = policy(rule(), targets="[{kind: Gateway, name: edge, sectionName: web}]")
CASES = {
    "no way leads there": ((), "authplane denies every request."),
    "one way has a policy": ((WEB, ADMIN), "authplane denies every request through Gateway/default/edge/admin."),
    "the only way has none": ((ADMIN,), "authplane denies every request."),
    "all ways have one": ((WEB,), None),
}


@pytest.mark.requirement("R30")
@pytest.mark.parametrize(("ways", "words"), CASES.values(), ids=CASES.keys())
def test_the_ways_are_named_on_which_nothing_protects(ways: tuple[RequestTarget, ...], words: str | None) -> None:
    made = policies(BACKEND, GATEWAY, OF_WEB, settings("{unprotectedBackends: Deny}"))
    said = [(ref, problem.message) for ref, problem in unprotected_problems(made, ways)]
    assert [ref for ref, _ in said] == list(unprotected_backends(made, ways)) == ([SHOP] if words else [])
    assert all(f"No policy protects this target, so {words}" in message for _, message in said)
