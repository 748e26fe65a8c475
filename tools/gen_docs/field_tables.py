"""Fields of kinds, from the annotations that their readers are made from."""

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from dataclasses import Field as DataclassField
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from tools.gen_docs.tables import rows, table
from tools.gen_schemas import descriptions

from authplane.resources.catalogue import KINDS
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Base64, Given, Length, Limit, Matches, OneNumberOf, OneOf, OneOrMany, Range
from authplane.resources.typed.shapes import shape_of

_RESOURCES: Final = Path(__file__).parents[2] / "docs" / "reference" / "resources"
_ANY: Final = "any value"
_SAME = re.compile(r"^- `(?P<here>[^`]+)`\s+has\s+the\s+same\s+fields\s+as\s+`[^`]+`", re.MULTILINE)
_ITEM = re.compile(r"^- `[^`]+`\s+has\s+the\s+same\s+fields\s+as\s.*(?:\n  .*)*", re.MULTILINE)


class Known(NamedTuple):
    """A field that a document may have: how it is treated and, if it is supported, its type and its docstring."""

    path: str
    treatment: str
    type: str = ""
    said: str = ""


def title_of(kind: type) -> str:
    """Return the heading of a kind; two versions of one kind that differ have their own."""
    return {"XAccessPolicy": "XAccessPolicy v1alpha1", "XAccessPolicyV0": "XAccessPolicy v0alpha0"}.get(
        kind.__name__, kind.__name__
    )


_UNUSED: Final = (
    "authplane does not use the following fields of this kind. See "
    "[how authplane treats fields](index.md#how-fields-are-treated)."
)
TREATMENTS: Final[Mapping[str, str]] = types.MappingProxyType(
    {"silent": "accepted silently", "ignored": "ignored with a warning", "refused": "refused with an error"}
)
"""How the pages name the treatment of a field that authplane does not use."""


def kinds_by_title() -> Mapping[str, type]:
    """Return the kinds that have a table, by its heading."""
    return {title_of(kind): kind for kind in KINDS.values()} | {"metadata": Meta}


def walk(kind: type, prefix: str = "") -> Iterator[Known]:
    """Return every field that a document may have."""
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    made = {each.name: each for each in fields(kind)}
    said = descriptions(kind)
    for name, (attribute, _) in shape.readers.items():
        if attribute == "metadata":
            continue
        path = f"{prefix}{name}"
        if name in shape.unused:
            yield Known(path, "ignored")
            continue
        inner, listed = _inner(hints[attribute])
        yield Known(path, "supported", _described(hints[attribute], made[attribute]), said.get(attribute, ""))
        if inner is not None:
            yield from walk(inner, f"{path}{'[]' if listed else ''}.")
    for treatment in ("silent", "ignored", "refused"):
        names: tuple[str, ...] = getattr(shape.upstream, treatment)
        yield from (Known(f"{prefix}{name}", treatment) for name in names)


