"""Reads command lines as authplane would, without running them."""

from collections.abc import Sequence

import click

from authplane.cli.main import build_app


def parse(argv: Sequence[str]) -> dict[str, object]:
    """Return the parameters of a command line of authplane; raises `click.UsageError` for a wrong one."""
    command: click.Command = build_app()
    rest = list(argv)
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
    return command.make_context(command.name, rest).params
