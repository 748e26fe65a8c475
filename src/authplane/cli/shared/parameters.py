"""Declares command parameters in function signatures and builds click commands from them.

click alone starts in a quarter of the time of a library that derives commands from signatures by itself
(docs/decisions/0026-install-what-one-needs.md). A parameter's annotation has its type and an `Option` or `Argument`.
"""

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import click

_Function = TypeVar("_Function", bound=Callable[..., None])

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""What every command shares."""


@dataclass(frozen=True, slots=True, init=False)
class Option:
    """An option; without flags it is named like its parameter."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None
    min: float | None
    max: float | None
    show_default: bool

    def __init__(
        self,
        *flags: str,
        help: str,  # noqa: A002 (as click calls it)
        metavar: str | None = None,
        min: float | None = None,  # noqa: A002 (as click calls it)
        max: float | None = None,  # noqa: A002 (as click calls it)
        show_default: bool = True,
    ) -> None:
        given = {"flags": flags, "help": help, "metavar": metavar, "min": min, "max": max, "show_default": show_default}
        for name, value in given.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A positional argument; one with a default may be left out, and one that is a list may be repeated."""

    metavar: str
    help: str
    existing_file: bool = False


class Formatter(click.HelpFormatter):
    """Writes help with bold headings and coloured names, where there are colours."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(click.style(heading, bold=True))

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names and what they mean."""
        super().write_dl([(click.style(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    """A command whose help is coloured."""

    context_class = _Context


class Group(click.Group):
    """Commands under one name."""

    context_class = _Context
    command_class = Command


def group(name: str, sentence: str) -> Group:
    """Return a group without commands, which prints its help unless a command is named."""
    return Group(name, help=sentence, no_args_is_help=True, context_settings=SETTINGS)


def command(commands: click.Group, name: str) -> Callable[[_Function], _Function]:
    """Add a function to a group as a command."""

    def add(function: _Function) -> _Function:
        commands.add_command(build_command(function, name))
        return function

    return add


def build_command(function: Callable[..., None], name: str, *, hidden: bool = False) -> Command:
    """Make the command that a function is; its docstring is the help."""
    signature = inspect.signature(function, eval_str=True)
    return Command(
        name,
        callback=function,
        params=[_build_parameter(each) for each in signature.parameters.values()],
        help=inspect.getdoc(function),
        hidden=hidden,
        context_settings=SETTINGS,
    )


def _build_parameter(parameter: inspect.Parameter) -> click.Parameter:
    if get_origin(parameter.annotation) is not Annotated:
        raise TypeError(f"parameter {parameter.name} is neither an Option nor an Argument")
    declared_type, declared, *_ = get_args(parameter.annotation)
    required = parameter.default is inspect.Parameter.empty
    default = {} if required else {"default": _shown(parameter.default)}
    match declared:
        case Option():
            return _build_option(parameter.name, _without_none(declared_type), declared, default)
        case Argument(metavar=metavar, help=text, existing_file=existing):
            path = click.Path(path_type=Path, exists=existing, dir_okay=not existing)
            declared_type = _without_none(declared_type)
            if get_origin(declared_type) is list:
                kind = path if get_args(declared_type)[0] is Path else click.STRING
                return click.Argument(
                    [parameter.name],
                    type=kind,
                    metavar=metavar,
                    help=text,
                    nargs=-1,
                    required=required,
                    callback=_as_list,
                )
            kind = path if declared_type is Path else click.STRING
            return click.Argument([parameter.name], type=kind, metavar=metavar, help=text, **default)
        case _:
            raise TypeError(f"parameter {parameter.name} is neither an Option nor an Argument")


def _build_option(name: str, declared_type: Any, declared: Option, default: dict[str, Any]) -> click.Option:
    flags = declared.flags or (f"--{name.replace('_', '-')}",)
    if declared_type is bool:
        return click.Option([name, *flags], is_flag=True, help=declared.help, **default)
    several = get_origin(declared_type) is list
    return click.Option(
        [name, *flags],
        type=_kind(get_args(declared_type)[0] if several else declared_type, declared),
        multiple=several,
        required=not default,
        callback=_as_list if several else None,
        metavar=declared.metavar,
        help=declared.help,
        show_default=declared.show_default and bool(default.get("default")),
        **default,
    )


def _shown(default: Any) -> Any:
    """Return a default as it is typed."""
    return default.value if isinstance(default, Enum) else default


def _kind(declared_type: Any, declared: Option) -> click.ParamType[Any]:
    """Return how click reads a type."""
    if declared_type is int:
        least, most = (None if each is None else int(each) for each in (declared.min, declared.max))
        return click.IntRange(least, most)
    if declared_type is float:
        return click.FloatRange(declared.min, declared.max)
    if declared_type is Path:
        return click.Path(path_type=Path)
    if declared_type is str:
        return click.STRING
    if isinstance(declared_type, type) and issubclass(declared_type, Enum):
        return _OneOf(declared_type)
    raise TypeError(f"{declared_type!r} is not a type of command-line parameters")


class _OneOf(click.Choice[Enum]):
    """A member of an enumeration, written as its value."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return super().normalize_choice(choice.value if isinstance(choice, Enum) else choice, ctx)


def _as_list(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...] | None) -> list[str] | None:
    return list(given) if given else None


def _without_none(declared_type: Any) -> Any:
    if get_origin(declared_type) in {Union, types.UnionType}:
        [declared_type] = (each for each in get_args(declared_type) if each is not type(None))
    return declared_type
