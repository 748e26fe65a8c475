"""A decision log that keeps its lines."""

import json
from typing import Any

from authplane.authserver.records.decision_record import Entry
from authplane.authserver.records.policy_record import entry_line


class Lines:
    """Keeps the lines of the decision log."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, line: Entry | str) -> None:
        self.texts.append(line if isinstance(line, str) else entry_line(line))

    @property
    def written(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts]

    def grounds(self) -> list[tuple[str, ...]]:
        """Return who decided and why, line by line."""
        return [
            tuple(line.get(key, "") for key in ("backend", "decision", "policy", "tool", "path"))
            for line in self.written
        ]
