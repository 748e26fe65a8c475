"""Selects the channel and the metadata of a call: filters run, and the route names the cluster.

It is the same for threads and for event loops, which differ only in how they wait for the steps that it yields.
"""

from collections.abc import Callable, Generator, Hashable
from typing import Any, NamedTuple, TypeAlias

import grpc

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Code, Effect, Outcome, Proceed, Stop
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.runtime.calls.call_gate import concluded, edits_of
from authplane.dataplane.runtime.calls.verdicts import VERDICTS, judge_at_once, judge_on
from authplane.dataplane.runtime.channels.call_tokens import NO_TOKENS, AwaitToken, needed_by, tokens_from
from authplane.dataplane.runtime.channels.channel_plan import (
    BUSY,
    CLOSED,
    Backends,
    BoundCall,
    Naming,
    Plan,
    as_metadata,
    shortest,
)
from authplane.dataplane.runtime.channels.current_plan import CurrentPlan
from authplane.dataplane.runtime.connections.channel_pool import ChannelPool, PooledChannel
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError
from authplane.dataplane.runtime.connections.jwt_calls import LATE
from authplane.dataplane.runtime.connections.side_channels import CallEndedError


@dataclass(frozen=True, slots=True)
class AwaitPlan:
    """Step: wait until it is known what calls obey; the outcome is the plan, or how the call fails."""

    patient: bool


@dataclass(frozen=True, slots=True)
class TakeChannel:
    """Step: begin to use the channel of a key; the outcome is None if all are closed."""

    key: Hashable


Step: TypeAlias = AwaitPlan | TakeChannel | AwaitToken | Effect
Binding: TypeAlias = Generator[Step, Any, BoundCall | Stop]


class AskedCall(NamedTuple):
    """What a program asks of a call that concerns where it goes."""

    path: str
    metadata: Any
    credentials: grpc.CallCredentials | None
    patient: bool
    """Whether it waits until the channel is ready."""


def bind_call(naming: Naming, current: CurrentPlan, pool: ChannelPool, asked: AskedCall, deadline: Deadline) -> Binding:
    """Run the filters of a call, and return its channel and metadata, or its failure."""
    plan = current.for_call(patient=asked.patient) or (yield AwaitPlan(asked.patient))
    if isinstance(plan, Stop):
        return plan
    judged = yield from _judge(plan, naming.call(asked.path, as_metadata(asked.metadata), deadline.left()))
    if isinstance(judged, Stop) or deadline.left() == 0:
        return judged if isinstance(judged, Stop) else LATE
    routed, verdict = judged
    backends = plan.backends(routed.cluster)
    taken = backends if isinstance(backends, Stop) else (yield from _take(pool, backends))
    if isinstance(taken, Stop):
        return taken
    pooled, release = taken
    try:
        sources = needed_by(pooled, asked.credentials)
        tokens = (yield from tokens_from(sources)) if sources else NO_TOKENS
    except BaseException:
        release()
        raise
    left = deadline.left()
    if isinstance(tokens, Stop) or left == 0:
        release()
        return tokens if isinstance(tokens, Stop) else LATE
    return BoundCall(pooled, release, shortest(left, routed.longest), verdict.metadata, edits_of(verdict), tokens)


def _judge(plan: Plan, call: Call) -> Generator[Effect, Outcome, tuple[Routed, Proceed] | Stop]:
    """Run the filters of a call's route."""
    routed = plan.rules.route(call)
    flow = run_chain(routed.filters, call)
    begun = judge_at_once(flow)
    try:
        verdict = concluded(begun if isinstance(begun, VERDICTS) else (yield from judge_on(flow, begun)), routed)
    except CallEndedError:
        return LATE
    return verdict if isinstance(verdict, Stop) else (routed, verdict)


def _take(
    pool: ChannelPool, backends: Backends
) -> Generator[TakeChannel, PooledChannel | None, tuple[PooledChannel, Callable[..., None]] | Stop]:
    """Begin to use the first channel that is not known to be broken; if all are, the first."""
    chosen = backends.keys[0]
    try:
        for key in backends.keys if len(backends.keys) > 1 else ():
            pooled = pool.take_now(key) or (yield TakeChannel(key))
            broken = pooled is None or pool.is_broken(pooled)
            if pooled is not None:
                pool.release(key, pooled)
            if not broken:
                chosen = key
                break
        pooled = pool.take_now(chosen) or (yield TakeChannel(chosen))
    except CredentialsUnusableError as error:
        return Stop(code=Code.UNAVAILABLE, message=str(error))
    if pooled is None:
        return CLOSED
    if backends.are_busy(pooled):
        pool.release(chosen, pooled)
        return BUSY
    return pooled, lambda *_: pool.release(chosen, pooled)
