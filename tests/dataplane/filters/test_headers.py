import re
import time
from typing import Final, NamedTuple

import pytest
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2 as rules_pb
from envoy.config.core.v3 import base_pb2 as pb
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.driven_calls import regex

from authplane.core.problems import Problem, Problems
from authplane.dataplane.filters.calls import Change, Metadata, Mutation
from authplane.dataplane.filters.headers import (
    LONGEST,
    Drafts,
    Edits,
    Review,
    Rules,
    Unfit,
    edited,
    is_protected,
    may_change,
    mutated,
    name_fault,
    replaced,
    value_fault,
    without,
)
from authplane.dataplane.filters.wire import parse_metadata, parse_mutations, parse_rules

OVERWRITE: Final = pb.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD

# --- What is well-formed


class Name(NamedTuple):
    key: str
    fit: bool = False


NAMES: Final = {
    "lower case, digits and the three signs": Name("x-1_2.z", fit=True),
    "the longest": Name("a" * LONGEST, fit=True),
    "empty": Name(""),
    "too long": Name("a" * (LONGEST + 1)),
    "upper case": Name("X-User"),
    "host": Name("host"),
    "a pseudo header": Name(":path"),
    "one of gRPC": Name("grpc-timeout"),
    "the content type": Name("content-type"),
    "a blank": Name("x user"),
    "not ASCII": Name("x-ü"),
    "a line break": Name("x-user\n"),
}


@pytest.mark.requirement("HM-1")
@pytest.mark.parametrize("case", NAMES.values(), ids=NAMES.keys())
def test_a_configuration_may_add_only_headers_with_such_names(case: Name) -> None:
    problems = Problems()
    found = parse_metadata([pb.HeaderValue(key=case.key, value="v")], problems)
    assert (found, len(problems.errors)) == (((case.key, "v"),), 0) if case.fit else ((), 1)


class Value(NamedTuple):
    header: pb.HeaderValue
    want: str | bytes | None


VALUES: Final = {
    "a text": Value(pb.HeaderValue(key="x", value="a b~"), "a b~"),
    "raw bytes of a text": Value(pb.HeaderValue(key="x", raw_value=b"raw"), "raw"),
    "raw bytes win": Value(pb.HeaderValue(key="x", value="text", raw_value=b"raw"), "raw"),
    "nothing is empty": Value(pb.HeaderValue(key="x"), ""),
    "the longest": Value(pb.HeaderValue(key="x", value="a" * LONGEST), "a" * LONGEST),
    "too long": Value(pb.HeaderValue(key="x", value="a" * (LONGEST + 1)), None),
    "too long in raw bytes": Value(pb.HeaderValue(key="x-bin", raw_value=b"a" * (LONGEST + 1)), None),
    "a line break": Value(pb.HeaderValue(key="x", value="a\r\nb: c"), None),
    "a NUL": Value(pb.HeaderValue(key="x", raw_value=b"\0"), None),
    "not ASCII": Value(pb.HeaderValue(key="x", value="é"), None),
    "raw bytes that are not text": Value(pb.HeaderValue(key="x", raw_value=b"\xff\xfe"), None),
    "raw bytes of a binary header are what they are": Value(
        pb.HeaderValue(key="x-bin", raw_value=b"\0\1\xff"), b"\0\1\xff"
    ),
    "raw bytes that look like base64 stay": Value(pb.HeaderValue(key="x-bin", raw_value=b"AAEC"), b"AAEC"),
    "the text of a binary header is as on the wire": Value(
        pb.HeaderValue(key="x-bin", value="AAH_".replace("_", "/")), b"\0\1\xff"
    ),
    "padding does not matter": Value(pb.HeaderValue(key="x-bin", value="AAE="), b"\0\1"),
    "nor its absence": Value(pb.HeaderValue(key="x-bin", value="AAE"), b"\0\1"),
    "a text that is not base64": Value(pb.HeaderValue(key="x-bin", value="!!"), None),
    "an empty binary header": Value(pb.HeaderValue(key="x-bin"), b""),
}


@pytest.mark.requirement("HM-2")
@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES.keys())
def test_values_of_headers(case: Value) -> None:
    problems = Problems()
    found = parse_metadata([case.header], problems)
    assert found == (() if case.want is None else ((case.header.key, case.want),))
    assert bool(problems) is (case.want is None)

    drafts = parse_mutations([pb.HeaderValueOption(header=case.header, append_action=OVERWRITE)], unset_appends=False)
    review = Review(Rules())
    taken = review.mutations(drafts)
    want = () if case.want is None else (Mutation(case.header.key, case.want, Change.OVERWRITE_OR_ADD),)
    assert (taken, review.unfit is not None) == (want, case.want is None)


