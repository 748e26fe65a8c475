"""Every help text is written in the same way: an imperative sentence, examples, options as nouns or imperatives."""

import re
from collections.abc import Iterator

import click
import pytest

from authplane.cli.main import build_app

IMPERATIVES = frozenset({
    "Allow", "Answer", "Authenticate", "Authorize", "Check", "Compile", "Count", "Create", "Decide", "Evaluate", "Find",
    "Format", "Print", "Run", "Serve", "Show", "Test", "Validate", "Write",
})  # fmt: skip
"""The first words of commands; a new command may bring its own."""
NOT_FIRST = frozenset(
    {"a", "an", "the", "how", "where", "what", "who", "which", "whether", "when", "if", "with", "for"}
)
"""Words that neither a noun phrase nor an imperative of an option's help starts with here."""
AVOIDED = re.compile(r"\b(authorization server|whoever|is asked|is told|how many|how long|stands?|holds?)\b")


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from walk(found, f"{name} {each}")


COMMANDS = dict(walk(build_app(), "authplane"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_in_one_imperative_sentence(name: str) -> None:
    first = (COMMANDS[name].help or "").partition("\n")[0]
    assert first.split()[0] in IMPERATIVES, first
    assert first.endswith("."), first
    assert ". " not in first, first


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example(name: str) -> None:
    assert f"Example: {name}" in (COMMANDS[name].help or "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_an_option_starts_with_a_noun_or_an_imperative_and_is_a_sentence(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if getattr(parameter, "hidden", False):
            continue
        text = getattr(parameter, "help", "") or ""
        assert re.match(r"[A-Z]", text), (parameter.name, text)
        assert text.split()[0].lower() not in NOT_FIRST, (parameter.name, text)
        assert text.endswith("."), (parameter.name, text)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_text_uses_the_words_of_the_glossary(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(parameter, "help", "") or "" for parameter in command.params)]
    assert [found[0] for text in texts for found in AVOIDED.finditer(text)] == []
