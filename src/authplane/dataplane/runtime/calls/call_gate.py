"""The filters of a server's or channel's calls, and calls as filters see them."""

from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Connection, Metadata, Mutation, Proceed, Side, Verdict
from authplane.dataplane.filters.filter_metadata import NO_METADATA
from authplane.dataplane.filters.headers import mutated
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.runtime.calls.call_connection import CallConnection
from authplane.dataplane.runtime.calls.local_addresses import LocalAddresses

_FOR_EVER: Final = 1e9
"""Seconds to a deadline beyond which there is none: grpcio has a number for that, too."""


class Rules(Protocol):
    """The current rules."""

    @property
    def passes(self) -> bool:
        """Whether every call continues unchanged, so that no filter runs."""

    def route(self, call: Call) -> Routed:
        """Return the filters of a call and its route."""


@dataclass(slots=True, kw_only=True)
class Gate:
    """Runs filters before the handlers of a server. Rules are replaced as a whole: a call uses old or new ones."""

    rules: Rules
    addresses: LocalAddresses = field(default_factory=LocalAddresses)
    own_principal: str = ""
    """Who the server is, by its own certificate."""
    default_authority: str | None = None
    """The authority of calls if grpcio does not provide it."""
    secured: bool = True
    """Whether some of its connections may have TLS."""

    def call(self, method: str, context: Any, authority: str | None) -> Call:
        """Return a call as filters see it."""
        left = context.time_remaining()
        return new_call(
            _SERVER,
            method,
            authority or self.default_authority,
            tuple(context.invocation_metadata() or ()),
            None if left is None or left > _FOR_EVER else left,
            CallConnection(context, self.addresses, self.own_principal, self.secured),
            "",
        )


def new_call(  # noqa: PLR0913, PLR0917 (the fields of a call)
    side: Side,
    path: str,
    authority: str | None,
    metadata: Metadata,
    remaining: float | None,
    connection: Connection | None,
    target: str,
) -> Call:
    """Do what ``Call(...)`` does for a call that starts now, in less than half the time: every call has one."""
    call = _new(Call)
    _put_side(call, side)
    _put_path(call, path)
    _put_authority(call, authority)
    _put_metadata(call, metadata)
    _put_started(call, _now(UTC))
    _put_remaining(call, remaining)
    _put_connection(call, connection)
    _put_target(call, target)
    _put_route_metadata(call, NO_METADATA)
    _put_cluster_metadata(call, NO_METADATA)
    return call


_new: Final = object.__new__
_now: Final = datetime.now
# To find a member of an Enum takes as long as to call something.
_SERVER: Final = Side.SERVER
_put_side, _put_path, _put_authority, _put_metadata, _put_started, _put_remaining, _put_connection = (
    vars(Call)[name].__set__ for name in ("side", "path", "authority", "metadata", "started", "remaining", "connection")
)
_put_target, _put_route_metadata, _put_cluster_metadata = (
    vars(Call)[name].__set__ for name in ("target", "route_metadata", "cluster_metadata")
)


class Metadatum(NamedTuple):
    """A header as grpcio shows it to handlers."""

    key: str
    value: str | bytes


@dataclass(frozen=True, slots=True)
class ResponseEdits:
    """What changes in the initial metadata of a response."""

    additions: Metadata
    mutations: tuple[Mutation, ...]

    def apply(self, metadata: Metadata) -> Metadata:
        """Return the metadata with the changes made."""
        return mutated((*metadata, *self.additions), self.mutations)

    def shown(self, received: Metadata, *, failed: bool) -> Metadata:
        """Return what a client sees; nothing if the call failed and its server sent only how it ended."""
        return received if failed and not received else self.apply(received)


def edits_of(verdict: Proceed) -> ResponseEdits | None:
    """Return what changes in the response; None if nothing does."""
    if not verdict.response_metadata and not verdict.response_mutations:
        return None
    return ResponseEdits(verdict.response_metadata, verdict.response_mutations)


def concluded(verdict: Verdict, routed: Routed) -> Verdict:
    """Return what becomes of a call after its filters: some routes lead nowhere."""
    return routed.stop if routed.stop is not None and isinstance(verdict, Proceed) else verdict