# --- What an option means


def option(action: int = 0, *, append: bool | None = None, keep_empty: bool = False) -> pb.HeaderValueOption:
    message = pb.HeaderValueOption(header=pb.HeaderValue(key="X-User", value="v"), keep_empty_value=keep_empty)
    message.append_action = action  # type: ignore[assignment]
    if append is not None:
        message.append.value = append
    return message


class Action(NamedTuple):
    message: pb.HeaderValueOption
    overwrites: Change | None
    appends: Change | None


ACTIONS: Final = {
    "unset": Action(option(), Change.OVERWRITE_OR_ADD, Change.APPEND),
    "unset beside append: true": Action(option(append=True), Change.APPEND, Change.APPEND),
    "unset beside append: false": Action(option(append=False), Change.OVERWRITE_OR_ADD, Change.APPEND),
    "add if absent": Action(option(1), Change.ADD_IF_ABSENT, Change.ADD_IF_ABSENT),
    "overwrite or add": Action(option(2), Change.OVERWRITE_OR_ADD, Change.OVERWRITE_OR_ADD),
    "append does not count beside another action": Action(
        option(2, append=True), Change.OVERWRITE_OR_ADD, Change.OVERWRITE_OR_ADD
    ),
    "overwrite if exists": Action(option(3), Change.OVERWRITE_IF_EXISTS, Change.OVERWRITE_IF_EXISTS),
    "keep_empty_value does not count": Action(option(1, keep_empty=True), Change.ADD_IF_ABSENT, Change.ADD_IF_ABSENT),
    "an action that nobody knows": Action(option(4), None, None),
    "no header": Action(pb.HeaderValueOption(), None, None),
}


@pytest.mark.requirement("HM-4")
@pytest.mark.parametrize("case", ACTIONS.values(), ids=ACTIONS.keys())
def test_append_actions(case: Action) -> None:
    for unset_appends, want in ((False, case.overwrites), (True, case.appends)):
        (draft,) = parse_mutations([case.message], unset_appends=unset_appends)
        if want is None:
            assert isinstance(draft, Unfit)
        else:
            assert draft == Mutation("x-user", "v", want)


@pytest.mark.requirement("HM-4")
def test_a_header_that_becomes_empty_is_kept() -> None:
    assert mutated((("x", "1"),), (Mutation("x", "", Change.OVERWRITE_OR_ADD),)) == (("x", ""),)


# --- Rules


@pytest.mark.requirement("HM-5", "EA-7")
def test_without_rules_everything_but_protected_names_may_change() -> None:
    names = ("x-user", "authorization", ":path", ":x", "host", "grpc-timeout", "te", "content-type", "hosts")
    assert [name for name in names if may_change(Rules(), name)] == ["x-user", "authorization", "hosts"]


class Ruled(NamedTuple):
    rules: Rules
    allowed: str
    """Which of the names a, b, ab may change, with blanks between them."""


RULES: Final = {
    "disallow_all beats an expression that allows": Ruled(Rules(disallow_all=True, allow=regex(".*")), ""),
    "disallow beats allow": Ruled(Rules(disallow=regex("a"), allow=regex("a|b")), "b"),
    "allow alone closes the rest": Ruled(Rules(allow=regex("a")), "a"),
    "disallow alone leaves the rest open": Ruled(Rules(disallow=regex("a")), "b ab"),
    "expressions match whole names": Ruled(Rules(allow=regex("a.")), "ab"),
}


@pytest.mark.requirement("HM-5")
@pytest.mark.parametrize("case", RULES.values(), ids=RULES.keys())
def test_rules(case: Ruled) -> None:
    assert [name for name in ("a", "b", "ab") if may_change(case.rules, name)] == case.allowed.split()


@pytest.mark.requirement("HM-5")
def test_rules_are_read_and_what_does_not_count_is_ignored() -> None:
    message = rules_pb.HeaderMutationRules()
    message.allow_all_routing.value = message.disallow_system.value = message.allow_envoy.value = True
    assert parse_rules(message, Problems()) == Rules()
    message.disallow_all.value = message.disallow_is_error.value = True
    message.allow_expression.regex, message.disallow_expression.regex = "a.*", "b"
    want = Rules(disallow_all=True, disallow_is_error=True, allow=regex("a.*"), disallow=regex("b"))
    assert parse_rules(message, Problems()) == want


