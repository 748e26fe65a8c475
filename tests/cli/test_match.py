"""`authplane match`: which branch a call takes and why, and every mistake of a file at once."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf import json_format

from authplane.cli.main import build_app
from authplane.grpc.matching import (
    Tree,
    all_of,
    by_header,
    by_prefix,
    cel,
    composite,
    execute,
    first_match,
    header,
    noting,
    skip,
    when,
)

CALL: Final = "path: /shop.Cart/Add\nheaders: {x-user: bob, x-tier: [gold, new], x-id-bin: AQI=}\n"
SKIP: Final = '"@type": t/envoy.extensions.filters.common.matcher.action.v3.SkipFilter'
HEADER: Final = '"@type": t/envoy.type.matcher.v3.HttpRequestHeaderMatchInput'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def match(tree: str | Tree | Any, call: str = CALL, *options: str) -> Result:
    text = tree if isinstance(tree, str) else json_format.MessageToJson(tree)
    Path("tree.yaml").write_text(text, encoding="utf-8")
    Path("call.yaml").write_text(call, encoding="utf-8")
    return CliRunner().invoke(build_app(), ["match", "tree.yaml", "--request", "call.yaml", *options])


def printed(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.usefixtures("place")
def test_the_branch_is_named_with_its_place() -> None:
    tree = by_prefix(":path", {"/shop.": by_header("x-user", {"bob": skip()}), "": skip()})
    where = "matcherTree.prefixMatchMap.map./shop..matcher.matcherTree.exactMatchMap.map.bob.action"
    name = "envoy.extensions.filters.common.matcher.action.v3.SkipFilter"
    assert re.sub(r":\d+:\d+:", ":", printed(match(tree))) == f"skip ({name}), at tree.yaml: {where}\n"


@pytest.mark.usefixtures("place")
def test_no_match_is_no_mistake() -> None:
    tree = first_match(when(header("x-user").is_("alice"), then=skip()))
    assert printed(match(tree)) == "no match\n"
    assert printed(match(composite(tree))) == "no match; the composite filter ends the call with UNAVAILABLE\n"


@pytest.mark.usefixtures("place")
def test_a_composite_filter_refuses_a_call_whose_authority_it_asks_for_and_does_not_know() -> None:
    unknown = "path: /shop.Cart/Add"
    asks = [
        by_header(":authority", {"shop.example": execute(rbac_pb2.RBAC())}, otherwise=skip()),
        first_match(when(cel("has(request.host)"), then=execute(rbac_pb2.RBAC())), otherwise=skip()),
    ]
    for tree in asks:
        assert printed(match(composite(tree), unknown, "--explain")) == (
            "no match; the composite filter ends the call with UNAVAILABLE\n"
            "   └─ no: tree (the tree reads the authority of the call, which is unknown)\n"
        )
        assert printed(match(tree, unknown)).startswith("skip")
        assert printed(match(composite(tree), f"{unknown}\nauthority: shop.example")).startswith("execute")


@pytest.mark.usefixtures("place")
def test_an_explanation_shows_values_and_parts_of_expressions() -> None:
    tree = composite(
        first_match(
            when(header("x-id-bin").is_("AQ"), then=skip()),
            when(
                all_of(header("x-tier").contains("new"), cel("request.headers['x-none'] == 'a' || source.port > 1024")),
                then=execute(skip(), skip(), sample=0.125),
            ),
        )
    )
    call = CALL + "peer: {address: 10.0.0.7, port: 4711}\n"
    name = "envoy.extensions.filters.common.matcher.action.v3.SkipFilter"
    told = printed(match(tree, call, "--explain"))
    assert told.partition("\n")[2] == (
        "   └─ yes: list\n"
        "      ├─ no: branch 0\n"
        "      │  └─ no: header x-id-bin is 'AQ' (value is 'AQI')\n"
        "      └─ yes: branch 1\n"
        "         ├─ yes: all of\n"
        "         │  ├─ yes: header x-tier contains 'new' (value is 'gold,new')\n"
        '         │  └─ yes: request.headers["x-none"] == "a" || source.port > 1024\n'
        '         │     ├─ no: request.headers["x-none"] == "a" '
        "(error: a field that the expression reads is missing)\n"
        '         │     │  └─ no: request.headers["x-none"] '
        "(error: a field that the expression reads is missing)\n"
        "         │     └─ yes: source.port > 1024\n"
        "         │        └─ source.port (value is 4711)\n"
        f"         └─ yes: action execute {name}, {name} for 12.5000% of calls\n"
    )


@pytest.mark.usefixtures("place")
def test_json_has_every_step_with_its_place() -> None:
    text = f"""\
matcher_list:
  matchers:
  - predicate:
      single_predicate:
        input: {{name: i, typed_config: {{{HEADER}, header_name: x-user}}}}
        value_match: {{exact: bob}}
    on_match: {{action: {{name: bobs, typed_config: {{{SKIP}}}}}}}
