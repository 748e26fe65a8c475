"""What the proxies of each replica accepted: replicas write it into annotations, the leader adds it up."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from authplane.controlplane.graph.model.programming import Answered, NoProxy, NotServed, Programming, ServerAnswers
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.xds.server.served_types import TypeUrl, XdsName

ANNOTATION: Final = "authplane.dev/acknowledgements"
LARGEST: Final = 128 * 1024
"""Bytes of an annotation; the API server takes 256 KiB of annotations."""
_LONGEST_MESSAGE: Final = 300
_MOST_REFUSED: Final = 100
_TYPES: Final = {each.name: each for each in TypeUrl}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the proxies of one replica say about the configuration of that replica."""

    programming: Programming
    versions: Mapping[TypeUrl, str]
    """The version of all resources of a type that the replica serves."""
    whole_types: frozenset[TypeUrl] = frozenset()
    """Types of which all resources count as pending, because there was no room to name them."""
    oldest: Release | None = CURRENT
    """The oldest release of Envoy that is connected; None if it is unknown or too old for native rules."""


def render_report(report: Report) -> str:
    """Return a report as an annotation, within the limit of its size."""
    programming = report.programming
    proxies = programming if isinstance(programming, Answered) else None
    servers = ServerAnswers() if isinstance(programming, NotServed) else programming.servers
    record: dict[str, Any] = {
        "versions": {each.name: version for each, version in sorted(report.versions.items())},
        "envoy": str(report.oldest) if report.oldest is not None else "",
        "proxies": proxies is not None,
        "pending": _names(proxies.pending) if proxies else [],
        "wholeTypes": sorted(each.name for each in report.whole_types),
        "refused": _refused(proxies.refused) if proxies else [],
        "servers": {
            "asked": _names(servers.asked),
            "pending": _names(servers.pending),
            "refused": _refused(servers.refused),
        },
    }
    text = _dump(record)
    if len(text) > LARGEST:
        types = {kind for kind, _ in record["pending"]} | set(record["wholeTypes"])
        text = _dump(record | {"pending": [], "wholeTypes": sorted(types)})
    if len(text) > LARGEST:
        text = _dump(record | {"pending": [], "wholeTypes": sorted(_TYPES), "servers": {}})
    return text


def parse_report(text: str) -> Report | None:
    """Read an annotation; None if it is not one of ours."""
    try:
        record = json.loads(text)
        servers = record["servers"]
        answers = ServerAnswers(
            asked=_read_names(servers.get("asked", ())),
            pending=_read_names(servers.get("pending", ())),
            refused=_read_refused(servers.get("refused", ())),
        )
        answered = Answered(
            pending=_read_names(record["pending"]), refused=_read_refused(record["refused"]), servers=answers
        )
        return Report(
            programming=answered if record["proxies"] else NoProxy(answers),
            versions={_TYPES[name]: str(version) for name, version in record["versions"].items()},
            whole_types=frozenset(_TYPES[name] for name in record["wholeTypes"]),
            oldest=Release.parse(record["envoy"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        # Another release of this program may write something else.
        return None


def add_up(own: Report, others: Iterable[Report], names: Callable[[TypeUrl], Collection[XdsName]]) -> Report:
    """Return what all proxies say about the configuration of this replica.

    ``names`` are the resources of a type in it. Proxies of a replica that serves others of a type, such as one that has
    not seen a change yet, have not answered about any of that type.
    """
    programming, oldest = own.programming, own.oldest
    for each in others:
        if isinstance(each.programming, NotServed) or isinstance(programming, NotServed):
            continue
        programming = _sum(programming, _as_seen_here(each, own, names))
        if isinstance(each.programming, Answered):
            oldest = None if oldest is None or each.oldest is None else min(oldest, each.oldest)
    return Report(programming=programming, versions=own.versions, oldest=oldest)


def _as_seen_here(report: Report, own: Report, names: Callable[[TypeUrl], Collection[XdsName]]) -> NoProxy | Answered:
    differing = {each for each in TypeUrl if report.versions.get(each) != own.versions.get(each)} | report.whole_types
    pending = frozenset(name for each in differing for name in names(each))
    match report.programming:
        case Answered(pending=known, refused=refused, servers=servers):
            return Answered(pending=known | pending, refused=refused, servers=_server_view(servers, pending))
        case NoProxy(servers):
            return NoProxy(_server_view(servers, pending))
        case NotServed():
            return NoProxy()


def _server_view(servers: ServerAnswers, pending: frozenset[XdsName]) -> ServerAnswers:
    asked = servers.asked
    return ServerAnswers(asked=asked, pending=servers.pending | (pending & asked), refused=servers.refused)


def _sum(one: NoProxy | Answered, two: NoProxy | Answered) -> NoProxy | Answered:
    servers = ServerAnswers(
        asked=one.servers.asked | two.servers.asked,
        pending=one.servers.pending | two.servers.pending,
        refused={**two.servers.refused, **one.servers.refused},
    )
    answered = [each for each in (two, one) if isinstance(each, Answered)]
    if not answered:
        return NoProxy(servers)
    return Answered(
        pending=frozenset(name for each in answered for name in each.pending),
        refused={name: words for each in answered for name, words in each.refused.items()},
        servers=servers,
    )


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def _names(names: Iterable[XdsName]) -> list[list[str]]:
    return sorted([kind.name, name] for kind, name in names)


def _refused(refused: Mapping[XdsName, str]) -> list[list[str]]:
    found = sorted([kind.name, name, shorten(words, _LONGEST_MESSAGE)] for (kind, name), words in refused.items())
    return found[:_MOST_REFUSED]


def _read_names(listed: Iterable[Any]) -> frozenset[XdsName]:
    return frozenset((_TYPES[kind], str(name)) for kind, name in listed)


def _read_refused(listed: Iterable[Any]) -> dict[XdsName, str]:
    return {(_TYPES[kind], str(name)): str(words) for kind, name, words in listed}