@pytest.mark.requirement("HM-5")
def test_an_expression_that_is_none_is_a_problem() -> None:
    message, problems = rules_pb.HeaderMutationRules(), Problems()
    message.allow_expression.regex, message.disallow_expression.regex = "(", ""
    parse_rules(message, problems)
    assert [problem.path for problem in problems] == [("disallow_expression", "regex"), ("allow_expression", "regex")]
    assert all(isinstance(problem, Problem) for problem in problems)


@pytest.mark.requirement("HM-6")
def test_what_is_not_allowed_is_skipped_or_spoils_the_whole() -> None:
    drafts: Drafts = [Mutation("a", "1"), Mutation("b", "1")]
    review = Review(Rules(disallow=regex("a")))
    assert (review.mutations(drafts), review.removals(["a", "b"]), review.unfit) == (
        (Mutation("b", "1"),),
        ("b",),
        None,
    )
    review = Review(Rules(disallow=regex("a"), disallow_is_error=True))
    review.mutations(drafts)
    assert review.unfit == Unfit("header 'a' must not be changed")


@pytest.mark.requirement("HM-7")
def test_breaking_a_rule_counts_even_if_nothing_would_change() -> None:
    rules = Rules(disallow=regex("a"), disallow_is_error=True)
    review = Review(rules)
    review.removals(["a"])
    assert review.unfit is not None
    review = Review(rules)
    review.mutations([Mutation("a", "1", Change.OVERWRITE_IF_EXISTS)])
    assert review.unfit is not None


PROTECTED: Final = (":scheme", ":method", ":path", ":authority", "host", "grpc-status", "content-type", "te")


@pytest.mark.requirement("E34")
@pytest.mark.parametrize("name", PROTECTED)
def test_a_protected_header_is_left_as_it_is_or_fails_the_check_where_disallowing_is_an_error(name: str) -> None:
    review = Review(Rules())
    assert review.mutations([Mutation(name, "evil")]) == ()
    assert review.removals([name.upper()]) == ()
    assert review.unfit is None
    changing, removing = Review(Rules(disallow_is_error=True)), Review(Rules(disallow_is_error=True))
    changing.mutations([Mutation(name, "evil")])
    removing.removals([name])
    assert changing.unfit == removing.unfit == Unfit(f"header '{name}' must not be changed")


# --- Against an independent model


NAMES_IN_USE: Final = ("a", "b", "ab", "c-bin", "host", ":path")
names = st.sampled_from(NAMES_IN_USE)


def pair_of(name: str) -> st.SearchStrategy[tuple[str, str | bytes]]:
    value: st.SearchStrategy[str | bytes] = st.binary(max_size=2) if name.endswith("-bin") else st.sampled_from("123")
    return value.map(lambda made: (name, made))


pairs = names.flatmap(pair_of)
mutations = st.builds(lambda pair, change: Mutation(pair[0], pair[1], change), pairs, st.sampled_from(Change))
expressions = st.none() | st.sampled_from(["a", "b", "a.*", ".*", "c-bin|b"])


def model(
    metadata: Metadata, changes: list[Mutation], removals: list[str], allowed: set[str]
) -> dict[str, list[object]]:
    """Keep a list of values for each name, one step after the other."""
    values: dict[str, list[object]] = {}
    for key, value in metadata:
        values.setdefault(key, []).append(value)
    for each in changes:
        if each.key not in allowed:
            continue
        old = values.get(each.key, [])
        changed: dict[Change, list[object]] = {
            Change.APPEND: [*old, each.value],
            Change.ADD_IF_ABSENT: old or [each.value],
            Change.OVERWRITE_OR_ADD: [each.value],
            Change.OVERWRITE_IF_EXISTS: [each.value] if old else [],
        }
        if changed[each.change]:
            values[each.key] = changed[each.change]
    return {key: found for key, found in values.items() if key not in removals or key not in allowed}


