"""Consoles for text with markup."""

from rich.console import Console

# Print the content of files unchanged: no emoji for ``:100:``, no line breaks within ``file:line:column``.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
