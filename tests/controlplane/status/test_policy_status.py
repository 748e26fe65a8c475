"""Policies in `authplane validate` and `authplane status`."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.gateways.contour_gateway import service
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, OPEN, SPIFFE, policy, rule
from tests.support.resources.contour_documents import World

from authplane.cli.main import build_app
from authplane.controlplane.graph.model.programming import Answered, NotServed, Programming
from authplane.controlplane.status.findings import finding_record
from authplane.controlplane.status.status_json import Transitions

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
        ("Enforced", "True", "Native"),
    ]
    assert ancestor["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_a_backend_says_how_it_is_protected() -> None:
    def protected(*documents: str) -> tuple[str, str]:
        conditions = records(BACKEND, SHOP, *documents)["Backend/shop"]["status"]["conditions"]
        [found] = [each for each in conditions if each["type"] == "Protected"]
        return found["status"], found["reason"]

    assert protected() == ("False", "DeniedByDefault")
    assert protected(OPEN) == ("False", "NoPolicy")
    edge = policy(rule(), targets="[{kind: Gateway, name: authplane}]")
    assert protected(edge) == ("True", "ProtectedByGateway")
    # Nothing of the other Gateway leads there without a policy, and nothing of this one leads there at all.
    assert protected(GATEWAY, edge.replace("authplane", "edge")) == ("False", "DeniedByDefault")
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
    documents = (BACKEND, SHOP, policy(rule(OIDC, ADD)))

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
                "metadata.annotations.authplane.dev/placement: 'always' is not supported, so 'CallOut' "
                "applies. Use 'Auto' or 'CallOut'.",
            )
        ]


def foreign(number: int, **more: Any) -> dict[str, Any]:
    """Return an entry of another controller."""
    ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default", "name": f"g{number}"}
    return {"ancestorRef": ref, "controllerName": "other.example/controller", "conditions": [], **more}


def stored(*entries: Any) -> list[Any]:
    """Return the ancestors in the status of a policy whose document has these."""
    text = f"{policy(rule())}\nstatus: {json.dumps({'ancestors': entries})}"
    found: list[Any] = records(BACKEND, SHOP, text)["AccessPolicy/p"]["status"]["ancestors"]
    return found


def names(entries: list[Any]) -> list[str]:
    return [each["ancestorRef"]["name"] for each in entries]


@pytest.mark.requirement("R71")
def test_entries_of_other_controllers_stay_in_the_status_as_they_are() -> None:
    odd = foreign(1, conditions=[{"type": "Accepted", "status": "True", "odd": [1, None, {"a": True}, 0.5]}])
    [ours] = stored()
    long_ago = {"lastTransitionTime": "2020-01-01T00:00:00Z"}
    same = {**ours, "conditions": [{**each, **long_ago} for each in ours["conditions"]]}
    flipped = {**ours["conditions"][0], "status": "False", **long_ago}
    assert stored(odd, foreign(2)) == [odd, foreign(2), ours]
    assert stored(odd, same, foreign(2)) == [odd, same, foreign(2)]
    assert stored({**ours, "conditions": [flipped]}, odd) == [ours, odd]
    gone = {**ours, "ancestorRef": {**ours["ancestorRef"], "name": "gone"}}
    assert stored(gone, "nonsense", odd) == ["nonsense", odd, ours]


@pytest.mark.requirement("R74", "T07")
def test_a_status_that_is_full_of_others_gets_no_entry_of_ours() -> None:
    for count, listed in ((15, True), (16, False)):
        others = [foreign(number) for number in range(count)]
        found = stored(*others)
        assert (found[:count], names(found[count:])) == (others, ["shop"] if listed else [])


@pytest.mark.requirement("R71")
def test_a_backend_tls_policy_keeps_the_entries_of_others_too() -> None:
    text = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: t}}
spec:
  targetRefs: [{{group: "", kind: Service, name: shop}}]
  validation: {{wellKnownCACertificates: System, hostname: shop.example}}
status: {json.dumps({"ancestors": [foreign(1)]})}
"""
    found = records(SHOP, text)["BackendTLSPolicy/t"]["status"]["ancestors"]
    assert (found[0], names(found)) == (foreign(1), ["g1", "shop"])


def test_what_is_printed_for_people_is_ours_alone(tmp_path: Path) -> None:
    others = foreign(1, conditions=[{"type": "Accepted", "status": "False", "reason": "Theirs", "message": "no"}])
    text = f"{policy(rule())}\nstatus: {json.dumps({'ancestors': [others, 7]})}"
    (tmp_path / "all.yaml").write_text(f"{BACKEND}\n---\n{SHOP}\n---\n{text}", encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["status", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Theirs" not in result.stdout
