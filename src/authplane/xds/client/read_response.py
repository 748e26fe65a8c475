"""Reads the resources of a response: those that can be used, and all problems of the others."""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any, Final

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.xds.client.client_messages import Item, Response
from authplane.xds.client.resource_names import parse_name
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source

_MOST_TEXT: Final = 256 * 1024
"""Characters of a refusal: servers do not take messages of any size."""


@dataclass(slots=True, kw_only=True)
class Judgement:
    """What a response contains of what was requested."""

    type_url: str
    wanted: Collection[str]
    unchanged: set[str] = field(default_factory=set)
    valid: dict[str, tuple[object, bytes]] = field(default_factory=dict)
    """The value and its bytes, by name."""
    invalid: dict[str, str] = field(default_factory=dict)
    """All problems as text, by name."""
    complaints: list[str] = field(default_factory=list)
    """Every problem, for the server."""

    @property
    def delivered(self) -> set[str]:
        """The names of what can be used."""
        return self.unchanged | self.valid.keys()

    @property
    def refusal(self) -> str | None:
        """The error to send to the server; None if all is well."""
        return shorten("; ".join(self.complaints), _MOST_TEXT) if self.complaints else None

    def add(self, place: str, item: Item, read: Decoded[object] | Invalid) -> None:
        """Add a resource that was read, unless no watcher wants it."""
        written = read.name if read.name is not None else item.name or None
        if written is None:
            self._complain(place, read)
            return
        parsed = parse_name(written, self.type_url)
        if parsed is None:
            self.complaints.append(f"{place}: '{printable(written)}' is not a resource name of this type [NameInvalid]")
        elif (name := parsed.text) not in self.wanted:
            return
        elif self._has(name):
            self.complaints.append(f"{printable(name)}: occurs twice in one response [Duplicate]")
        elif isinstance(read, Decoded):
            self.valid[name] = (read.value, item.body)
        else:
            self.invalid[name] = "; ".join(map(str, read.problems))
            self._complain(printable(name), read)

    def keep(self, name: str) -> bool:
        """Add a resource that is in use already; tell whether that is all there is to it."""
        if name in self.valid or name in self.invalid:
            return False
        self.unchanged.add(name)
        return True

    def _has(self, name: str) -> bool:
        return name in self.valid or name in self.unchanged or name in self.invalid

    def _complain(self, where: str, read: Decoded[object] | Invalid) -> None:
        problems = read.problems if isinstance(read, Invalid) else ()
        self.complaints.extend(f"{where}: {problem}" for problem in problems)


def judge(
    kind: ResourceType[Any], response: Response, source: Source, wanted: Collection[str], known: Mapping[bytes, str]
) -> Judgement:
    """Read every resource of a response; those without a watcher are ignored, valid or not.

    ``known`` has the names of resources in use by their bytes: an unchanged resource is not read again.
    """
    found = Judgement(type_url=kind.type_url, wanted=wanted)
    for place, item in enumerate(response.items):
        if item.type_url != kind.type_url:
            found.complaints.append(
                f"resources[{place}]: has another type, '{printable(item.type_url)}' [TypeMismatch]"
            )
        elif (name := known.get(item.body)) is None or not found.keep(name):
            found.add(f"resources[{place}]", item, kind.decode(item.body, source))
    return found