def _inner(hint: Any) -> tuple[type | None, bool]:
    """Return the dataclass behind an annotation, and whether there is a list of it."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _inner(inside[0])
    if origin in {Union, types.UnionType}:
        return _inner(next(each for each in inside if each is not type(None)))
    if origin is tuple:
        return _inner(inside[0])[0], True
    if not isinstance(hint, type) or not is_dataclass(hint):
        return None, False
    return (hint, False) if fields(hint) or hasattr(hint, "UPSTREAM") else (None, False)


def _described(hint: Any, field: "DataclassField[Any]") -> str:
    """Return the type of a field in words, whether it is required, and its default."""
    default = _default(field)
    words = _type(hint, (), default)
    inner, _ = _inner(hint)
    if inner is not None and shape_of(inner).shorthand:
        words += " or text"
    if words == _ANY:
        return words
    if field.default is MISSING and field.default_factory is MISSING:
        return f"{words}, required"
    if default is None or default == "" or "(default)" in words:
        return words
    return f"{words}; default {f'`{default}`' if isinstance(default, str) else str(default).lower()}"


def _default(field: "DataclassField[Any]") -> Any:
    """Return the default of a field where a document could say it; objects have their own."""
    return field.default if isinstance(field.default, str | int) else None


def _type(hint: Any, limits: tuple[Limit, ...], default: Any) -> str:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(inside[0], (*limits, *inside[1:]), default)
    if origin in {Union, types.UnionType}:
        return _type(next(each for each in inside if each is not type(None)), limits, default)
    if origin is tuple:
        several = " ".join(["list", *(_length(each, "items") for each in limits if isinstance(each, Length))])
        return _type(inside[0], (), None) + " or list" if OneOrMany() in limits else several
    if origin is Mapping:
        return "base64 by name" if Base64() in limits else "text by name"
    if is_dataclass(hint):
        return "object"
    return _plain(hint, limits, default)


def _plain(hint: Any, limits: tuple[Limit, ...], default: Any) -> str:
    if Given() in limits:
        return _ANY
    words = {bool: "true or false", int: "number", str: "text"}[hint]
    for limit in limits:
        match limit:
            case Range(low, high):
                words = f"{low} to {high}"
            case Length(low, None) if low <= 1:
                pass
            case Length():
                words = f"{words}, {_length(limit, 'characters').removeprefix('of ')}"
            case OneOf(values) | OneNumberOf(values):
                shown = [f"`{each}` (default)" if each == default else f"`{each}`" for each in values if each != ""]
                words = ", ".join([*shown[:-2], " or ".join(shown[-2:])])
            case Matches(_, example, what):
                words = (
                    "text such as " + " or ".join(f"`{each}`" for each in example.split(" or "))
                    if what == "a name"
                    else what
                )
            case _:
                pass
    return words


def _length(limit: Length, units: str) -> str:
    if limit.high is None:
        return f"of at least {limit.low} {units if limit.low > 1 else units[:-1]}"
    return (
        f"of at most {limit.high} {units}"
        if (limit.low <= 1 and units == "characters") or not limit.low
        else (f"of {limit.low} to {limit.high} {units}")
    )


def field_tables(title: str, kept: str) -> str:
    """Return the fields of a kind: supported ones as a table, the others as lists. Effects and references are kept."""
    kind = kinds_by_title()[title]
    elsewhere = [found["here"] for found in _SAME.finditer(kept)]
    known = [
        each
        for each in walk(kind, "metadata." if title == "metadata" else "")
        if not any(each.path.startswith((f"{here}.", f"{here}[")) for here in elsewhere)
    ]
    effects = {cells[0].strip("`"): cells[2] for cells in rows(kept) if len(cells) == 3}
    supported = [each for each in known if each.treatment == "supported"]
    written = [(f"`{each.path}`", each.type, effects.get(each.path) or each.said) for each in supported]
    treated = list(_treated(known))
    items = _ITEM.findall(kept)
    if treated and title != "metadata":
        items.append(f"\n{_UNUSED}\n" if items else f"{_UNUSED}\n")
    items += treated
    return table(("field", "type", "effect"), written) + ("\n\n" + "\n".join(items) if items else "")


def _treated(known: list[Known]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for each in known:
        above, _, name = each.path.rpartition(".")
        if each.treatment != "supported":
            groups.setdefault((each.treatment, above), []).append(name)
    for (treatment, above), names in groups.items():
        where = f"in `{above}`" if above else "at the top level"
        yield _wrapped(f"- {TREATMENTS[treatment]} {where}: " + ", ".join(f"`{name}`" for name in names))


def _wrapped(item: str) -> str:
    lines = [""]
    for word in item.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > 118:
            lines.append("  " + word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip(" ") if len(lines) == 1 else f"{lines[-1]} {word}"
    return "\n".join(lines)


def kind_index(kept: str) -> str:
    """Return a table of the kinds; what each is used for is kept."""
    used = {cells[0]: cells[2] for cells in rows(kept)}
    versions: dict[type, list[str]] = {}
    names: dict[type, str] = {}
    for (version, name), kind in KINDS.items():
        versions.setdefault(kind, []).append(version)
        names[kind] = name
    written = []
    for kind, found in versions.items():
        title = title_of(kind)
        anchor = "" if title == names[kind] else "#" + title.lower().replace(" ", "-")
        link = f"[{names[kind]}]({names[kind].lower()}.md{anchor})"
        written.append((link, ", ".join(f"`{each}`" for each in found), used.get(link, "")))
    return table(("kind", "API version", "used for"), written)
