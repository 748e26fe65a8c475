"""Commands and their options, from the command line itself."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

import click
from tools.gen_docs.tables import escaped, table

from authplane.cli.main import build_app

_SHARING = "authserver "
"""The commands of this group have options in common, which are listed once."""


@cache
def commands() -> Mapping[str, click.Command]:
    """Return the commands that users see, by name: ``dev token``."""
    return MappingProxyType(dict(_commands(build_app(), "")))


def _commands(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def command_index() -> str:
    """Return a table of all commands."""
    return table(("command", "what it does"), (_index_row(name, command) for name, command in commands().items()))


def _index_row(name: str, command: click.Command) -> tuple[str, str]:
    page, _, rest = name.partition(" ")
    anchor = "#" + _slug(_title(name, command)) if rest else ""
    return f"[`{_title(name, command)}`]({page}.md{anchor})", escaped((command.help or "").partition("\n")[0])


def _title(name: str, command: click.Command) -> str:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    return " ".join(["authplane", name, *(str(each.metavar) for each in arguments)])


def _slug(words: str) -> str:
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def command_text(name: str) -> str:
    """Return the description of a command, its arguments and its options."""
    command = commands()[name]
    context = click.Context(command, info_name=f"authplane {name}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    paragraphs = [" ".join(each.split()) for each in (command.help or "").split("\n\n")]
    told = [escaped(each) for each in paragraphs if not each.startswith("Example:")]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    listed = [f"`{each.metavar}`: {escaped(str(getattr(each, 'help', '')))}" for each in arguments]
    shared = _shared() if name.startswith(_SHARING) else frozenset()
    own = [each for each in _options(command) if _flag(each) not in shared]
    beside = (
        "\n\nThe command also has the "
        "[options of every authorization service](#options-of-every-authorization-service)."
    )
    options = _option_table(own) if own else ""
    return "\n\n".join([f"```text\n{usage}\n```", *told, *listed, options]).strip() + (beside if shared else "")


def shared_options() -> str:
    """Return the options that the authorization services share."""
    command = next(each for name, each in commands().items() if name.startswith(_SHARING))
    return _option_table([each for each in _options(command) if _flag(each) in _shared()])


@cache
def _shared() -> frozenset[str]:
    """Return the options that mean the same for every authorization service."""
    groups = [
        {(_flag(each), each.help) for each in _options(command)}
        for name, command in commands().items()
        if name.startswith(_SHARING)
    ]
    return frozenset(flag for flag, _ in set.intersection(*groups))


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _option_table(options: list[click.Option]) -> str:
    return table(("option", "default", "meaning"), (_option_row(each) for each in options))


def _option_row(option: click.Option) -> tuple[str, str, str]:
    values = ""
    if isinstance(option.type, click.Choice):
        values = (
            " One of "
            + ", ".join(f"`{option.type.normalize_choice(each, None)}`" for each in option.type.choices)
            + "."
        )
    flags = ", ".join(f"`{flag}`" for flag in sorted((*option.opts, *option.secondary_opts), key=len))
    return flags, _default(option), escaped(option.help or "") + values


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len)


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag:
        return "on" if option.default is True else "off"
    given = option.default
    if given is None or isinstance(given, list | tuple) or not str(given) or "UNSET" in repr(given).upper():
        return ""
    return f"`{given:g}`" if isinstance(given, float) else f"`{given}`"
