"""The least of a difference that still differs."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.differential.model import HOST, Draft, Framing, PolicySet, Rewrite, Sent, Token

MOST_ROUNDS: Final = 25
MOST_AT_ONCE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """One request, and all that decides about it."""

    policies: PolicySet
    sent: Sent

    @property
    def size(self) -> int:
        """How much there is to read."""
        return len(repr(self))


Differ = Callable[[Sequence[Small]], Awaitable[Sequence[bool]]]
"""Tells of each whether it still differs."""


async def shrunk(found: Small, differ: Differ) -> Small:
    """Leave out whatever can be left out; many are tried at once, since each round starts everything anew."""
    for _ in range(MOST_ROUNDS):
        tried = sorted(smaller(found), key=lambda each: each.size)[:MOST_AT_ONCE]
        differing = await differ(tried) if tried else ()
        left = [each for each, differs in zip(tried, differing, strict=True) if differs]
        if not left:
            return found
        found = left[0]
    return found


def smaller(found: Small) -> Iterator[Small]:
    """Return copies that have something less, each smaller than it was."""
    made = [replace(found, policies=each) for each in _smaller_sets(found.policies)]
    made += [replace(found, sent=each) for each in _smaller_requests(found.sent)]
    # What stands alone is most often all that it takes.
    made += [replace(found, policies=PolicySet(backend=(each,))) for each in found.policies.backend]
    known = set()
    for each in made:
        if each.size < found.size and repr(each) not in known:
            known.add(repr(each))
            yield each


def _smaller_sets(policies: PolicySet) -> Iterator[PolicySet]:
    yield replace(policies, weighted=False, rewrite=Rewrite.NOTHING, call_out=False)
    for name in ("gateway", "backend"):
        drafts: tuple[Draft, ...] = getattr(policies, name)
        for index, draft in enumerate(drafts):
            before, after = drafts[:index], drafts[index + 1 :]
            less: dict[str, Any] = {name: (*before, *after)}
            yield replace(policies, **less)
            for spec in reduced(draft.spec):
                smaller_one: dict[str, Any] = {name: (*before, replace(draft, spec=spec), *after)}
                yield replace(policies, **smaller_one)


def _smaller_requests(sent: Sent) -> Iterator[Sent]:
    for index in range(len(sent.headers)):
        yield replace(sent, headers=sent.headers[:index] + sent.headers[index + 1 :])
    yield replace(sent, token=None)
    yield replace(sent, certificate="")
    yield replace(sent, token=None, certificate="")
    yield replace(sent, host=HOST)
    yield replace(sent, path="/mcp")
    yield replace(sent, framing=Framing.LENGTH)
    yield replace(sent, http2=False, other_host="", trailers=(), pieces=1)
    yield replace(sent, trailers=())
    yield replace(sent, pieces=1)
    yield replace(sent, other_host="")
    yield replace(sent, http2=False)
    for body in _smaller_bodies(sent.body):
        yield replace(sent, body=body)
    for token in _smaller_tokens(sent.token):
        yield replace(sent, token=token)


def _smaller_tokens(token: Token | None) -> Iterator[Token]:
    if token is None:
        return
    yield replace(token, defect="", scheme="Bearer ", header={}, times={"exp": 3000})
    for name in ("claims", "header", "times"):
        for less in reduced(getattr(token, name)):
            yield replace(token, **{name: less})


def _smaller_bodies(body: bytes) -> Iterator[bytes]:
    yield b""
    yield body.strip()
    try:
        value = json.loads(body)
    except ValueError:
        yield body[: len(body) // 2]
        return
    # Twice the same member is lost on the way: then this does not differ any more, and is not chosen.
    for less in reduced(value):
        yield json.dumps(less).encode()


def reduced(value: Any) -> Iterator[Any]:
    """Return copies that lack one member or element, at any depth; what is further out comes first."""
    if isinstance(value, Mapping):
        for name in value:
            yield {key: each for key, each in value.items() if key != name}
        for name, inner in value.items():
            for less in reduced(inner):
                yield {**value, name: less}
    elif isinstance(value, list | tuple):
        items = list(value)
        for index in range(len(items)):
            yield items[:index] + items[index + 1 :]
        for index, inner in enumerate(items):
            for less in reduced(inner):
                yield [*items[:index], less, *items[index + 1 :]]
