"""`authplane explain`: who decides what before every target."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from click.testing import CliRunner, Result
from tests.support.gateways.contour_gateway import service
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, SPIFFE, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks

from authplane.cli.main import build_app
from authplane.devkit.policies.explain_placement import EVALUATED, OPEN_SERVER, TOO_OLD
from authplane.policy.placement.entry_placement import ASKS, CHOSEN
from authplane.policy.placement.grpc_entries import PORTS
from authplane.policy.placement.placement_model import Decider
from authplane.policy.placement.source_placement import TWO_NAMES
from authplane.policy.placement.target_routes import UNTOLD

SHOP: Final = service("shop", 80)
LOOP: Final = "[{type: CEL, cel: {expression: 'has(identity.a) && identity.a.exists(x, x == 1.0)'}}]"
GET: Final = "[{type: CEL, cel: {expression: 'request.method == \"GET\"'}}]"
NO_MCP: Final = "{type: Inline, methods: [GET], mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}}"
EDGE: Final = "[{kind: Gateway, name: edge}]"
ROUTE: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge, sectionName: web}]
  rules:
  - backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]
"""
SERVER: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: orders}
spec: {type: GRPC, grpc: {port: 50051}}
"""


def annotated(document: str, **values: str) -> str:
    text = ", ".join(f"authplane.dev/{key.replace('_', '-')}: {value}" for key, value in values.items())
    return document.replace("metadata: {", f"metadata: {{annotations: {{{text}}}, ", 1)


def run(folder: Path, *documents: str, more: tuple[str, ...] = ()) -> Result:
    (folder / "a.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    return CliRunner().invoke(build_app(), ["explain", str(folder), *more])


def explained(folder: Path, *documents: str, envoy: str = "1.39") -> dict[str, Any]:
    result = run(folder, *documents, more=("-o", "json", "--envoy", envoy))
    assert result.exit_code == 0
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class Case(NamedTuple):
    documents: tuple[str, ...]
    decider: str
    entries: list[str]
    """Each entry that the policy server decides with its reason, each policy with its note."""
    advice: list[str]
    note: str = ""
    envoy: str = "1.39"


TWO_RULES: Final = policy(f"[{rule()[1:-1]}, {rule(OIDC, LOOP)[1:-1]}]")
CASES: Final = {
    "native": Case(
        (policy(rule()),), "Envoy", ["p rule-0 0:InlineTools", "p rule-0 base_protocol"], []
    ),
    "mixed": Case(
        (TWO_RULES,),
        "Envoy and policy server",
        [
            "p rule-0 0:InlineTools", "p rule-0 base_protocol",
            "p rule-1 0:CEL: uses exists()", "p rule-1 base_protocol",
        ],
        [],
    ),
    "the configuration chooses the server": Case(
        (settings("{placement: CallOut}"), policy(rule())),
        "Policy server",
        [f"p rule-0 0:InlineTools: {CHOSEN}", f"p rule-0 base_protocol: {CHOSEN}"],
        ["set authplane.dev/placement: Auto on Backend/default/shop"],
    ),
    "nothing that could be chosen would help": Case(
        (SERVICES, policy(anybody(f"[{asks()}]"), kind="XAccessPolicy", version="v0alpha0")),
        "Policy server",
        [f"p rule-0 0:ExternalAuth: {ASKS}"],
        [],
    ),
    "an issuer without a scheme": Case(
        (policy(rule(OIDC.replace("https://", ""))),),
        "Policy server",
        [f"p rule-0 0:InlineTools: {TWO_NAMES}", f"p rule-0 base_protocol: {TWO_NAMES}"],
        ["write issuerUrl with https:// in the policy"],
    ),
    "a policy that cannot be used": Case(
        (policy(rule("{type: SPIFFE}")),),
        "Policy server",
        ["p: denies all requests: A source of type SPIFFE requires 'spiffe'. Add it."],
        [],
    ),
    "no rules": Case((policy("[]"),), "Envoy", ["p: grants nothing"], []),
    "a policy in shadow beside another": Case(
        (policy(rule()), policy(rule(), name="q", more="  mode: Shadow")),
        "Envoy",
        [
            "p rule-0 0:InlineTools", "p rule-0 base_protocol",
            f"q: {EVALUATED}",
        ],
        [],
    ),
    "a policy in shadow alone": Case(
        (OPEN, policy(rule(), more="  mode: Shadow")),
        "Nobody",
        [f"p: {EVALUATED}"],
        [],
        "no policy protects this target: all requests are allowed",
    ),
    "a policy in shadow alone, and a release of Envoy that would heed it": Case(
        (OPEN, policy(rule(OIDC, LOOP), more="  mode: Shadow")),
        "Nobody",
        [f"p: {TOO_OLD}"],
        [],
        "no policy protects this target: all requests are allowed",
        envoy="1.37",
    ),
    "a policy in shadow alone that such a release evaluates by itself": Case(
        (OPEN, policy(anybody(f"[{NO_MCP}]"), kind="XAccessPolicy", more="  mode: Shadow")),
        "Nobody",
        [f"p: {EVALUATED}"],
        [],
        "no policy protects this target: all requests are allowed",
        envoy="1.37",
    ),
    "the oldest release of Envoy that is known": Case(
        (policy(rule()),), "Envoy", ["p rule-0 0:InlineTools", "p rule-0 base_protocol"], [], envoy="1.36"
    ),
    "a release of Envoy from before": Case(
        (policy(rule(SPIFFE, GET)),),
        "Policy server",
        [f"p rule-0 0:CEL: {UNTOLD}", f"p rule-0 base_protocol: {UNTOLD}"],
        ["use Envoy 1.39 or later"],
        envoy="1.35.2",
    ),
    "no policy, and open": Case((OPEN,), "Nobody", [], [], "no policy protects this target: all requests are allowed"),
    "no policy": Case(
        (),
        "Policy server",
        [],
        [],
        "no policy protects this target: all requests are denied (unprotectedBackends: Deny)",
    ),
    "a configuration that cannot be used": Case(
        (settings("{placement: Never}"), policy("[]")),
        "Policy server",
        ["p: grants nothing"],
        [],
        "authplane denies all requests: the AuthplaneConfiguration is invalid",
    ),
}  # fmt: skip


@pytest.mark.requirement("R76")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_entry_has_its_place_and_its_reason(case: Case, tmp_path: Path) -> None:
    [target] = explained(tmp_path, BACKEND, SHOP, *case.documents, envoy=case.envoy)["targets"]
    said = []
    for each in target["policies"]:
        name = each["policy"].rpartition("/")[2]
        said += [f"{name}: {each['note']}"] if each["note"] else []
        said += [
            f"{name} {entry['rule']} {entry['entry']}{': ' if entry['reason'] else ''}{entry['reason']}"
            for entry in each["entries"]
        ]
        assert [entry["place"] == "call-out" for entry in each["entries"]] == [
            bool(entry["reason"]) for entry in each["entries"]
        ]
    assert (target["decider"], said, target["advice"], target["note"]) == (
        case.decider,
        case.entries,
        case.advice,
        case.note,
    )


def test_a_target_is_a_listener_and_a_backend_and_gateways_choose_too(tmp_path: Path) -> None:
    gateway = annotated(GATEWAY, placement="CallOut")
    [found] = explained(
        tmp_path, BACKEND, SHOP, gateway, ROUTE, policy(anybody(GET), name="g", targets=EDGE), policy(rule())
    )["targets"]
    assert (found["gateway"], found["backend"]) == ("Gateway/default/edge/web", "Backend/default/shop")
    assert found["placement"] == "CallOut"
    assert [each["policy"] for each in found["policies"]] == ["AccessPolicy/default/g", "AccessPolicy/default/p"]
    assert found["advice"] == ["set authplane.dev/placement: Auto on Gateway/default/edge"]


def test_what_nothing_leads_to_is_explained_all_the_same(tmp_path: Path) -> None:
    found = explained(tmp_path, BACKEND, SHOP, GATEWAY, policy(rule()), policy(rule(), name="g", targets=EDGE))
    assert [(each["gateway"], each["backend"], each["note"]) for each in found["targets"]] == [
        ("", "Backend/default/shop", "no served route reaches this target"),
        ("Gateway/default/edge", "", "no served route reaches this target"),
    ]


@pytest.mark.parametrize(
    ("authorization", "reasons", "decider"),
    [
        ("[{type: Inline, paths: ['/shop.Cart/*']}]", [""], "gRPC server"),
        (
            "[{type: Inline, paths: [/shop.Cart/A]}, {type: Inline, ports: [1]}]",
            ["", PORTS],
            Decider.GRPC_AND_SERVER.value,
        ),
        ("[{type: Inline, ports: [1]}]", [PORTS], "Policy server"),
    ],
)
def test_a_grpc_server_decides_what_it_can(
    authorization: str, reasons: list[str], decider: str, tmp_path: Path
) -> None:
    targets = "[{kind: Backend, name: orders}]"
    [found] = explained(tmp_path, SERVER, policy(rule(SPIFFE, authorization), targets=targets))["targets"]
    assert [entry["reason"] for each in found["policies"] for entry in each["entries"]] == reasons
    assert (found["decider"], found["advice"]) == (decider, [])


def test_a_grpc_server_with_policies_in_shadow_alone_evaluates_none(tmp_path: Path) -> None:
    targets = "[{kind: Backend, name: orders}]"
    [found] = explained(tmp_path, OPEN, SERVER, policy("[]", targets=targets, more="  mode: Shadow"))["targets"]
    assert (found["decider"], [each["note"] for each in found["policies"]]) == ("Nobody", [OPEN_SERVER])


def test_a_grpc_server_that_may_not_decide_could(tmp_path: Path) -> None:
    targets = "[{kind: Backend, name: orders}]"
    rules = rule(SPIFFE, "[{type: Inline, paths: ['/shop.Cart/*']}]")
    closed = SERVER.replace("{name: orders}", "{name: orders, annotations: {authplane.dev/placement: CallOut}}")
    [found] = explained(tmp_path, closed, policy(rules, targets=targets))["targets"]
    assert (found["decider"], found["advice"]) == (
        "Policy server",
        ["set authplane.dev/placement: Auto on Backend/default/orders"],
    )


def test_people_get_a_table(tmp_path: Path) -> None:
    result = run(tmp_path, BACKEND, SHOP, TWO_RULES)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "Gateway/default/authplane/default -> Backend/default/shop  Envoy and policy server\n"
        "    placement: Auto\n"
        "    POLICY                  RULE    ENTRY          PLACE     WHY\n"
        "    AccessPolicy/default/p  rule-0  0:InlineTools  native\n"
        "    AccessPolicy/default/p  rule-0  base_protocol  native\n"
        "    AccessPolicy/default/p  rule-1  0:CEL          call-out  uses exists()\n"
        "    AccessPolicy/default/p  rule-1  base_protocol  native\n"
    )


def test_people_are_told_what_to_change_and_that_there_are_errors(tmp_path: Path) -> None:
    result = run(tmp_path, annotated(BACKEND, placement="callout"), SHOP, policy(rule()))
    assert result.exit_code == 0
    assert "    to make more rules native: set authplane.dev/placement: Auto on Backend/default/shop\n" in (
        result.stdout
    )
    assert result.stderr == "The folder has 1 error, 0 warnings. Run 'authplane validate' to list them.\n"


def test_an_empty_folder_has_nothing_to_explain(tmp_path: Path) -> None:
    result = CliRunner().invoke(build_app(), ["explain", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (
        0,
        "The folder has no Backend or Gateway that a policy can protect. Add one, or run authplane"
        " validate to list errors.\n",
    )


@pytest.mark.parametrize("text", ["", "1", "one", "1.39.3.4", "1.x", "-1.39"])
def test_what_is_no_release_is_a_usage_error(text: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(build_app(), ["explain", str(tmp_path), f"--envoy={text}"])
    assert (result.exit_code, result.stderr) == (
        2,
        f"authplane: {text!r} is not an Envoy release. Use MAJOR.MINOR, such as 1.39.\n",
    )


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert CliRunner().invoke(build_app(), ["explain", str(tmp_path / "none")]).exit_code == 2
