"""The decision log against the answers of checks."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.documents import BANK
from tests.soak.judge import Answer, Window

_CHECKED: Final = {200, 401, 403}
"""What the policy server answers; everything else is the word of Envoy."""
_MARGIN: Final = 1.0
"""Seconds before a kill in which lines may wait for their writer."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What the log has, and what it should have."""

    answered: int
    """Checks that were answered while nobody killed the writer of their lines."""
    missing: int
    """Those of them without a line."""
    lost: int
    """Lines that the log says are missing."""
    unreadable: int


def compare(folder: Path, answers: Iterable[Answer], windows: Sequence[Window]) -> Logged:
    """Look for the line of every check; all requests to one target are checks, and their paths have their numbers."""
    numbers, lost, unreadable = set(), 0, 0
    for path in folder.glob("decisions.log*"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                unreadable += 1
                continue
            if record.get("event") == "lines lost":
                lost += record["count"]
            elif (number := str(record.get("path", "")).rpartition("/")[2]).isdigit():
                numbers.add(int(number))
    kills = [Window(each.name, each.spoils, each.begun - _MARGIN, each.ended) for each in windows if each.loses_lines]
    checks = [
        each.number
        for each in answers
        if each.kind.target == BANK and each.status in _CHECKED and not any(kill.meets(each) for kill in kills)
    ]
    missing = sum(number not in numbers for number in checks)
    return Logged(len(checks), missing, lost, unreadable)
