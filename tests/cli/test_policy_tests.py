"""`authplane test`: cases pass or fail, rules without a case are named, results are for people and programs."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tests.cli.test_check import WORLD, asked, assumed
from tests.support.pages import ROOT
from tests.support.policies.names import AGENT

from authplane.cli.main import build_app

ALLOWED = f"""
- name: agents may add
  request: {asked(f"{{spiffe: {AGENT}}}")}
  expect: {{decision: allow, policy: default/p, rule: agents, reason: granted}}"""
DENIED = f"""
- name: nobody may not
  request: {asked()}
  expect: {{decision: deny, httpStatus: 401, policy: p}}"""
STAFF = f"""
- name: others may not
  request: {asked(assumed("{aud: shop, group: user}"))}
  expect: {{decision: deny, httpStatus: 403}}"""


ADMINS = f"""
- name: admins may
  request: {asked(assumed("{aud: shop, group: admin}"))}
  expect: {{decision: allow, rule: staff}}"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["test", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    place = Path("shop")
    place.mkdir()
    (place / "all.yaml").write_text("\n---\n".join(WORLD), encoding="utf-8")
    return place


def write(path: Path, *cases: str, policies: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{policies}cases:{''.join(cases)}\n", encoding="utf-8")
    return path


def test_cases_that_pass_are_listed_with_the_rules_that_no_case_exercises(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED, DENIED)
    result = invoke("shop")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "ok    agents may add  allow            shop/a.test.yaml:2:3\n"
        "ok    nobody may not  deny 401         shop/a.test.yaml:5:3\n"
        "shop/all.yaml:16:5: no case is granted by rule staff of AccessPolicy/default/p\n"
        "2 passed, 0 failed; 1 rule without a case\n"
    )


def test_a_rule_counts_whichever_file_exercises_it(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED)
    write(folder / "deep" / "b.test.yml", ADMINS)
    assert invoke("shop").stdout.endswith("2 passed, 0 failed\n")


def test_a_denied_member_of_another_group_does_not_exercise_the_rule_of_a_group(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED, STAFF)
    missed = "shop/all.yaml:16:5: no case is granted by rule staff of AccessPolicy/default/p\n"
    assert invoke("shop").stdout.endswith(f"{missed}2 passed, 0 failed; 1 rule without a case\n")


