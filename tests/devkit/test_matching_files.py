"""Files of trees: whatever is in them, there is a tree or there are problems with places, and never a fault of ours."""

import json
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import pytest
from google.protobuf import json_format
from tests.support.matching.trees import NAMES, PACKAGES, Trees

from authplane.core.problems import Severity
from authplane.dataplane.filters.calls import Side
from authplane.devkit.matching.call_files import parse_calls
from authplane.devkit.matching.match_records import match_line, match_record, match_tree
from authplane.devkit.matching.matching_files import parse_tree_file
from authplane.devkit.strict_files import parse_text
from authplane.grpc.matching import all_of, by_prefix, cel, composite, execute, first_match, header, skip, when

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1.5, 10**30, "", "a", "é", "\n", [], {}, [None], {"": {}}, {"@type": ""}, {"@type": "a/b"},
    {"@type": "t/google.protobuf.StringValue", "value": 1}, {"@type": "t/google.protobuf.Any", "value": {"@type": 1}},
    {"@type": "t/google.protobuf.Struct", "value": {"a": [1]}},
    {"@type": "t/xds.type.matcher.v3.CelMatcher", "exprMatch": {"celExprString": "1 +"}},
)  # fmt: skip
CALL: Final = {
    "path": "/a/b",
    "headers": {"x-a": ["a"], "x-bin": "AA"},
    "peer": {"port": 1},
    "routeMetadata": {"a": {}},
}


def trees() -> list[Any]:
    made = Trees(41, names=NAMES)
    rules = all_of(header("x-a").is_("a"), cel("request.headers['x-a'] == 'a'"))
    tree = by_prefix("x-a", {"": first_match(when(rules, then=skip()))}, otherwise=execute(skip(), skip(), sample=0.5))
    messages = [made.tree(PACKAGES[0].Matcher(), depth=3) for _ in range(10)]
    return [json_format.MessageToDict(each) for each in (composite(tree), tree, *messages)]


def spoiled(value: Any, chance: Random) -> Any:
    """Change something somewhere."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(ODD)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [spoiled(each, chance) if index == place else each for index, each in enumerate(value)]
    key = chance.choice([*value])
    match chance.randrange(8):
        case 0:
            return {name: each for name, each in value.items() if name != key}
        case 1:
            return {**value, chance.choice((key + "x", "matcherTree", "@type", "name")): chance.choice(ODD)}
        case _:
            return {**value, key: spoiled(value[key], chance)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_spoiled_tree_is_read_or_refused(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 (the same cases every time)
    good = trees()[seed]
    calls = parse_calls(parse_text("call", json.dumps(CALL).encode()), NOW).calls
    for _ in range(60):
        text = parse_text("tree", json.dumps(spoiled(good, chance)).encode())
        file = parse_tree_file(text, chance.choice([*Side]))
        refused = [each for each in file.findings if each.problem.severity is Severity.ERROR]
        assert (file.tree is None) == bool(refused)
        assert all(each.place.file == "tree" for each in file.findings)
        found = file.explain(calls[0])
        if found is not None:
            assert match_line(file, found)
            assert match_tree(found)
            assert json.dumps(match_record(file, found))


def test_a_spoiled_call_is_read_or_refused() -> None:
    chance = Random(1)  # noqa: S311 (the same cases every time)
    for _ in range(300):
        found = parse_calls(parse_text("call", json.dumps(spoiled(CALL, chance)).encode()), NOW)
        assert bool(found.calls) != bool(found.findings)
