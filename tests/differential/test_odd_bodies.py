"""Bodies that some JSON parsers read otherwise than others: Envoy lets none of them pass."""

from pathlib import Path
from typing import Final

import pytest
from tests.differential.envoy import compare, judged, placed, staged
from tests.differential.model import AGENT, Case, Draft, PolicySet, Sent, World
from tests.differential.placements import PLACEMENTS
from tests.support.envoy.releases import VERSIONS

HEADERS: Final = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
CALL: Final = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}}'
ODD: Final = {
    "a name in capitals": CALL[:-1] + b', "PARAMS": {"name": "wipe"}}',
    "a name that folds to another": CALL[:-1] + b', "param\\u017f": {"name": "wipe"}}',
    "a name with a NUL": CALL[:-1] + b', "method\\u0000": "tools/list"}',
    "the tool in capitals": CALL.replace(b'"name"', b'"Name": "wipe", "name"'),
    "a second tool that is a list": CALL.replace(b'"name"', b'"name": ["wipe"], "name"'),
    "second params that are a list": CALL[:-1] + b', "params": ["wipe"]}',
    "twice the same inside a list": CALL[:-1] + b', "x": [{"a": 1, "a": 2}]}',
    "other quotes": CALL.replace(b'"', b"'"),
    "a name without quotes": CALL.replace(b'"jsonrpc"', b"jsonrpc"),
    "a comma too many": CALL[:-1] + b",}",
    "deeper than the engine reads": CALL[:-1] + b', "x": ' + b"[" * 90 + b"]" * 90 + b"}",
    "two tools": CALL.replace(b'"name"', b'"name": "wipe", "name"'),
    "two params": CALL[:-1] + b', "params": {"name": "wipe"}}',
    "two methods, one escaped": CALL[:-1] + b', "\\u006dethod": "tools/list"}',
    "a batch": b"[" + CALL + b"]",
    "a second message": CALL + b"\n" + CALL,
    "a comment": b"/* */" + CALL,
    "a mark of byte order": b"\xef\xbb\xbf" + CALL,
    "bytes that are no UTF-8": CALL.replace(b"{}", b'{"a": "\xff"}'),
    "the end is missing": CALL[:-1],
    "no version": CALL.replace(b'"jsonrpc": "2.0", ', b""),
    "another tool": CALL.replace(b'"add"', b'"wipe"'),
    "a tool that is no text": CALL.replace(b'"add"', b'["add"]'),
    "an answer that is a call as well": CALL[:-1] + b', "result": {}}',
    "nothing": b"",
}


def world() -> World:
    rule = {
        "source": {"type": "SPIFFE", "spiffe": AGENT},
        "authorization": [{"type": "InlineTools", "tools": ["add"]}],
    }
    return World(sets=(PolicySet(backend=(Draft(spec={"rules": [rule]}),)),), workload_tokens=False)


@pytest.mark.real
async def test_no_body_passes_that_parsers_read_in_different_ways(tmp_path: Path) -> None:
    bodies = {"the call itself": CALL, **ODD}
    sent = {name: Sent(headers=HEADERS, body=body, certificate="agent") for name, body in bodies.items()}
    async with staged(world(), tmp_path) as stage:
        cases = judged(stage.site, [Case(place=0, sent=each) for each in sent.values()])
        assert [name for name, each in zip(sent, cases, strict=True) if each.wanted.allowed] == ["the call itself"]
        for version in VERSIONS:
            for placement in PLACEMENTS:
                async with placed(stage, placement, version) as made:
                    compared = await compare(made, cases)
                passed = [name for name, each in zip(sent, compared, strict=True) if each.got.allowed]
                assert (version.number, placement.name, passed) == (version.number, placement.name, ["the call itself"])
