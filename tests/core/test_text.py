import pytest

from authplane.core.text import name_some, shorten


@pytest.mark.parametrize(
    ("text", "want"), [("", ""), ("abc", "abc"), ("abcd", "abc…"), ("abcdefgh", "abc…"), ("äöü", "äöü")]
)
def test_a_text_is_cut_after_so_many_characters_and_says_so(text: str, want: str) -> None:
    assert shorten(text, 3) == want


@pytest.mark.parametrize(
    ("names", "want"), [((), ""), (("a",), "a"), (("a", "b"), "a, b"), (("a", "b", "c", "d"), "a, b and 2 more")]
)
def test_the_first_of_many_names_are_named(names: tuple[str, ...], want: str) -> None:
    assert name_some(names, 2) == want