"""
    at = "matcher_list.matchers[0]"
    call = "[{path: /shop.Cart/Add, headers: {x-user: bob}}]"
    assert json.loads(printed(match(text, call, "-o", "json"))) == [
        {
            "matched": True,
            "action": {
                "name": "bobs",
                "type": "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
                "text": "skip",
                "path": f"{at}.on_match.action",
                "place": "tree.yaml:7:16",
            },
            "noted": [],
            "steps": step(
                "list", "", "tree.yaml:1:1",
                step(
                    "branch 0", at, "tree.yaml:3:5",
                    step(
                        "header x-user is 'bob'", f"{at}.predicate.single_predicate", "tree.yaml:4:7",
                        why="value is 'bob'",
                    ),
                    step("action skip", f"{at}.on_match.action", "tree.yaml:7:16"),
                ),
            ),
        }
    ]  # fmt: skip


def step(text: str, path: str, place: str, *steps: Any, why: str = "") -> dict[str, Any]:
    return {"text": text, "matched": True, "why": why, "path": path, "place": place, "steps": list(steps)}


@pytest.mark.usefixtures("place")
def test_noted_actions_are_reported() -> None:
    tree = first_match(when(header("x-user").is_there(), then=noting(skip())))
    told = json.loads(printed(match(tree, CALL, "-o", "json")))
    assert (told["matched"], told["action"], told["noted"]) == (False, None, ["skip"])
    refused = match(composite(tree))
    assert refused.exit_code == 1
    assert (
        "keep_matching is not supported, because this filter runs one action for each call. Remove it."
    ) in refused.stderr


@pytest.mark.usefixtures("place")
def test_several_calls_are_numbered() -> None:
    tree = by_header("x-user", {"bob": skip()}, otherwise=execute(skip()))
    call = "- {path: /a/b, headers: {x-user: bob}}\n- {path: /a/b, side: client}\n"
    lines = printed(match(tree, call)).splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "0: skip", "1: execute envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
    ]  # fmt: skip


@pytest.mark.usefixtures("place")
def test_an_expression_may_be_a_text_and_is_checked_for_the_side() -> None:
    text = f"""\
matcherList:
  matchers:
  - predicate:
      singlePredicate:
        input: {{name: i, typedConfig: {{"@type": t/xds.type.matcher.v3.HttpAttributesCelMatchInput}}}}
        customMatch:
          name: c
          typedConfig:
            "@type": t/xds.type.matcher.v3.CelMatcher
            exprMatch:
              celExprString: connection.tls_version == 'TLSv1.3' && xds.route_metadata.filter_metadata['a']['b'] == 1
    onMatch: {{action: {{name: a, typedConfig: {{{SKIP}}}}}}}
"""
    found = match(text, "{path: /a/b, peer: {tlsVersion: TLSv1.3}, routeMetadata: {a: {b: 1}}}")
    assert found.exit_code == 0
    assert found.stdout.startswith("skip (a), at tree.yaml:12:15")
    assert re.findall(r"tree.yaml:11:\d+: (\w+): .*\(.*, (\w+)\)", found.stderr) == [("warning", "ExpressionUnchecked")]
    refused = match(text, "{path: /a/b, side: client}")
    assert refused.exit_code == 1
    assert re.findall(r"tree.yaml:11:\d+: error: (.{10}).*\(.*, (\w+)\)", refused.stderr) != []


@pytest.mark.usefixtures("place")
def test_the_certificate_of_a_peer_can_be_asked_for() -> None:
    der = b"a certificate"
    pem = f"-----BEGIN CERTIFICATE-----\\n{b64encode(der).decode()}\\n-----END CERTIFICATE-----"
    digest = "connection.sha256_peer_certificate_digest"
    tree = first_match(
        when(cel(f"{digest} == ''"), then=skip()),
        when(cel(f"{digest} == '{sha256(der).hexdigest()}'"), then=execute(skip())),
    )
    assert printed(match(tree)).startswith("skip")
    assert printed(match(tree, f'{{path: /a/b, peer: {{certificate: "{pem}"}}}}')).startswith("execute")


BAD_TREE: Final = f"""\
matcherList:
  matcherz: []
  matchers:
  - predicate:
      singlePredicate:
        input: {{name: i, typedConfig: {{{HEADER}, headerName: 5}}}}
        valueMatch: {{prefix: ""}}
    onMatch: {{action: {{typedConfig: {{name: x}}}}}}
  - predicate: {{notMatcher: {{singlePredicate: {{input: {{typedConfig: {{{HEADER}, headerName: X}}}}}}}}}}
    onMatch: {{action: {{name: a, typedConfig: {{{SKIP}, more: 1}}}}, matcher: {{}}, keepMatching: 1}}
  - on_match: []
