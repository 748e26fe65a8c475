"""`authplane check` and `test` judge requests as they travel: by every Gateway that leads to the target."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_check import asked, invoke
from tests.support.policies.documents import BACKEND, GATEWAY, SPIFFE, policy, rule
from tests.support.policies.names import AGENT

OTHER = "spiffe://cluster.local/other"
EDGE = policy(rule(f"{{type: SPIFFE, spiffe: '{OTHER}'}}"), name="g", targets="[{kind: Gateway, name: edge}]")
ADMIN = EDGE.replace("name: edge}]", "name: edge, sectionName: admin}]")
DEFAULT = EDGE.replace("name: edge}]", "name: authplane}]")
SHOP = policy(rule(SPIFFE))
BY_AGENT = f"{{spiffe: {AGENT}}}"


def route(*parents: str, kind: str = "Backend", name: str = "shop") -> str:
    group = "" if kind == "Service" else "group: agentic.networking.x-k8s.io, "
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{", ".join(parents or ("{name: edge}",))}]
  rules: [{{backendRefs: [{{{group}kind: {kind}, name: shop, port: 80}}]}}]
"""


def through(request: str, gateway: str) -> str:
    return request.replace("name: shop}", f"name: shop, gateway: {gateway}}}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "gateway"
    place.mkdir()
    return place


def check(folder: Path, request: str, *documents: str) -> Any:
    """Return the answer, or what is printed of a mistake."""
    (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    file = folder.parent / "r.yaml"
    file.write_text(request, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file), "-o", "json")
    return json.loads(result.stdout) if result.exit_code == 0 else " ".join(result.stderr.split())


def short(found: Any) -> tuple[str, str, list[str]]:
    notes = [each for each in found["notes"] if "certificate" not in each]
    return found["decision"], found["policy"].rpartition("/")[2], notes


AMBIGUOUS = (
    "Requests reach Backend/default/shop through Gateways with different policies: Gateway/default/edge/web (no"
    " policy);"
    " Gateway/default/edge/admin (AccessPolicy/default/g). Set target.gateway to one of them."
)
ASSUMED = "assumed: the request comes through Gateway/default/{}"


def test_the_policies_of_the_gateway_that_leads_to_a_backend_judge_too(folder: Path) -> None:
    request = asked(BY_AGENT)
    assert short(check(folder, request, BACKEND, SHOP, GATEWAY, route())) == ("allow", "p", [])
    denied = check(folder, request, BACKEND, SHOP, GATEWAY, route(), EDGE)
    assert short(denied) == ("deny", "g", [ASSUMED.format("edge/web")])


def test_so_do_those_of_the_default_gateway(folder: Path) -> None:
    assert short(check(folder, asked(BY_AGENT), BACKEND, SHOP)) == ("allow", "p", [])
    denied = check(folder, asked(BY_AGENT), BACKEND, SHOP, DEFAULT)
    assert short(denied) == ("deny", "g", [ASSUMED.format("authplane/default")])


def test_so_do_those_of_a_listener_whose_certificate_is_not_in_the_folder(folder: Path) -> None:
    secure = GATEWAY.replace("protocol: HTTP}", "protocol: HTTPS, tls: {certificateRefs: [{name: lost}]}}")
    assert secure != GATEWAY
    assert short(check(folder, asked(BY_AGENT), BACKEND, SHOP, secure, route(), EDGE))[:2] == ("deny", "g")


def test_where_listeners_differ_one_must_be_named(folder: Path) -> None:
    documents = (BACKEND, SHOP, GATEWAY, route(), ADMIN)
    found = check(folder, asked(BY_AGENT), *documents)
    assert found.startswith(f"{folder.parent}/r.yaml:1:")
    assert AMBIGUOUS in found
    assert AMBIGUOUS in check(folder, through(asked(BY_AGENT), "{name: edge}"), *documents)
    named = {
        section: short(check(folder, through(asked(BY_AGENT), f"{{name: edge, sectionName: {section}}}"), *documents))
        for section in ("web", "admin")
    }
    assert named == {"web": ("allow", "p", []), "admin": ("deny", "g", [])}


def test_only_the_listeners_count_that_a_route_attaches_to(folder: Path) -> None:
    web = route("{name: edge, sectionName: web}")
    assert short(check(folder, asked(BY_AGENT), BACKEND, SHOP, GATEWAY, web, ADMIN))[:2] == ("allow", "p")
    lost = check(
        folder, through(asked(BY_AGENT), "{name: edge, sectionName: admin}"), BACKEND, SHOP, GATEWAY, web, ADMIN
    )
    note = "impossible: no route leads from Gateway/default/edge/admin to Backend/default/shop"
    assert short(lost) == ("deny", "g", [note])


def test_listeners_of_a_gateway_before_services_are_told_apart_as_well(folder: Path) -> None:
    request = "{target: {kind: Gateway, name: edge}, path: /a}"
    assert short(check(folder, request, GATEWAY, route(kind="Service"), EDGE))[:2] == ("deny", "g")
    found = check(folder, request, GATEWAY, route(kind="Service"), ADMIN)
    assert "The listeners of Gateway/default/edge have different policies" in found
    assert found.count("Set target.sectionName to one of them.") == 1


def test_a_test_is_not_green_where_the_gateway_denies(folder: Path) -> None:
    cases = f"""
cases:
- name: the agent may
  request: {asked(BY_AGENT)}
  expect: {{decision: allow}}
"""
    (folder / "a.test.yaml").write_text(cases, encoding="utf-8")
    outputs = {}
    for name, edge in (("one for all", EDGE), ("one for a listener", ADMIN)):
        (folder / "all.yaml").write_text(f"{BACKEND}---{SHOP}---{GATEWAY}---{route()}---{edge}", encoding="utf-8")
        result = invoke("test", str(folder), "-o", "json")
        found = json.loads(result.stdout)
        outputs[name] = (result.exit_code, found["failed"], [each["reason"] for each in found["findings"]])
    assert outputs == {"one for all": (1, 1, []), "one for a listener": (1, 0, ["GatewayAmbiguous"])}
