"""Applies a response to the cache."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import Feature, XdsServer
from authplane.xds.client.client_messages import Report, Response
from authplane.xds.client.conversation import Topic
from authplane.xds.client.read_response import Judgement, judge
from authplane.xds.client.resource_cache import Entry, Held, Key, Setback, Standing
from authplane.xds.client.resource_names import parse_name
from authplane.xds.client.watch_events import Fault, Trouble
from authplane.xds.client.watched_types import ResourceType
from authplane.xds.server.client_text import clean_message

Entries: TypeAlias = Mapping[str, Entry]

_TAKEN_AWAY: Final = frozenset({5, 7})
"""NOT_FOUND and PERMISSION_DENIED: with these a server takes a resource away (gRFC A88)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A response and where it comes from."""

    kind: ResourceType[Any]
    response: Response
    server: XdsServer
    now: float
    word: Callable[[Trouble, Key, str], Fault]
    """Words a fault of a resource."""

    @property
    def strict(self) -> bool:
        """Whether what was in use is dropped when its data is at fault."""
        return Feature.FAIL_ON_DATA_ERRORS in self.server.features

    def setback(self, trouble: Trouble, name: str, words: str) -> Setback:
        """Word a fault of a resource that this response brings."""
        fault = self.word(trouble, Key(self.kind.type_url, name), words)
        return Setback(fault=fault, version=self.response.version, at=self.now)


def deliver(delivery: Delivery, topic: Topic, entries: Entries) -> str | None:
    """Bring a response into the entries of all that is wanted; return why it is refused, None if it is not.

    What is valid is used even if something else is not.
    """
    kind, response, server = delivery.kind, delivery.response, delivery.server
    judged = judge(kind, response, server, topic.names, _known(entries, server))
    _use(delivery, judged, entries)
    for name, text in judged.invalid.items():
        setback = delivery.setback(Trouble.INVALID, name, f"is invalid: {text}")
        entries[name].suffer(Standing.NACKED, setback, drop=delivery.strict)
    told = judged.delivered | judged.invalid.keys()
    told |= _heed(delivery, entries, told)
    if kind.full_set:
        _delete(delivery, entries, topic.answerable - told)
    for name in told:
        topic.awaited.pop(name, None)
    topic.answerable |= judged.delivered
    return judged.refusal


def _known(entries: Entries, server: XdsServer) -> Mapping[bytes, str]:
    return {
        entry.held.body: name
        for name, entry in entries.items()
        if entry.held is not None and entry.held.source == server
    }


def _use(delivery: Delivery, judged: Judgement, entries: Entries) -> None:
    version = delivery.response.version
    for name in judged.unchanged:
        held = entries[name].held
        if held is not None:
            entries[name].take(replace(held, version=version))
    for name, (value, body) in judged.valid.items():
        entries[name].take(Held(value=value, body=body, version=version, source=delivery.server, since=delivery.now))


def _heed(delivery: Delivery, entries: Entries, told: set[str]) -> set[str]:
    """Record what the server cannot send; a resource that it did send takes precedence."""
    reports = {_name_of(report, delivery.kind): report for report in delivery.response.reports}
    heeded = {name for name in reports if name in entries and name not in told}
    for name in heeded:
        words = f"cannot be sent by the server: {clean_message(reports[name].message)}"
        setback = delivery.setback(Trouble.REPORTED, name, words)
        drop = delivery.strict and reports[name].code in _TAKEN_AWAY
        entries[name].suffer(Standing.RECEIVED_ERROR, setback, drop=drop)
    return heeded


def _delete(delivery: Delivery, entries: Entries, absent: Iterable[str]) -> None:
    """Record what is gone. A resource that was never there may still come: a time limit applies to it."""
    for name in absent:
        if entries[name].held is not None:
            setback = delivery.setback(Trouble.NOT_FOUND, name, "was deleted on the server")
            entries[name].suffer(Standing.DOES_NOT_EXIST, setback, drop=delivery.strict)


def _name_of(report: Report, kind: ResourceType[Any]) -> str:
    parsed = parse_name(report.name, kind.type_url)
    return report.name if parsed is None else parsed.text
