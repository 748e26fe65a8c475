"""Policies in shadow as `authplane check`, `test` and `lint` show them."""

import json
from pathlib import Path

import pytest
from tests.cli.test_check import WORLD, asked, assumed, invoke
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, anybody, policy, rule
from tests.support.policies.names import AGENT

SHADOW = f"{policy(rule(), name='s')}\n  mode: Shadow"
GIVEN = f"{{spiffe: {AGENT}}}"
NOTE = "shadow mode: AccessPolicy/default/s rule-0 0:InlineTools would deny (tool_not_listed)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "gateway"
    place.mkdir()
    return place


def serve(folder: Path, *documents: str) -> None:
    (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")


def check(folder: Path, request: str, *options: str) -> str:
    file = folder.parent / "request.yaml"
    file.write_text(request, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file), *options)
    assert result.exit_code == 0, result.stderr
    return result.stdout


SUB = asked(GIVEN, "{method: tools/call, params: {name: sub}}")


def test_check_says_what_a_policy_in_shadow_would_do(folder: Path) -> None:
    serve(folder, OPEN, BACKEND, SHADOW)
    assert check(folder, SUB) == (
        "allow  unprotected\n"
        f"   assumed: the peer's certificate has the SPIFFE ID {AGENT}\n"
        f"   {NOTE}\n"
    )  # fmt: skip


def test_check_explains_what_a_policy_in_shadow_tried(folder: Path) -> None:
    serve(folder, BACKEND, SHADOW)
    assert check(folder, SUB, "--explain").splitlines()[3:] == [
        "   ├─ no policy was evaluated",
        "   └─ AccessPolicy/default/s at Backend/default/shop: shadow mode, would deny (tool_not_listed)",
        f"      └─ rule rule-0: SPIFFE {AGENT} matches as {AGENT}",
        "         └─ entry 0:InlineTools does not grant (tool_not_listed)",
        "            └─ fix: call one of the tools add",
    ]


def test_the_whole_answer_has_what_a_policy_in_shadow_says_beside_the_trace(folder: Path) -> None:
    serve(folder, *WORLD)
    before = json.loads(check(folder, SUB, "-o", "json"))
    serve(folder, *WORLD, SHADOW)
    after = json.loads(check(folder, SUB, "-o", "json"))
    assert before["shadow"] == []
    assert after == before | {
        "notes": [*before["notes"], NOTE],
        "shadow": [
            {
                "policy": "AccessPolicy/default/s",
                "target": "Backend/default/shop",
                "outcome": "deny",
                "rule": "rule-0",
                "entry": "0:InlineTools",
                "reason": "tool_not_listed",
                "rules": [
                    {
                        "rule": "rule-0",
                        "source": f"SPIFFE {AGENT}",
                        "matched": True,
                        "identity": AGENT,
                        "reason": "",
                        "hint": "",
                        "entries": [
                            {
                                "entry": "0:InlineTools",
                                "granted": False,
                                "reason": "tool_not_listed",
                                "hints": ["call one of the tools add"],
                            }
                        ],
                    }
                ],
            }
        ],
    }


def test_claims_of_an_issuer_that_only_a_policy_in_shadow_names_prove_something_to_it_alone(folder: Path) -> None:
    other = OIDC.replace("issuer.example", "other.example")
    serve(folder, BACKEND, policy(rule(OIDC), name="e"), f"{policy(rule(other), name='s')}\n  mode: Shadow")
    found = json.loads(check(folder, asked(assumed("{aud: shop}", "https://other.example")), "-o", "json"))
    assert (found["httpStatus"], found["reason"]) == (401, "bad_token:issuer_unknown")
    assert [each["outcome"] for each in found["shadow"]] == ["allow"]


def test_test_counts_the_rules_of_policies_in_shadow_and_judges_by_the_others(folder: Path) -> None:
    other = f"{policy(anybody('[{type: InlineTools, tools: [add]}]'), name='t')}\n  mode: Shadow"
    serve(folder, OPEN, BACKEND, SHADOW, other)
    case = f"cases:\n- name: everybody may\n  request: {asked()}\n  expect: {{decision: allow, reason: unprotected}}\n"
    (folder / "a.test.yaml").write_text(case, encoding="utf-8")
    result = invoke("test", str(folder))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no case is granted by rule rule-0 of AccessPolicy/default/s" in result.stdout
    assert "AccessPolicy/default/t" not in result.stdout
    assert result.stdout.endswith("1 passed, 0 failed; 1 rule without a case\n")


def test_lint_warns_of_targets_with_policies_in_shadow_alone_and_looks_into_them(folder: Path) -> None:
    edge = policy(anybody("[{type: InlineTools, tools: [x]}]"), name="g", targets="[{kind: Gateway, name: edge}]")
    serve(folder, BACKEND, GATEWAY, SHADOW, f"{edge}\n  mode: Shadow")
    found = invoke("lint", str(folder)).stdout
    assert found.count("ShadowOnly") == 2
    assert (
        "Only policies in shadow mode name this target (AccessPolicy/default/s), so authplane denies every request."
        in found
    )
    assert (
        "Only policies in shadow mode target this resource (AccessPolicy/default/g), so none of them"
        " denies a request. Set mode: Enforce in one of them." in found
    )
    assert "AnybodyMay" in found
    assert "Unprotected" not in found
