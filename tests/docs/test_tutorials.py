"""A reader who follows a tutorial from its top sees what it shows."""

from pathlib import Path

import pytest
from tests.docs.tutorial_shell import File, Started, Typed, follow, moves
from tests.support.pages import ROOT, name_of, read

TUTORIALS = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.name != "index.md")

EXAMPLE = """# Say hello

Write the program:

```python
# hello.py
print("hello")
```

And `who.json`:

```json
{"name": "ann"}
```

Start what takes its time, then ask:

```sh
sleep 0.1 && touch there
```

```console
$ ls there
there
$ NAME=ann
$ python hello.py && echo $NAME && cat who.json
hello
…
{"name": "ann"}
```
"""


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_a_tutorial_works_as_it_is_shown(page: Path, tmp_path: Path) -> None:
    assert "\n".join(follow(read(page), tmp_path)) == ""


def test_a_tutorial_is_taken_apart() -> None:
    assert list(moves(EXAMPLE)) == [
        File("hello.py", '# hello.py\nprint("hello")\n'),
        File("who.json", '{"name": "ann"}\n'),
        Started("sleep 0.1 && touch there"),
        Typed("ls there", "there\n"),
        Typed("NAME=ann", ""),
        Typed("python hello.py && echo $NAME && cat who.json", 'hello\n…\n{"name": "ann"}\n'),
    ]


@pytest.mark.real
def test_different_output_is_reported(tmp_path: Path) -> None:
    assert follow(EXAMPLE, tmp_path) == []
    [wrong, _] = follow(EXAMPLE.replace("hello\n…", "goodbye\n…"), tmp_path)
    assert wrong == '$ python hello.py && echo $NAME && cat who.json\nhello\nann\n{"name": "ann"}\n'


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_a_tutorial_shows_what_to_do_and_what_comes_of_it(page: Path) -> None:
    found = list(moves(read(page)))
    assert [type(each) for each in found].count(Typed) >= 5
    assert [each.command for each in found if isinstance(each, Typed) and each.output.strip() == "…"] == []
