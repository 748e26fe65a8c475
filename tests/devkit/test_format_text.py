"""`authplane fmt`: one form, the same meaning, every comment."""

import random
from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from authplane.devkit.formatting.format_text import Formatted, format_text

CASES = {
    "the order of the first keys": (
        "# head\nspec: {}\nkind: A\n# about the name\nmetadata: {name: x}\ntype: T\napiVersion: v1\n",
        "# head\napiVersion: v1\nkind: A\n# about the name\nmetadata: {name: x}\nspec: {}\ntype: T\n",
    ),
    "other documents keep their order": ("spec: 1\nkind: 2\n", "spec: 1\nkind: 2\n"),
    "two spaces for each level": ("a:\n    b:\n        c: 1\n", "a:\n  b:\n    c: 1\n"),
    "lists stand in the column of their key": ("a:\n  - b\n  -   c: 1\n      d: 2\n", "a:\n- b\n- c: 1\n  d: 2\n"),
    "lists in lists": ("a:\n  -  - b\n     -  c\n  - - - d\n", "a:\n- - b\n  - c\n- - - d\n"),
    "one space after a colon": ("a:   1   # one\nb:    {c:  d}\n", "a: 1   # one\nb: {c:  d}\n"),
    "spaces at the end of lines": ("a: 1  \n#  x \t\nb:   \n", "a: 1\n#  x\nb:\n"),
    "blank lines": ("\n\na: 1\n\n\n\nb: 2\n\n", "a: 1\n\nb: 2\n"),
    "comments move with what they are about": (
        "a:\n    # b\n    b: 1\n    # end of a\n# c\nc:\n      - d\n      # e\n      - e\n",
        "a:\n  # b\n  b: 1\n  # end of a\n# c\nc:\n- d\n# e\n- e\n",
    ),
    "a text keeps its lines": (
        "a:\n    b: |\n          one\n\n            two  \n    c: 1\n",
        "a:\n  b: |\n    one\n\n      two  \n  c: 1\n",
    ),
    "blank lines that count stay": ("a: |+\n  x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"),
    "blank lines that do not count go": ("a: |\n  x\n\n\nb: 1\n", "a: |\n  x\n\nb: 1\n"),
    "a given indentation": ("a:\n    - |1\n      x\n     y\n", "a:\n- |1\n  x\n y\n"),
    "quoted text over lines": (
        'a:\n    b: "one\n       two \\\n       three"\n',
        'a:\n  b: "one\n    two \\\n    three"\n',
    ),
    "plain text over lines": ("a:\n      b: one\n       two\n", "a:\n  b: one\n    two\n"),
    "brackets over lines": ("a:\n    b: [\n      c,\n    ]\n", "a:\n  b: [\n    c,\n  ]\n"),
    "a value on its own line": ("a:\n      b\nc:\n -\n      d: 1\n", "a:\n  b\nc:\n-\n  d: 1\n"),
    "several documents": (
        "---  # one\nb:\n    c: 1\n\n---\n\nd:   1\n...\n",
        "---  # one\nb:\n  c: 1\n---\nd: 1\n...\n",
    ),
    "line ends of Windows": ("a: 1\r\nb:\r\n    c: |\r\n      x\r\n", "a: 1\nb:\n  c: |\n    x\n"),
    "a last line without its end": ("a: 1", "a: 1\n"),
    "nothing": ("", ""),
    "comments alone": ("  # x\n\n\n#y", "# x\n\n#y\n"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_text_gets_its_one_form(case: tuple[str, str]) -> None:
    text, want = case
    assert format_text(text) == Formatted(want)
    assert format_text(want) == Formatted(want)


KEPT = {
    "a key with a question mark": "? a\n: b\n",
    "a value after ---": "--- {a:\n1}\n",
    "directives": "%YAML 1.2\n---\na: 1\n",
    "an end that belongs to the text": "a: |\n   x",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_what_cannot_be_moved_stays_as_it_is(text: str) -> None:
    formatted = format_text(text)
    assert formatted.text == text
    assert formatted.kept


# --- Random documents, in random forms

SCALARS = st.one_of(
    st.sampled_from(
        ["x", "two words", "a: b", "# no comment", "- x", "", "true", "1", "é", "a\nb", "x\n", " y\n z\n\n", "'", '"']
    ),
    st.integers(-5, 5),
    st.booleans(),
    st.none(),
)
NAMES = st.sampled_from(["apiVersion", "kind", "metadata", "spec", "name", "labels", "rules", "x y", "a-b"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, TREES, min_size=1, max_size=5)


class Writer:
    """Writes a value as somebody might who has no form."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines: list[str] = []
        self.comments = 0
        self.after_text = False
        """What comes next may belong to the text above it."""

    def block(self, value: Any, column: int) -> None:
        items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
        for name, each in items:
            self._trivia(column)
            head = " " * column + ("-" if name is None else f"{self._key(name)}:")
            if isinstance(each, dict | list) and each and self.chance.random() < 0.8:
                self._nested(head, name is None, each, column)
            else:
                self._leaf(head, each, column)

    def _nested(self, head: str, in_list: bool, value: Any, column: int) -> None:
        if in_list and self.chance.random() < 0.6:
            gap = " " * self.chance.randint(1, 3)
            before, comments = len(self.lines), self.comments
            self.block(value, len(head) + len(gap))
            if self.lines[before].lstrip().startswith(("#",)) or not self.lines[before].strip():
                del self.lines[before:]
                self.comments = comments
                self.lines.append(head + " " + self._flow(value))
                return
            self.lines[before] = head + gap + self.lines[before].lstrip()
            return
        self.lines.append(head + self._tail())
        least = 0 if isinstance(value, list) and not in_list else 1
        self.block(value, column + self.chance.randint(least, 5))

    def _leaf(self, head: str, value: Any, column: int) -> None:
        gap = " " * self.chance.randint(1, 3)
        if isinstance(value, str) and value.strip() and value == value.lstrip() and self.chance.random() < 0.5:
            self._text(head + gap, value, column + self.chance.randint(1, 5))
            return
        self.lines.append(head + gap + self._flow(value) + self._tail())

    def _text(self, head: str, value: str, column: int) -> None:
        stripped = value.rstrip("\n")
        ends = len(value) - len(stripped)
        sign = {0: "-", 1: ""}.get(ends, "+")
        self.lines.append(f"{head}|{sign}{self._tail()}")
        self.lines += [" " * column + line if line else "" for line in stripped.split("\n")]
        self.lines += [""] * (ends - 1)
        self.after_text = True

    def _flow(self, value: Any) -> str:
        match value:
            case dict():
                return "{" + ", ".join(f"{self._key(name)}: {self._flow(each)}" for name, each in value.items()) + "}"
            case list():
                return "[" + ", ".join(map(self._flow, value)) + "]"
            case str():
                return yaml.safe_dump(value, default_style='"', width=10**6, allow_unicode=True).strip()
            case _:
                return yaml.safe_dump(value).splitlines()[0]

    def _key(self, name: str) -> str:
        return self.chance.choice([name, f'"{name}"', f"'{name}'"])

    def _trivia(self, column: int) -> None:
        after_text, self.after_text = self.after_text, False
        for _ in range(0 if after_text else self.chance.choice([0, 0, 0, 1, 2])):
            self.lines.append(
                self.chance.choice(["", "", " " * (column + self.chance.randint(0, 2)) + self._comment()])
            )

    def _tail(self) -> str:
        return self.chance.choice(["", "", "  ", f"  {self._comment()}"])

    def _comment(self) -> str:
        self.comments += 1
        return f"# comment-{self.comments}:"


def comments_of(text: str) -> Counter[str]:
    return Counter(word for word in text.split() if word.startswith("comment-"))


@pytest.mark.slow
@pytest.mark.requirement("Y01")
@settings(max_examples=150, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=3), st.integers(0, 2**32))
def test_no_form_changes_the_meaning_and_no_comment_is_lost(documents: list[dict[str, Any]], seed: int) -> None:
    texts = []
    for document in documents:
        writer = Writer(random.Random(seed))  # noqa: S311 (a form, not a secret)
        writer.block(document, 0)
        texts.append("\n".join(writer.lines) + "\n")
    text = "---\n".join(texts)
    assert list(yaml.safe_load_all(text)) == documents, "the writer writes what it means"
    formatted = format_text(text)
    assert list(yaml.safe_load_all(formatted.text)) == documents
    assert comments_of(formatted.text) == comments_of(text)
    assert format_text(formatted.text) == formatted, "the form of the form is the form"
    assert formatted.kept == (), "each of these can be moved"
    ranks = {"apiVersion": 0, "kind": 1, "metadata": 2, "spec": 3}
    for document in yaml.safe_load_all(formatted.text):
        if {"apiVersion", "kind"} <= document.keys():
            order = [ranks.get(name, 4) for name in document]
            assert order == sorted(order)
    assert not any(line.lstrip().startswith("#") and line != line.rstrip() for line in formatted.text.splitlines())
