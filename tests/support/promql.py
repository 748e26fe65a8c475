"""The expressions of the dashboard and of the alert rules, and what they ask for."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml
from tests.support.pages import ROOT

FOLDER: Final = ROOT / "deploy" / "observability"

_MATCHERS: Final = re.compile(r"\{[^}]*\}")
_LABEL: Final = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_TEXT: Final = re.compile(r'"[^"]*"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_OFFSET: Final = re.compile(r"\boffset\s+\w+")
_NAME: Final = re.compile(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\w*\s*\()")
_WORDS: Final = {"and", "or", "unless", "bool"}


class Asked(NamedTuple):
    """A metric that an expression asks for, and the labels by which it is chosen."""

    metric: str
    labels: frozenset[str]


def asked_in(expression: str) -> Iterator[Asked]:
    """Return what an expression asks for; it must be one that Prometheus can read."""
    plain = _OFFSET.sub("", _RANGE.sub("", _GROUPING.sub("", expression)))
    blank = _MATCHERS.sub(lambda found: " " * len(found[0]), plain)
    for name in _NAME.finditer(blank):
        if name[0] in _WORDS:
            continue
        matchers = _MATCHERS.match(plain, name.end())
        text = _TEXT.sub('""', matchers[0]) if matchers else ""
        yield Asked(name[0], frozenset(_LABEL.findall(text)))


def grouping_labels(expression: str) -> set[str]:
    """Return the labels by which an expression groups or joins."""
    return {label for found in _GROUPING.findall(expression) for label in re.findall(r"\w+", found)}


def dashboard() -> Mapping[str, Any]:
    """Read the dashboard."""
    read: Mapping[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return read


def panels() -> list[Mapping[str, Any]]:
    """Return the panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[Mapping[str, Any]]:
    """Return the alert rules."""
    read = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
    return [rule for group in read["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Return every expression, by where it is."""
    shown = {f"panel {panel['id']}{each['refId']}": each["expr"] for panel in panels() for each in panel["targets"]}
    return shown | {f"alert {alert['alert']}": alert["expr"] for alert in alerts()}