@pytest.mark.slow
@pytest.mark.requirement("HM-8", "HM-5")
@settings(max_examples=300, deadline=None)
@given(
    metadata=st.lists(pairs, max_size=6),
    changes=st.lists(mutations, max_size=6),
    removals=st.lists(names, max_size=3),
    ruled=st.tuples(expressions, expressions, st.booleans()),
)
def test_edits_do_what_a_model_does(
    metadata: list[tuple[str, str | bytes]],
    changes: list[Mutation],
    removals: list[str],
    ruled: tuple[str | None, str | None, bool],
) -> None:
    allow, disallow, everything = ruled
    rules = Rules(
        disallow_all=everything, allow=regex(allow) if allow else None, disallow=regex(disallow) if disallow else None
    )
    review = Review(rules)
    edits = Edits(mutations=review.mutations(list(changes)), removals=review.removals(removals))
    assert review.unfit is None
    found: dict[str, list[object]] = {}
    for key, value in edited(tuple(metadata), edits):
        found.setdefault(key, []).append(value)
    allowed = {
        name
        for name in NAMES_IN_USE
        if name not in {"host", ":path"}
        and not everything
        and not (disallow and re.fullmatch(disallow, name))
        and (allow is None or re.fullmatch(allow, name))
    }
    assert found == model(tuple(metadata), changes, removals, allowed)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_of_an_option_raise(data: bytes) -> None:
    try:
        message = pb.HeaderValueOption.FromString(data)
    except DecodeError:
        return
    review = Review(Rules())
    taken = review.mutations(parse_mutations([message], unset_appends=False))
    assert (review.unfit is None) or taken == ()


def test_many_changes_take_little_time() -> None:
    names = [f"k{number}" for number in range(20_000)]
    edits = Edits(
        mutations=tuple(Mutation(name, "v", Change.OVERWRITE_OR_ADD) for name in names),
        removals=tuple(f"r{number}" for number in range(20_000)),
    )
    before = time.process_time()
    assert len(edited((), edits)) == len(names)
    # In proportion to the square of their number it was twenty seconds; it is a hundredth of one.
    assert time.process_time() - before < 5


# --- Limits and names, one by one


@pytest.mark.parametrize("name", [*"abcdefghijklmnopqrstuvwxyz0123456789_.-"])
def test_a_name_has_each_of_these_characters(name: str) -> None:
    assert name_fault(name) == ""


@pytest.mark.parametrize("name", [*" !\"#$%&'()*+,/:;<=>?@[\\]^`{|}~AZ\x00\t\r\n\x7f", "\u00e9"])
def test_a_name_has_none_of_these_characters(name: str) -> None:
    assert name_fault(f"a{name}") != ""


def test_a_name_and_a_value_have_16_kib_at_most() -> None:
    assert name_fault("a" * 16_384) == value_fault("x", "a" * 16_384) == value_fault("x-bin", b"a" * 16_384) == ""
    assert name_fault("a" * 16_385) == "the header name is longer than 16384 bytes"
    assert value_fault("x", "a" * 16_385) == "the value of 'x' is longer than 16384 bytes"
    assert value_fault("x-bin", b"a" * 16_385) == "the value of 'x-bin' is longer than 16384 bytes"


def test_a_long_name_is_quoted_in_part() -> None:
    assert value_fault("a" * 80, "\n").startswith(f"the value of '{'a' * 80}' has")
    assert value_fault("a" * 81, "\n").startswith(f"the value of '{'a' * 80}…' has")


@pytest.mark.parametrize("name", ["host", "content-type", "te", ":path", ":authority", ":x", "grpc-timeout", "grpc-"])
def test_headers_of_grpc_and_http_cannot_be_changed(name: str) -> None:
    assert is_protected(name)
    assert not may_change(Rules(), name)


@pytest.mark.parametrize("name", ["hosts", "x-host", "grpc", "x-grpc-a", "content-length", "tea", "authorization"])
def test_other_headers_may_be_changed(name: str) -> None:
    assert not is_protected(name)
    assert may_change(Rules(), name)


def test_a_header_is_replaced_or_taken_out_wherever_it_stands() -> None:
    metadata: Metadata = (("a", "1"), ("b", "2"), ("a", "3"))
    assert without(metadata, "a") == (("b", "2"),)
    assert without(metadata, "b") == (("a", "1"), ("a", "3"))
    assert without(metadata, "c") is metadata
    assert replaced(metadata, "a", "4") == (("b", "2"), ("a", "4"))
    assert replaced(metadata, "c", "4") == (*metadata, ("c", "4"))
