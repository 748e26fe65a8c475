"""Requests that Envoy would judge otherwise than the policy engine by itself: it asks the policy server, or denies."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.differential.envoy import compare, judged, placed, staged
from tests.differential.model import AGENT, DOMAIN, FIRST, Case, Draft, PolicySet, Sent, Token, World
from tests.differential.placements import AUTO
from tests.support.envoy.releases import VERSIONS

HEADERS: Final = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
LONG: Final = "y" * 257
TOOLS: Final = ["add", "a" * 94, "a" * 95]


def call(name: str = "add", *, id_: Any = 1, arguments: Any = None, meta: Any = None, **more: Any) -> bytes:
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    if meta is not None:
        params["_meta"] = meta
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params, **more}).encode()


def read(uri: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}).encode()


ALLOWED: Final = {
    "a call": call(),
    "an id that is a text": call(id_="0b8b4567-327b-43c6-9869-3b8b4567327b"),
    "a long id": call(id_="y" * 1024),
    "a large id": call(id_=2**53 + 1),
    "no id": call(id_=None).replace(b'"id": null, ', b""),
    "a progress token": call(meta={"progressToken": 7}),
    "a name of 94": call("a" * 94),
    "a name of 95": call("a" * 95),
    "an address": read("file:///" + "a" * 200),
    "a long address": read("file:///" + "a" * 4088),
    "9,990 members": call(arguments={"a": [0] * 9_990}),
}
DENIED: Final = {
    "an id of 3 kB": call(id_="y" * 3_000),
    "an id of 1025": call(id_="y" * 1_025),
    "an id that is an object": call(id_={"a": 1}),
    "an id that is a list": call(id_=[1]),
    "an id that is true": call(id_=True),
    "result: null": call(result=None),
    "result: null before": b'{"result": null, ' + call()[1:],
    "error: null": call(error=None),
    "error: x": call(error="x"),
    "result and error": call(result=None, error=None),
    "the newest version without its header": call(meta={VERSION: "2026-07-28"}),
    "another version than none": call(meta={VERSION: "2025-06-18"}),
    "no version": call(meta={VERSION: None}),
    "a name of 257": call(LONG),
    "an address of 4097": read("file:///" + "a" * 4089),
    "10,001 members": call(arguments={"a": [0] * 10_001}),
    "10,001 members in few bytes": b'{"a":[' + b"0," * 10_000 + b"0]," + call()[1:].replace(b" ", b""),
}
ARGUMENTS: Final = {
    "arguments": ({"to": "alice", "amount": 1}, True),
    "an argument in capitals": ({"to": "alice", "amount": 1, "TO": "mallory"}, False),
    "an argument with a capital": ({"To": "mallory", "to": "alice"}, False),
    "another argument twice": ({"to": "alice", "cc": "x", "CC": "y"}, True),
}
CONTENT_TYPES: Final = {
    "a content type after an empty one, which Envoy drops": ("", True),
    "a content type twice": ("application/json", False),
}
CALLED_OUT: Final = {"a long id", "a large id", "no id", "agent at 2"}
"""What is allowed by the policy server; all others that are allowed, Envoy allows alone."""
TOKENS: Final = {
    "a token": ("", True),
    "a payload in another spelling": ("another spelling of the payload", False),
    "a signature in another spelling": ("another spelling of the signature", False),
}


def policy(source: dict[str, Any], *entries: dict[str, Any]) -> Draft:
    return Draft(spec={"rules": [{"source": source, "authorization": list(entries)}]})


def of_gateway(source: dict[str, Any]) -> PolicySet:
    """Return what stands before a Service, for which no body is read in any placement."""
    return PolicySet(gateway=(policy(source, {"type": "CEL", "cel": 'request.method == "POST"'}),), service=True)


def world() -> World:
    workload = {"type": "SPIFFE", "spiffe": AGENT}
    others = {"type": "CEL", "cel": 'request.mcp.method == "resources/read" || request.mcp.tool_name.startsWith("y")'}
    return World(
        sets=(
            PolicySet(backend=(policy(workload, {"type": "InlineTools", "tools": TOOLS}, others),)),
            of_gateway({"type": "SPIFFE", "spiffe": DOMAIN}),
            of_gateway({"type": "SPIFFE", "spiffe": [DOMAIN, AGENT]}),
            of_gateway({"type": "OIDC", "oidc": {"issuerUrl": FIRST, "audiences": ["shop"]}}),
            PolicySet(
                backend=(
                    policy(workload, {"type": "CEL", "cel": 'request.mcp.params.to == "alice"'}),
                    policy(workload, {"type": "InlineTools", "tools": ["add"]}),
                )
            ),
        ),
        workload_tokens=False,
    )


def cases() -> dict[str, tuple[Case, bool]]:
    found: dict[str, tuple[Case, bool]] = {}
    for bodies, allowed in ((ALLOWED, True), (DENIED, False)):
        for name, body in bodies.items():
            found[name] = (Case(place=0, sent=Sent(headers=HEADERS, body=body, certificate="agent")), allowed)
    for name, (kind, allowed) in CONTENT_TYPES.items():
        sent = Sent(headers=(("content-type", kind), *HEADERS), body=call(), certificate="agent")
        found[name] = (Case(place=0, sent=sent), allowed)
    for place, certificate, allowed in ((1, "domain", False), (2, "domain", False), (2, "agent", True)):
        sent = Sent(headers=HEADERS, body=call(), certificate=certificate)
        found[f"{certificate} at {place}"] = (Case(place=place, sent=sent), allowed)
    for name, (arguments, allowed) in ARGUMENTS.items():
        sent = Sent(headers=HEADERS, body=call(arguments=arguments), certificate="agent")
        found[name] = (Case(place=4, sent=sent), allowed)
    for name, (defect, allowed) in TOKENS.items():
        token = Token(claims={"sub": "ann", "aud": "shop"}, times={"exp": 3000, "iat": -60}, defect=defect)
        found[name] = (Case(place=3, sent=Sent(headers=HEADERS, body=call(), token=token)), allowed)
    return found


@pytest.mark.real
async def test_envoy_answers_as_the_engine_does_where_it_reads_otherwise(tmp_path: Path) -> None:
    made = cases()
    wanted = {name: allowed for name, (_, allowed) in made.items()}
    async with staged(world(), tmp_path) as stage:
        ready = judged(stage.site, [case for case, _ in made.values()])
        assert {name: each.wanted.allowed for name, each in zip(made, ready, strict=True)} == wanted
        for version in VERSIONS:
            async with placed(stage, AUTO, version) as running:
                before = (await running.counts()).granted
                compared = await compare(running, ready)
                asked = (await running.counts()).granted - before
            got = {name: each.got.allowed for name, each in zip(made, compared, strict=True)}
            assert (version.number, got) == (version.number, wanted)
            assert (version.number, asked) == (version.number, len(CALLED_OUT))
