"""`authplane lint`: mistakes, and what is allowed and probably not meant."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result
from tests.cli.test_check import WORLD, loaded
from tests.support.pages import ROOT, read
from tests.support.policies.documents import ADD, BACKEND, OIDC, SPIFFE, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import AGENT

from authplane.cli.main import build_app
from authplane.devkit.policies.checking import enforce
from authplane.devkit.policies.policy_lint import KINDS, lint_policies
from authplane.policy.attached.unprotected import SHADOW_ONLY, UNPROTECTED

BOTH = f"{{type: SPIFFE, spiffe: [{AGENT}, spiffe://cluster.local/b]}}"
TWO = "[{type: InlineTools, tools: [add, sub]}]"
ISSUER = "https://issuer.example"


def oidc(audiences: str = "[shop]", scopes: str = "[]") -> str:
    return f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: {audiences}, scopes: {scopes}}}}}"


def cel(text: str) -> str:
    return f"[{{type: CEL, cel: '{text}'}}]"


def rules(*pairs: tuple[str, str]) -> str:
    """Write rules of sources and entries; an empty source is none."""
    written = (f"{{{f'source: {source}, ' if source else ''}authorization: {entry}}}" for source, entry in pairs)
    return f"[{', '.join(written)}]"


NAMED = 'has(identity.a) && identity.a == "x"'
PATH = 'request.path == "/x"'


class Case(NamedTuple):
    documents: tuple[str, ...]
    want: list[str]


def of(text: str, *want: str) -> Case:
    return Case((BACKEND, policy(text)), list(want))


ALL = "[{type: InlineTools, tools: ['*']}]"
UNREACHABLE = "spec.rules[1] RuleUnreachable"
EVERYBODY = "spec.rules[0] AnybodyMay"

CASES = {
    "nothing to say": of(rule()),
    "the same rule": of(rules((SPIFFE, ADD), (SPIFFE, ADD)), UNREACHABLE),
    "fewer tools": of(rules((SPIFFE, TWO), (SPIFFE, ADD)), UNREACHABLE),
    "some of all tools": of(rules((SPIFFE, ALL), (SPIFFE, ADD)), UNREACHABLE),
    "all tools twice": of(rules((SPIFFE, ALL), (SPIFFE, ALL)), UNREACHABLE),
    "all tools after some": of(rules((SPIFFE, ADD), (SPIFFE, ALL))),
    "a pattern of tools": of(
        rule(authorization="[{type: InlineTools, tools: ['get_*']}]"),
        "spec.rules[0].authorization[0].tools[0] ToolNotPattern",
    ),
    "more tools": of(rules((SPIFFE, ADD), (SPIFFE, TWO))),
    "fewer workloads": of(rules((BOTH, ADD), (SPIFFE, ADD)), UNREACHABLE),
    "more workloads": of(rules((SPIFFE, ADD), (BOTH, ADD))),
    "everybody before": of(rules(("", ADD), (SPIFFE, ADD)), EVERYBODY, UNREACHABLE),
    "everybody after": of(rules((SPIFFE, ADD), ("", ADD)), "spec.rules[1] AnybodyMay"),
    "fewer audiences": of(rules((oidc("[a, shop]"), ADD), (oidc(), ADD)), UNREACHABLE),
    "more audiences": of(rules((oidc(), ADD), (oidc("[a, shop]"), ADD))),
    "scopes after none": of(rules((oidc(), ADD), (oidc(scopes="[s]"), ADD)), UNREACHABLE),
    "no scopes after some": of(rules((oidc(scopes="[s]"), ADD), (oidc(), ADD))),
    "a token after a workload": of(rules((SPIFFE, ADD), (oidc(), ADD))),
    "the same expression": of(rules((oidc(), cel(NAMED)), (oidc(), cel(NAMED))), UNREACHABLE),
    "the same expression about another identity": of(rules((BOTH, cel(NAMED)), (SPIFFE, cel(NAMED)))),
    "the same expression about the request": of(rules((BOTH, cel(PATH)), (SPIFFE, cel(PATH))), UNREACHABLE),
    "another expression": of(rules((oidc(), cel(NAMED)), (oidc(), cel(PATH)))),
    "an entry twice": of(
        rules((SPIFFE, "[{type: InlineTools, tools: [add, sub]}, {type: InlineTools, tools: [sub]}]")),
        "spec.rules[0].authorization[1] EntryUnreachable",
    ),
    "entries that differ": of(
        rules((SPIFFE, "[{type: Inline, methods: [GET]}, {type: Inline, methods: [POST]}]")),
    ),
    "who may not": of(
        rule(OIDC, cel('has(identity.a) && identity.a != "x"')),
    ),
    "only who may not": of(
        rule(OIDC, cel('identity.a != "x"')),
        "spec.rules[0].authorization[0].cel CELUnguardedField",
        "spec.rules[0].authorization[0].cel CELNegationOnly",
    ),
    "no audiences": of(rule(oidc("[]")), "spec.rules[0].source.oidc.audiences AudiencesMissing"),
    "no rules": of("[]", "spec.rules GrantsNothing"),
    "a target that is not there": Case(
        (BACKEND, policy(rule()), policy(rule(), name="q", targets="[{kind: Backend, name: nope}]")),
        ["spec.targetRefs[0].name TargetNotFound"],
    ),
    "no targets": Case(
        (BACKEND, policy(rule()), policy(rule(), name="q", targets="[]")), ["spec.targetRefs NoTargets"]
    ),
    "no policy": Case((BACKEND,), [" Unprotected"]),
    "only a policy in shadow": Case((BACKEND, f"{policy(rule())}\n  mode: Shadow"), [" ShadowOnly"]),
    "no policy, and open": Case((BACKEND, settings("{unprotectedBackends: Allow}")), [" Unprotected"]),
    "any of two": Case(
        (BACKEND, policy(rule()), policy(rule(), name="q"), settings("{policyComposition: Any}")),
        [" AnyPolicySuffices"],
    ),
    "an issuer nearby": Case(
        (*WORLD[:1], policy(rule()), settings(f"{{issuers: [{{url: '{ISSUER}', allowPrivateNetwork: true}}]}}")),
        ["spec.issuers[0].allowPrivateNetwork PrivateIssuer"],
    ),
    "everybody, but somebody else is asked": Case((BACKEND, SERVICES, policy(anybody(f"[{asks()}]"))), []),
    "everything": Case(
        (BACKEND, policy("[{}]", kind="XAccessPolicy")),
        ["spec.rules[0] AnybodyMay", "spec.rules[0] GrantsEverything"],
    ),
    "a configuration that cannot be used": Case(
        (BACKEND, policy(rule()), settings("{strikt: true}")), [" NothingAllowed", "spec.strikt FieldUnknown"]
    ),
    "a policy that cannot be read": Case(
        (BACKEND, policy("[{souce: {}}]")), ["spec.rules[0].souce FieldUnknown"]
    ),
    "an expression that is none": of(rule(OIDC, cel("identity.")), "spec.rules[0].authorization[0].cel InvalidCEL"),
    "others' mistakes": Case(
        (BACKEND, policy(rule()), "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {portz: 1}\n"), []
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_found(case: Case) -> None:
    found = lint_policies(enforce(loaded(*case.documents)))
    paths = ["".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in each.problem.path)[1:] for each in found]
    assert [f"{path} {each.problem.reason}" for path, each in zip(paths, found, strict=True)] == case.want


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["lint", *arguments])


@pytest.mark.parametrize(
    ("documents", "plain", "strict"),
    [
        ((BACKEND, policy(rule())), 0, 0),
        ((BACKEND,), 0, 1),
        ((BACKEND, policy(rule(OIDC, cel("identity.")))), 1, 1),
    ],
    ids=["nothing", "a warning", "an error"],
)
def test_warnings_fail_only_if_that_is_wanted(
    documents: tuple[str, ...], plain: int, strict: int, tmp_path: Path
) -> None:
    (tmp_path / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    assert (invoke(str(tmp_path)).exit_code, invoke(str(tmp_path), "--strict").exit_code) == (plain, strict)


def test_findings_have_their_place(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        "\n---\n".join((BACKEND, policy(rules((SPIFFE, ADD), (SPIFFE, ADD))))), encoding="utf-8"
    )
    result = invoke(str(tmp_path), "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        [
            {
                "file": str(tmp_path / "all.yaml"),
                "line": 14,
                "column": 141,
                "resource": "AccessPolicy/default/p",
                "path": "spec.rules[1]",
                "reason": "RuleUnreachable",
                "message": "Rule 'rule-0' already grants everything that this rule grants. Remove one of the two"
                " rules.",
                "severity": "warning",
            }
        ],
    )
    text = invoke(str(tmp_path)).stdout
    assert "Rule 'rule-0' already grants everything that this rule grants. Remove one of the two rules." in text
    assert text.endswith("0 errors, 1 warning\n")


def test_the_page_about_tests_has_every_reason_of_lint() -> None:
    source = read(ROOT / "src" / "authplane" / "devkit" / "policies" / "policy_lint.py")
    reasons = {*re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]+)+)"', source), UNPROTECTED, SHADOW_ONLY} - KINDS
    assert {"AnybodyMay", "PrivateIssuer"} < reasons
    page = read(ROOT / "docs" / "how-to" / "test-policies.md")
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()


def test_the_page_about_decisions_explains_every_reason() -> None:
    folder = ROOT / "src" / "authplane" / "policy" / "decide"
    sources = (folder / f"{name}.py" for name in ("match_rules", "evaluate_rules", "decide"))
    constants = re.findall(r'"((?:external:)?[a-z]+(?:_[a-z]+)+)"', "".join(map(read, sources)))
    others = {"service_account", "short_of", "spiffe_id", "too_large"}
    page = read(ROOT / "docs" / "reference" / "decision-reasons.md")
    missing = {each for each in constants if f"`{each}`" not in page and f"`{each}:…`" not in page}
    assert missing - others == set()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    result = invoke(str(tmp_path / "nowhere"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_problem_of_an_expression_has_its_line_and_column_in_the_file(tmp_path: Path) -> None:
    folded = "\n    - type: CEL\n      cel: >-\n        request.method == 'GET'\n        && request.verb == 'x'"
    written = f"{BACKEND}\n---\n{policy('PLACE')}".replace(
        "PLACE", f"\n  - source: {SPIFFE}\n    authorization:{folded}"
    )
    (tmp_path / "policy.yaml").write_text(written, encoding="utf-8")
    line = 1 + written[: written.index("&& request.verb")].count("\n")
    for command in ("lint", "validate"):
        said = CliRunner().invoke(build_app(), [command, str(tmp_path)]).output
        assert f"policy.yaml:{line}:19: error: request has no member verb." in " ".join(said.split()), said