def test_a_case_fails_for_each_thing_that_differs(folder: Path) -> None:
    wrong = ALLOWED.replace("default/p", "other/p").replace("rule: agents", "rule: staff").replace("granted", "x")
    write(folder / "a.test.yaml", wrong.replace("decision: allow", "decision: deny, httpStatus: 403"), DENIED)
    result = invoke("shop", "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["passed"], found["failed"], found["findings"]) == (1, 1, [])
    [failed, passed] = found["cases"]
    assert failed["differences"] == [
        "expected decision deny, got allow",
        "expected httpStatus 403, got none",
        "expected rule staff, got agents",
        "expected reason x, got granted",
        "expected policy other/p, got AccessPolicy/default/p",
    ]
    assert (failed["name"], failed["file"], failed["line"], failed["passed"]) == (
        "agents may add",
        "shop/a.test.yaml",
        2,
        False,
    )
    assert (passed["passed"], passed["got"]["reason"]) == (True, "no_token")
    assert found["unexercised"] == [
        {"policy": "AccessPolicy/default/p", "rule": "staff", "file": "shop/all.yaml", "line": 16}
    ]
    text = invoke("shop")
    assert (text.exit_code, "FAIL  agents may add" in text.stdout) == (1, True)
    assert "      expected rule staff, got agents\n" in text.stdout


@pytest.mark.parametrize("name", ["p", "default/p", "AccessPolicy/default/p"])
def test_a_policy_may_be_named_by_its_end(name: str, folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED.replace("default/p", name))
    assert invoke("shop").exit_code == 0


def test_part_of_a_name_is_not_its_end(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED.replace("policy: default/p", "policy: ault/p"))
    assert invoke("shop").exit_code == 1


@pytest.mark.parametrize(
    "policies", ["policies: ../shop\n", "policies: [../shop/all.yaml]\n", "policies: ['../s*/*.yaml', ../shop]\n"]
)
def test_tests_may_be_elsewhere(policies: str, folder: Path) -> None:
    file = write(Path("tests") / "a.test.yaml", ALLOWED, ADMINS, policies=policies)
    assert invoke("tests").stdout.endswith("2 passed, 0 failed\n")
    assert invoke(str(file)).stdout.endswith("2 passed, 0 failed\n")


def test_one_file_is_about_the_folder_it_is_in(folder: Path) -> None:
    file = write(folder / "a.test.yaml", ALLOWED, ADMINS)
    write(folder / "b.test.yaml", DENIED.replace("401", "200"))
    assert invoke(str(file)).stdout.endswith("2 passed, 0 failed\n")


def test_tests_are_never_taken_for_policies(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED.replace("default/p", "AccessPolicy/default/p"), ADMINS)
    assert invoke("shop").exit_code == 0


def test_a_pattern_means_files_of_resources(folder: Path) -> None:
    (folder / "README.md").write_text("An AccessPolicy: [for all", encoding="utf-8")
    write(folder / "a.test.yaml", ALLOWED, ADMINS, policies="policies: '*'\n")
    assert invoke("shop").stdout.endswith("2 passed, 0 failed\n")


def test_policies_with_errors_deny_and_that_is_said(folder: Path) -> None:
    (folder / "all.yaml").write_text(
        "\n---\n".join(WORLD).replace("source: {type: OIDC", "source: {typ: OIDC"), encoding="utf-8"
    )
    write(folder / "a.test.yaml", ALLOWED)
    result = invoke("shop")
    assert (result.exit_code, "policy_unusable" in result.stdout) == (1, True)
    assert result.stderr == (
        "The policies have 2 errors. Invalid policies deny all requests to their targets."
        " Run 'authplane lint shop' to list the errors.\n"
    )


def test_results_are_written_for_ci(folder: Path) -> None:
    write(folder / "a.test.yaml", ALLOWED, DENIED.replace("401", "403").replace("nobody may not", '"<nobody>\\e"'))
    (folder / "b.test.yaml").write_text("cases: []\n", encoding="utf-8")
    assert invoke("shop", "--junit", "out.xml").exit_code == 1
    root = ET.parse("out.xml").getroot()  # noqa: S314 (we wrote it)
    assert [dict(suite.attrib) for suite in root] == [
        {"name": "shop/a.test.yaml", "tests": "2", "failures": "1", "errors": "0"},
        {"name": "shop/b.test.yaml", "tests": "1", "failures": "0", "errors": "1"},
    ]
    assert [
        (case.get("name"), [(each.tag, each.get("message")) for each in case]) for case in root.iter("testcase")
    ] == [
        ("agents may add", []),
        (r"<nobody>\x1b", [("failure", "expected httpStatus 403, got 401")]),
        (
            "shop/b.test.yaml:1:1",
            [("error", "The field is empty or is not a list. Add a list with at least one case.")],
        ),
    ]


BAD = {
    "no cases": ("policies: x\n", "'cases' is required. Add it."),
    "no list": ("cases: {}\n", "The field is empty or is not a list. Add a list with at least one case."),
    "no request": ("cases:\n- {name: a, expect: {decision: allow}}\n", "'request' is required. Add it."),
    "no decision": (f"cases:\n- {{name: a, request: {asked()}, expect: {{}}}}\n", "'decision' is required. Add it."),
    "no such decision": (f"cases:\n- {{name: a, request: {asked()}, expect: {{decision: yes}}}}\n", "Expected one of"),
    "a bad request": ("cases:\n- {name: a, request: {}, expect: {decision: deny}}\n", "'target' is required. Add it."),
    "a name twice": (
        f"cases:{ALLOWED}{ALLOWED}\n",
        'Another case has the name "agents may add". Use a different name for each case.',
    ),
    "no such policies": (
        f"policies: [all.yaml, nope*.yaml]\ncases:{ALLOWED}\n",
        '"nope*.yaml" matches no file or folder in shop. Correct the path.',
    ),
    "no such file": (f"policies: nope\ncases:{ALLOWED}\n", '"nope" matches no file or folder in shop.'),
    "nothing": ("", "The file is empty. Add a document."),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD.keys())
def test_a_mistake_in_a_file_fails_with_its_place(text: str, words: str, folder: Path) -> None:
    (folder / "a.test.yaml").write_text(text, encoding="utf-8")
    result = invoke("shop")
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("shop/a.test.yaml")
    assert words in result.stdout


def test_the_tests_of_the_examples_pass_and_exercise_every_rule() -> None:
    found = json.loads(invoke(str(ROOT / "examples"), "-o", "json").stdout)
    assert (found["failed"], found["findings"], found["unexercised"]) == (0, [], [])
    assert found["passed"] > 5


def test_a_folder_without_tests_is_a_mistake_of_who_asks(folder: Path) -> None:
    result = invoke("shop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "authplane: shop has no *.test.yaml file. Add one, or pass the folder that contains the tests.\n"
    )
    assert invoke("nowhere").exit_code == 2
    write(folder / "a.test.yaml", ALLOWED)
    assert invoke("shop", "--junit", "no/such/folder.xml").exit_code == 2
