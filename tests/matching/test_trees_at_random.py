"""Trees at random: we find what the model finds, and reading them is a matter of their meaning alone."""

from typing import Any, Final

import pytest
from tests.support.matching.trees import PACKAGES, Trees, cases, kinds, verdict
from tests.support.matching.unparse import unparsed

from authplane.core.problems import Problems
from authplane.matching.explain_tree import explain
from authplane.matching.matcher_tree import Matcher, with_actions
from authplane.matching.tree_inputs import HasHeaders
from authplane.matching.tree_search import as_search
from authplane.matching.tree_wire import parse_tree

TREES: Final = 1_050
REQUESTS: Final = 10


def parsed(message: Any) -> Matcher[HasHeaders, str]:
    problems = Problems()
    tree = parse_tree(message, kinds(), problems)
    assert tree is not None, list(problems)
    return tree


@pytest.mark.slow
@pytest.mark.requirement("UM-8")
@pytest.mark.requirement("UM-9")
@pytest.mark.requirement("UM-12")
@pytest.mark.requirement("UM-13")
@pytest.mark.requirement("UM-14")
@pytest.mark.requirement("UM-15")
@pytest.mark.requirement("UM-16")
def test_a_tree_leads_where_the_model_says() -> None:
    matched = 0
    for message, requests in cases(7, TREES, REQUESTS):
        tree = parsed(message)
        for request in requests:
            want = verdict(message, request)
            told = explain(tree, request)
            assert (told.noted, told.root.matched) == want, f"{message}\n{request}"
            assert told.action == (want.actions[-1] if want.matched else None)
            matched += want.matched
    assert TREES * REQUESTS * 0.2 < matched < TREES * REQUESTS * 0.9, "the cases are of one sort"


@pytest.mark.slow
@pytest.mark.requirement("UM-16")
def test_a_tree_that_is_ready_for_many_subjects_leads_where_the_model_says() -> None:
    for message, requests in cases(17, TREES // 3, REQUESTS, keep_matching=False):
        search = as_search(parsed(message))
        for request in requests:
            want = verdict(message, request)
            assert search(request) == (want.actions[-1] if want.matched else None), f"{message}\n{request}"


@pytest.mark.slow
@pytest.mark.requirement("UM-1")
def test_equal_trees_of_both_packages_are_equal_whatever_the_order_of_their_maps() -> None:
    for seed in range(200):
        one, other = (Trees(seed).tree(package.Matcher()) for package in PACKAGES)
        data = one.SerializeToString(deterministic=True)
        shuffled = PACKAGES[0].Matcher.FromString(data)
        trees = {parsed(one), parsed(other), parsed(shuffled)}
        assert len(trees) == 1
        assert parsed(Trees(seed + 1_000).tree(PACKAGES[0].Matcher())) not in trees


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_a_tree_that_is_written_and_read_again_is_the_same(package: Any) -> None:
    for message, requests in cases(13, 200, 5):
        tree = parsed(message)
        written = unparsed(tree, package.Matcher())
        assert parsed(package.Matcher.FromString(written.SerializeToString())) == tree
        assert [verdict(written, request) for request in requests] == [verdict(message, each) for each in requests]


@pytest.mark.slow
def test_other_actions_leave_a_tree_as_it_is() -> None:
    for message, requests in cases(11, 200, 5):
        tree = parsed(message)
        longer = with_actions(tree, lambda action: f"<{action}>")
        assert with_actions(longer, lambda action: action[1:-1]) == tree
        for request in requests:
            found, again = explain(tree, request), explain(longer, request)
            assert again.noted == tuple(f"<{each}>" for each in found.noted)
            assert again.root.matched is found.root.matched
