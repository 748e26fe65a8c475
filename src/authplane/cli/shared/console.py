"""Consoles for text with markup."""

from rich.console import Console
from rich.text import Text

# Print the content of files unchanged: no emoji for ``:100:``, no line breaks within ``file:line:column``.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def print_hanging(lead: str, text: str, console: Console = out) -> None:
    """Print markup; on a terminal, further lines of a long text begin below the end of ``lead``.

    Elsewhere it stays one line, for programs such as grep.
    """
    indent = Text.from_markup(lead).cell_len
    if not console.is_terminal or console.width - indent < _NARROWEST:
        console.print(f"{lead}{text}")
        return
    lines = Text.from_markup(text).wrap(console, console.width - indent)
    for number, line in enumerate(lines):
        line.rstrip()
        console.print(Text.assemble(Text.from_markup(lead) if number == 0 else " " * indent, line))


_NARROWEST = 20
"""Minimum width of a text beside its lead."""
