"""Policies in `authplane validate` and `authplane status`."""

from datetime import UTC, datetime
from typing import Any

from tests.policy.access.world import ADD, BACKEND, GATEWAY, OIDC, SPIFFE, policy, rule, settings
from tests.support.gateway import service
from tests.support.world import World

from authplane.app.records import Transitions, finding_record
from authplane.graph.programming import Answered, NotServed, Programming

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHOP = service("shop", 9000)


def records(*documents: str) -> dict[str, Any]:
    made = Transitions().records(World(documents).generation.status(NotServed()), NOW)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in made}


def test_a_policy_has_an_ancestor_for_each_target() -> None:
    found = records(BACKEND, SHOP, policy(rule(SPIFFE, ADD)))["AccessPolicy/p"]
    assert found["apiVersion"] == "agentic.networking.x-k8s.io/v1alpha1"
    [ancestor] = found["status"]["ancestors"]
    assert list(found["status"]) == ["ancestors"]
    assert (ancestor["ancestorRef"], ancestor["controllerName"]) == (
        {"group": "agentic.networking.x-k8s.io", "kind": "Backend", "namespace": "default", "name": "shop"},
        "authplane.dev/controller",
    )
    assert [(each["type"], each["status"], each["reason"]) for each in ancestor["conditions"]] == [
        ("Accepted", "True", "Accepted"),
        ("ResolvedRefs", "True", "ResolvedRefs"),
        ("Programmed", "Unknown", "NotServed"),
        ("Enforced", "True", "CallOut"),
    ]
    assert ancestor["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_a_backend_says_how_it_is_protected() -> None:
    def protected(*policies: str) -> tuple[str, str]:
        conditions = records(BACKEND, SHOP, *policies)["Backend/shop"]["status"]["conditions"]
        [found] = [each for each in conditions if each["type"] == "Protected"]
        return found["status"], found["reason"]

    assert protected() == ("False", "NoPolicy")
    assert protected(policy(rule())) == ("True", "Protected")
    assert protected(policy(rule(SPIFFE, "[{type: CEL, cel: 'nothing'}]"))) == ("True", "PolicyNotAccepted")


def test_what_is_wrong_with_a_policy_is_found_with_its_place() -> None:
    wrong = policy(rule(OIDC, "[{type: CEL, cel: 'request.nothing'}]"))
    findings = World([BACKEND, SHOP, wrong]).generation.findings
    [found] = [finding_record(each) for each in findings if each.problem.severity.value == "error"]
    assert (found["resource"], found["path"], found["reason"]) == (
        "AccessPolicy/default/p",
        "spec.rules[0].authorization[0].cel",
        "InvalidCEL",
    )
    assert found["line"] > 1


def test_rules_for_tokens_are_the_servers_until_their_keys_are_there() -> None:
    documents = (settings("{bodyInspection: Native}"), BACKEND, SHOP, policy(rule(OIDC, ADD)))

    def enforced(keys: dict[str, str] | None, programming: Programming) -> str:
        [found] = [
            condition.reason
            for ancestor in World(documents, keys).status("AccessPolicy", "p", programming).ancestors
            for condition in ancestor.conditions
            if condition.type == "Enforced"
        ]
        return found

    assert enforced(None, Answered()) == "CallOut"
    assert enforced({"https://issuer.example": '{"keys": []}'}, Answered()) == "Native"
    assert enforced(None, NotServed()) == "Native"


def test_what_a_backend_or_gateway_chooses_wrongly_is_in_its_status() -> None:
    wrong = "metadata: {annotations: {authplane.dev/placement: always}, "
    found = records(*(each.replace("metadata: {", wrong, 1) for each in (BACKEND, GATEWAY)), SHOP)
    for name in ("Backend/shop", "Gateway/edge"):
        valid = found[name]["status"]["conditions"][-1]
        assert (valid["type"], valid["status"], valid["reason"]) == ("Valid", "False", "ErrorPresent")
        assert [(each["reason"], each["message"]) for each in valid["errors"]] == [
            (
                "AnnotationInvalid",
                "metadata.annotations.authplane.dev/placement: "
                "'always' is not 'Auto' or 'CallOut'; until it is, 'CallOut' holds",
            )
        ]
