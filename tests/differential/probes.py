"""Requests by which one sees that keys and policies are in place, at targets beside those of a world."""

import json
from dataclasses import replace
from typing import Final

from tests.differential.model import ISSUERS, Case, Draft, PolicySet, Sent, Token, World
from tests.differential.running import Running
from tests.differential.site import Shot
from tests.differential.stage import PATIENCE
from tests.support.eventually import eventually

EDITIONS: Final = ("first", "second")
"""Tools that mark what is in place: before a change, and after it."""
NUMBER: Final = 3
"""How many sets of a world are probes: the last ones."""
_KEYS, _NATIVE, _CALLED_OUT = -3, -2, -1
_HEADERS: Final = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))


def with_probes(world: World, edition: str = EDITIONS[0]) -> World:
    """Add a set for the keys of all issuers, and two for the edition of policies: in Envoy, and in the server."""
    sources = ({"type": "OIDC", "oidc": {"issuerUrl": issuer, "audiences": ["shop"]}} for issuer in ISSUERS)
    rules = [{"source": each, "authorization": [{"type": "CEL", "cel": "true"}]} for each in sources]
    keys = PolicySet(gateway=(Draft(spec={"rules": rules}),), service=True)
    marked = Draft(spec={"rules": [{"authorization": [{"type": "InlineTools", "tools": [edition]}]}]})
    native = PolicySet(backend=(marked,))
    return replace(world, sets=(*world.sets, keys, native, replace(native, call_out=True)))


def without_probes(world: World) -> World:
    """Return the world itself."""
    return replace(world, sets=world.sets[:-NUMBER])


async def ready(made: Running, key: int = 0, *, native: bool | None = None) -> None:
    """Wait until everybody who verifies tokens has this key of every issuer.

    Unless ``native`` says otherwise, that includes Envoy if it decides by itself.
    """
    claims, times = {"sub": "ann", "aud": "shop"}, {"exp": 3000, "iat": -60}
    tokens = [Token(issuer=issuer, signer=issuer, key=key, claims=claims, times=times) for issuer in ISSUERS]
    shots = [_shot(made, _KEYS, _message("tools/list"), token=each) for each in tokens]
    alone = made.placement.native if native is None else native

    async def known() -> bool:
        before = await made.counts()
        allowed = all(answer.allowed for answer in await made.answers(shots))
        # What Envoy can decide by itself it decides once it has the keys too.
        return allowed and (not alone or (await made.counts()).asked == before.asked)

    await eventually(known, limit=PATIENCE)


async def settled(made: Running, edition: str, former: str) -> None:
    """Wait until Envoy and the policy server judge by one edition, and not by the former one."""
    places, tools = (_NATIVE, _CALLED_OUT), (edition, former)
    shots = [_shot(made, place, _message("tools/call", name=tool)) for place in places for tool in tools]

    async def known() -> bool:
        return [answer.allowed for answer in await made.answers(shots)] == [True, False] * len(places)

    await eventually(known, limit=PATIENCE)


def _message(method: str, **params: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _shot(made: Running, probe: int, body: bytes, token: Token | None = None) -> Shot:
    place = len(made.site.world.sets) + probe
    return made.site.shot(Case(place=place, sent=Sent(headers=_HEADERS, body=body, token=token)))