matcherTree: {{}}
"""
BAD_CALL: Final = """\
path: Cart
side: sever
headers: {X: a, x-bin: '%', x-a: "a\\nb"}
peer: {port: 65536}
routeMetadata: {a: 1}
time: 1
"""


def problems(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^\w+\.yaml:(\d+):\d+: error: .*\((\S*), (\w+)\)$", text, re.MULTILINE)


@pytest.mark.usefixtures("place")
def test_every_mistake_of_a_tree_is_named_at_once() -> None:
    result = match(BAD_TREE)
    assert (result.exit_code, result.stdout) == (1, "")
    at = "matcherList.matchers"
    assert sorted(problems(result.stderr)) == sorted([
        ("2", "matcherList.matcherz", "FieldUnknown"),
        ("6", f"{at}[0].predicate.singlePredicate.input.typedConfig.headerName", "TypeMismatch"),
        ("7", f"{at}[0].predicate.singlePredicate.valueMatch.prefix", "MatcherEmpty"),
        ("8", f"{at}[0].onMatch.action.typedConfig.@type", "FieldRequired"),
        ("9", f"{at}[1].predicate.notMatcher.singlePredicate", "MatcherMissing"),
        ("9", f"{at}[1].predicate.notMatcher.singlePredicate.input.typedConfig.headerName", "NameInvalid"),
        ("10", f"{at}[1].onMatch.action.typedConfig.more", "FieldUnknown"),
        ("10", f"{at}[1].onMatch.matcher", "FieldInvalid"),
        ("10", f"{at}[1].onMatch.keepMatching", "TypeMismatch"),
        ("11", f"{at}[2].on_match", "TypeMismatch"),
        ("11", f"{at}[2].predicate", "Missing"),
        ("12", "matcherTree", "FieldInvalid"),
    ])  # fmt: skip


@pytest.mark.usefixtures("place")
def test_every_mistake_of_a_call_is_named_at_once() -> None:
    tree = first_match(when(header("x-user").is_("alice"), then=skip()))
    assert problems(match(tree, BAD_CALL).stderr) == [
        ("2", "side", "FieldInvalid"),
        ("4", "peer.port", "FieldInvalid"),
        ("6", "time", "FieldUnknown"),
    ]
    better = BAD_CALL.replace("sever", "client").replace("65536", "1").replace("time: 1\n", "")
    assert problems(match(tree, better).stderr) == [
        ("1", "path", "FieldInvalid"),
        ("3", "headers.X", "FieldInvalid"),
        ("3", "headers.x-bin", "FieldInvalid"),
        ("3", "headers.x-a", "FieldInvalid"),
        ("4", "peer", "FieldInvalid"),
        ("5", "routeMetadata.a", "FieldInvalid"),
    ]


ODD: Final = {
    "": "The file is empty. Add a document.",
    "[]": "Expected a mapping, got a list.",
    "a": "Expected a mapping, got",
    "{": "This is not YAML: ",
    "{}": "The matcher is empty. Set matcher_list or matcher_tree.",
    "xdsMatcher: {}": "The matcher is empty. Set matcher_list or matcher_tree.",
    "extensionConfig: {}": "The filter has no tree and would allow every call. Set xds_matcher.",
    "xds_matcher: []": "Expected a mapping, got a list.",
    "matcherTree: {input: {typedConfig: a}}": "Expected a mapping, got",
    "matcherTree: {exactMatchMap: {map: [a]}}": "Expected a mapping, got a list.",
    "matcherTree: {exactMatchMap: {map: {a: {}}}}": "on_match is empty. Set matcher or action.",
    f"onNoMatch: {{action: {{typedConfig: {{{SKIP}}}}}}}": "The matcher is empty. Set matcher_list or matcher_tree.",
}


@pytest.mark.parametrize(("text", "why"), ODD.items())
@pytest.mark.usefixtures("place")
def test_what_is_no_tree_is_refused_in_a_sentence(text: str, why: str) -> None:
    result = match(text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert why in result.stderr


@pytest.mark.usefixtures("place")
def test_an_action_that_is_not_known_has_a_warning_and_is_found() -> None:
    text = f"""\
matcherTree:
  input: {{typedConfig: {{{HEADER}, headerName: x-user}}}}
  exactMatchMap: {{map: {{bob: {{action: {{name: b, typedConfig: {{"@type": x/my.own.Action, a: [1]}}}}}}}}}}
"""
    result = match(text)
    assert (result.exit_code, result.stdout.partition(",")[0]) == (0, "Action (b)")
    assert (
        "authplane does not know the type 'x/my.own.Action', so it does not check the fields. Ignore this if intended."
        in result.stderr
    )


def test_a_file_that_is_not_there_is_a_mistake_of_usage(place: Path) -> None:
    result = CliRunner().invoke(build_app(), ["match", "none.yaml", "--request", "none.yaml"])
    assert (result.exit_code, result.stdout) == (2, "")
