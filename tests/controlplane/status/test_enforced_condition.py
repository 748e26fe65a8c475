"""The condition ``Enforced``: who decides by a policy, and why."""

from typing import Final, NamedTuple

import pytest
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, SPIFFE, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.names import AGENT, EDGE, SHOP

from authplane.controlplane.status.access_policy_status import Condition
from authplane.controlplane.status.enforced_condition import LONGEST_MESSAGE, bounded, enforced_condition
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.placement.entry_placement import ASKS, CHOSEN
from authplane.policy.placement.grpc_entries import PORTS, TOKENS
from authplane.policy.placement.placement_plan import SCREENED
from authplane.policy.placement.source_placement import NO_KEYS
from authplane.policy.placement.target_routes import UNTOLD, TargetRoutes

P: Final = Ref("AccessPolicy", "default", "p")
LOOP: Final = "[{type: CEL, cel: {expression: 'identity.a.exists(x, x == 1.0)'}}]"
GET: Final = "[{type: CEL, cel: {expression: 'request.method == \"GET\"'}}]"
SERVER: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {type: GRPC, grpc: {port: 50051}}
"""
OTHER: Final = Ref("Backend", "default", "other")
CALL_OUT_OTHER: Final = BACKEND.replace(
    "{name: shop}", "{name: other, annotations: {authplane.dev/placement: CallOut}}"
)
ALL: Final = "The policy grants nothing, so authplane denies every request."


def enforced(
    *documents: str,
    reached: dict[RequestTarget, frozenset[str] | None] | None = None,
    envoy: Release | None = CURRENT,
    target: int = 0,
) -> Condition:
    made = compiled(*documents)
    standing = made.standings[P]
    passages = TargetRoutes(made.policies, reached or {}, envoy)
    return enforced_condition(standing, standing.targets[target], made.policies, passages)


def condition(reason: str, message: str, status: str = "True") -> Condition:
    return Condition(type="Enforced", status=status, reason=reason, message=message)


class Case(NamedTuple):
    documents: tuple[str, ...]
    want: Condition


CASES: Final = {
    "Envoy decides everything": Case(
        (BACKEND, policy(rule())),
        condition("Native", "rule rule-0, entries 0:InlineTools, base_protocol: decided in Envoy"),
    ),
    "the server is chosen": Case(
        (settings("{placement: CallOut}"), BACKEND, policy(anybody(GET), kind="AccessPolicy")),
        condition(
            "CallOut", f"rule rule-0, entries 0:CEL, base_protocol: decided by the policy server, because it {CHOSEN}"
        ),
    ),
    "one rule needs the server": Case(
        (BACKEND, policy(f"[{rule()[1:-1]}, {rule(OIDC, LOOP)[1:-1]}]")),
        condition(
            "Mixed",
            "rule rule-0, entries 0:InlineTools, base_protocol: decided in Envoy; "
            "rule rule-1, entry 0:CEL: decided by the policy server, because it uses exists(); "
            "rule rule-1, entry base_protocol: decided in Envoy",
        ),
    ),
    "an external service": Case(
        (BACKEND, SERVICES, policy(rule(SPIFFE, f"[{asks()}]"))),
        condition(
            "Mixed",
            f"rule rule-0, entry 0:ExternalAuth: decided by the policy server, because it {ASKS}; "
            "rule rule-0, entry base_protocol: decided in Envoy",
        ),
    ),
    "a gRPC server": Case(
        (SERVER, policy(rule(SPIFFE, "[{type: Inline, paths: ['/shop.Cart/*']}]"))),
        condition("Native", "rule rule-0, entry 0:Inline: decided in the gRPC server"),
    ),
    "a gRPC server that has to ask": Case(
        (SERVER, policy(rule(OIDC, "[{type: Inline, paths: ['/shop.Cart/*']}]"))),
        condition("CallOut", f"rule rule-0, entry 0:Inline: decided by the policy server, because it {TOKENS}"),
    ),
    "a gRPC server that has to ask about some": Case(
        (SERVER, policy(f"[{rule(SPIFFE, '[{type: Inline, ports: [1]}, {type: Inline, methods: [POST]}]')[1:-1]}]")),
        condition(
            "Mixed",
            f"rule rule-0, entry 0:Inline: decided by the policy server, because it {PORTS}; "
            "rule rule-0, entry 1:Inline: decided in the gRPC server",
        ),
    ),
    "no rules": Case((BACKEND, policy("[]")), condition("Native", ALL)),
    "no rules, and the server is chosen": Case(
        (settings("{placement: CallOut}"), BACKEND, policy("[]")), condition("CallOut", ALL)
    ),
    "a policy with a mistake": Case(
        (BACKEND, policy(rule("{type: SPIFFE}"))),
        condition("Denies", "authplane denies every request until the policy is accepted. Correct the policy."),
    ),
    "a listener that is not there": Case(
        (GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge, sectionName: none}]")),
        condition("Denies", "authplane denies every request until the policy is accepted. Correct the policy."),
    ),
    "a policy that is tried out": Case(
        (BACKEND, policy(rule(), more="  mode: Shadow")),
        condition("Shadow", "The policy is evaluated but not enforced.", "False"),
    ),
    "a policy that is tried out before an open gRPC server": Case(
        (SERVER, policy(rule(SPIFFE, GET), more="  mode: Shadow")),
        condition(
            "Shadow",
            "The policy is neither enforced nor evaluated: "
            "gRPC servers, and Envoy before 1.38, do not evaluate policies in shadow mode.",
            "False",
        ),
    ),
    "a policy that is tried out before a gRPC server with another": Case(
        (SERVER, policy(rule(SPIFFE, GET), name="q"), policy(rule(SPIFFE, GET), more="  mode: Shadow")),
        condition("Shadow", "The policy is evaluated but not enforced.", "False"),
    ),
    "a policy that should be tried out, where too many are": Case(
        (BACKEND, *(policy(rule(), name=name, more="  mode: Shadow") for name in "abcdep")),
        condition("Shadow", "The policy is not enforced.", "False"),
    ),
    "no target": Case((policy(rule()),), condition("TargetNotFound", "The target does not exist. "
                                                                     "Add it, or correct targetRefs.", "False")),
    "a configuration that cannot be used": Case(
        (settings("{placement: Never}"), BACKEND, policy(rule())),
        condition(
            "Denies", "authplane denies every request, because the AuthplaneConfiguration is invalid. Correct it."
        ),
    ),
}  # fmt: skip


@pytest.mark.requirement("R37", "R76")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_policy_says_who_enforces_it(case: Case) -> None:
    assert enforced(*case.documents) == case.want


def test_a_policy_that_asks_about_requests_leaves_the_others_to_the_server() -> None:
    screen = policy("[]", name="s", kind="XAccessPolicy", more=f"  action: ExternalAuth\n  externalAuth: {external()}")
    found = enforced(BACKEND, SERVICES, policy(rule()), screen)
    assert (found.reason, found.message.endswith(f"it {SCREENED}")) == ("CallOut", True)


def test_a_gateways_policy_may_be_enforced_by_envoy_on_some_ways_and_not_on_others() -> None:
    targets = "[{kind: Gateway, name: edge}, {kind: Gateway, name: edge, sectionName: admin}]"
    documents = (BACKEND, CALL_OUT_OTHER, GATEWAY, policy(rule(), targets=targets))
    reached: dict[RequestTarget, frozenset[str] | None] = {
        RequestTarget(backend=SHOP, gateway=EDGE, section="web"): None,
        RequestTarget(backend=OTHER, gateway=EDGE, section="web"): None,
        RequestTarget(backend=SHOP, gateway=EDGE, section="admin"): None,
    }
    entries = "rule rule-0, entries 0:InlineTools, base_protocol"
    assert enforced(*documents, reached=reached) == condition(
        "Mixed", f"{entries}: decided in Envoy on 2 of 3 routes, otherwise by the policy server, because it {CHOSEN}"
    )
    assert enforced(*documents, reached=reached, target=1) == condition("Native", f"{entries}: decided in Envoy")


def test_tokens_are_judged_by_the_server_until_their_keys_are_there() -> None:
    documents = (BACKEND, policy(rule(OIDC)))
    target = RequestTarget(backend=SHOP)
    assert enforced(*documents, reached={target: frozenset()}) == condition(
        "CallOut",
        f"rule rule-0, entries 0:InlineTools, base_protocol: decided by the policy server, because it {NO_KEYS}",
    )
    assert enforced(*documents, reached={target: frozenset({"https://issuer.example"})}).reason == "Native"


def test_an_envoy_that_does_not_say_which_it_is_asks_about_everything() -> None:
    assert enforced(BACKEND, policy(rule()), envoy=None) == condition(
        "CallOut",
        f"rule rule-0, entries 0:InlineTools, base_protocol: decided by the policy server, because it {UNTOLD}",
    )


def test_a_long_message_says_how_much_is_left_out() -> None:
    rules = ", ".join(f"{{name: r{n}, source: {{type: SPIFFE, spiffe: {AGENT}}}, tools: [add]}}" for n in range(60))
    found = enforced(BACKEND, policy(f"[{rules}]"))
    assert len(found.message) <= LONGEST_MESSAGE
    shown = found.message.count("rule r")
    assert found.message.endswith(f"; and {60 - shown} more: see authplane explain")


@pytest.mark.parametrize("length", [1, LONGEST_MESSAGE, 10 * LONGEST_MESSAGE])
def test_what_is_said_of_one_rule_has_its_limit_too(length: int) -> None:
    assert len(bounded(["a" * length, "b"])) <= LONGEST_MESSAGE


@pytest.mark.parametrize(
    ("envoy", "status"), [(None, "neither"), (Release(1, 37), "neither"), (Release(1, 38), "and")], ids=str
)
def test_an_envoy_that_would_heed_a_policy_in_shadow_is_not_told_of_it(envoy: Release | None, status: str) -> None:
    found = enforced(OPEN, BACKEND, policy(rule(OIDC, LOOP), more="  mode: Shadow"), envoy=envoy)
    words = {
        "neither": "The policy is neither enforced nor evaluated: "
        "gRPC servers, and Envoy before 1.38, do not evaluate policies in shadow mode.",
        "and": "The policy is evaluated but not enforced.",
    }
    assert found == condition("Shadow", words[status], "False")
    closed = enforced(BACKEND, policy(rule(), more="  mode: Shadow"), envoy=envoy)
    assert closed == condition("Shadow", words["and"], "False")
