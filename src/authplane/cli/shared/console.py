"""Where commands print text with markup."""

from rich.console import Console

# What files say is printed as it is: no emoji for ``:100:``, no line breaks of ours within ``file:line:column``.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
