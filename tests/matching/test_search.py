"""Trees that are made ready find what the others find."""

import pytest
from tests.support.matching.trees import NAMES, cases, kinds

from authplane.core.problems import Problems
from authplane.matching.explain_tree import explain
from authplane.matching.header_reader import header_reader
from authplane.matching.matcher_tree import Act, ListMatcher, Nested
from authplane.matching.tree_inputs import HeaderInput
from authplane.matching.tree_search import as_search
from authplane.matching.tree_wire import parse_tree


@pytest.mark.slow
def test_the_same_is_found() -> None:
    found = 0
    for message, requests in cases(11, 400, 10, keep_matching=False):
        tree = parse_tree(message, kinds(keep_matching=False), Problems())
        assert tree is not None
        search = as_search(tree)
        for request in requests:
            assert search(request) == explain(tree, request).action
            found += search(request) is not None
    assert found > 400


def test_headers_are_read_as_inputs_read_them() -> None:
    for _, requests in cases(3, 20, 10):
        for name in (*NAMES, "nothing"):
            read = header_reader(name)
            assert [read(each) for each in requests] == [HeaderInput(name).read(each) for each in requests]


def test_a_tree_that_keeps_matching_is_not_taken() -> None:
    inner: ListMatcher[object, str] = ListMatcher(branches=(), on_no_match=Act("a", keep_matching=True))
    for tree in (inner, ListMatcher(branches=(), on_no_match=Nested(inner))):
        with pytest.raises(ValueError, match="keep_matching"):
            as_search(tree)
