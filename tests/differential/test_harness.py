"""The harness finds what differs, makes it small, and writes it down so that it can be seen again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from tests.differential.differences import Tally
from tests.differential.envoy import compare, judged, running
from tests.differential.exceptions import ACCEPTED, KNOWN, Kind, Known
from tests.differential.minting import FIRST_KEYS, LAST_KEY, NEXT_KEYS
from tests.differential.model import (
    AGENT,
    CERTIFICATES,
    ISSUERS,
    Case,
    Draft,
    PolicySet,
    Rewrite,
    Sent,
    Token,
    World,
)
from tests.differential.placements import AUTO, CALL_OUT, PLACEMENTS, Placement
from tests.differential.probes import with_probes
from tests.differential.reference import Reference, asked, document_of
from tests.differential.report import BYTES, KEYS, POLICIES, REQUEST, SUMMARY, write_report, yaml_of
from tests.differential.run import batches
from tests.differential.shrink import Small, reduced, shrunk
from tests.differential.site import Listeners, Site, gateways_of, text_of
from tests.differential.wire import MOST_HEARD
from tests.support.envoy.releases import INSTALLED

from authplane.cli.main import build_app
from authplane.devkit.policies.request_files import parse_requests
from authplane.devkit.strict_files import parse_text
from authplane.policy.mcp.message_limits import LONGEST_ID

HEADERS = (("content-type", "application/json"), ("bearer-form", "application/json, text/event-stream"))


def body(tool: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode()


def tools(*names: str) -> Draft:
    source = {"type": "SPIFFE", "spiffe": AGENT}
    return Draft(spec={"rules": [{"source": source, "authorization": [{"type": "InlineTools", "tools": list(names)}]}]})


def sent(tool: str, **more: Any) -> Sent:
    return Sent(headers=HEADERS, body=body(tool), certificate="agent", **more)


@pytest.mark.real
async def test_envoy_that_allows_more_is_found_and_written_down(tmp_path: Path) -> None:
    wide = World(sets=(PolicySet(backend=(tools("add", "wipe"),)),))
    narrow = World(sets=(PolicySet(backend=(tools("add"),)),))
    cases = [Case(place=0, sent=sent(tool)) for tool in ("add", "wipe", "other")]
    root, elsewhere = tmp_path / "wide", tmp_path / "narrow"
    (elsewhere / "resources").mkdir(parents=True)
    root.mkdir()
    async with running(wide, root) as made:
        site = replace(made.site, world=with_probes(narrow), root=elsewhere)
        (site.folder / "all.yaml").write_text(text_of(site.documents()), encoding="utf-8")
        tally = Tally(placement=CALL_OUT)
        tally.add(narrow, INSTALLED, await compare(made, judged(made.site, cases, Reference(site))))
    [found] = tally.differences
    assert (found.kind, found.case, tally.allowed) == ("Envoy allows what the reference denies", cases[1], 1)
    report = tmp_path / "report"
    said = write_report(found, site, site.shot(found.case), report)
    assert said.startswith("Envoy allows what the reference denies\nreference: deny 403  AccessPolicy/default/s0-0 ")
    assert sorted(each.name for each in report.iterdir()) == sorted((POLICIES, REQUEST, KEYS, BYTES, SUMMARY))
    arguments = ["check", str(report / POLICIES), "--request", str(report / REQUEST), "--keys", str(report / KEYS)]
    answer = CliRunner().invoke(build_app(), [*arguments, "-o", "json"])
    assert answer.exit_code == 0
    record = json.loads(answer.stdout)
    assert (record["decision"], record["httpStatus"], record["tool"]) == ("deny", 403, "wipe")


async def test_what_is_left_of_a_difference_is_what_it_takes() -> None:
    async def differ(tried: Sequence[Small]) -> list[bool]:
        return ["'wipe'" in repr(each.policies) and ("x-team", "red") in each.sent.headers for each in tried]

    long = Small(
        policies=PolicySet(backend=(tools("add"), tools("add", "wipe")), gateway=(tools("add"),)),
        sent=sent("add", token=Token(claims={"sub": "ann"}), path="/mcp/x"),
    )
    long = replace(long, sent=replace(long.sent, headers=(*HEADERS, ("x-team", "red"))))
    kept = {"authorization": [{"tools": ["wipe"]}]}
    assert await shrunk(long, differ) == Small(
        policies=PolicySet(backend=(Draft(spec={"rules": [kept]}),)), sent=Sent(headers=(("x-team", "red"),))
    )


def test_what_is_kept_of_an_answer_has_room_for_the_longest_id_and_the_words_behind_it() -> None:
    denial = {"jsonrpc": "2.0", "id": "y" * LONGEST_ID, "error": {"code": -32003, "message": "Access denied."}}
    assert len(json.dumps(denial)) < MOST_HEARD


def test_one_thing_less_at_any_depth() -> None:
    assert list(reduced({"a": [1, {"b": 2}], "c": 3})) == [
        {"c": 3},
        {"a": [1, {"b": 2}]},
        {"a": [{"b": 2}], "c": 3},
        {"a": [1], "c": 3},
        {"a": [1, {}], "c": 3},
    ]


def test_the_same_number_makes_the_same_cases() -> None:
    def made(seed: int) -> str:
        return repr(list(batches(200, seed, sets=10, per_set=10)))

    assert made(7) == made(7)
    assert made(7) != made(8)


def numbers(claims: Mapping[str, Any]) -> list[float]:
    return [each for each in claims.values() if isinstance(each, int | float) and not isinstance(each, bool)]


MET: Final[dict[str, tuple[str, Callable[[Mapping[str, Any]], bool]]]] = {
    "string() of more than six digits": ("string(identity.", lambda claims: max(numbers(claims), default=0) > 1e6),
    "string(int()) of more than six digits": ("string(int(", lambda claims: max(numbers(claims), default=0) > 1e6),
    "int() of a number that is not exact": ("int(identity.", lambda claims: max(numbers(claims), default=0) > 2**53),
    "int() of a fraction": ("int(identity.", lambda claims: any(each % 1 for each in numbers(claims))),
    "double() of a number that is not exact": ("double(identity.", lambda claims: 2**53 + 1 in numbers(claims)),
    "a calculation beyond 64 bits": (" * ", lambda claims: max(numbers(claims), default=0) > 2**62),
    "timestamp() after year 9999": ("timestamp(int(", lambda claims: max(numbers(claims), default=0) > 253_402_300_799),
    "timestamp() of a text": ("timestamp(identity.", lambda claims: isinstance(claims.get("until"), str)),
    "duration() of a text": ("duration(identity.", lambda claims: isinstance(claims.get("until"), str)),
}
"""Parts of expressions, and claims, that Envoy and the engine may read in different ways."""


@pytest.mark.slow
def test_requests_meet_the_expressions_that_envoy_may_answer_otherwise() -> None:
    met: set[str] = set()
    for batch in batches(36_000, 12, per_set=40):
        for case in batch.cases:
            claims = {} if case.sent.token is None else case.sent.token.claims
            rules = _rules(batch.world.sets[case.place])
            texts = [entry.get("cel", "") for rule in rules for entry in rule.get("authorization", ())]
            met |= {name for name, (part, fits) in MET.items() if fits(claims) and part in " ".join(texts)}
    assert met == MET.keys()


def test_requests_are_sent_in_every_way() -> None:
    sent = [case.sent for batch in batches(6_000, 11) for case in batch.cases]
    assert {(each.http2, bool(each.trailers), each.pieces > 1) for each in sent} >= {
        (http2, trailers, slow)
        for http2 in (False, True)
        for trailers, slow in ((False, False), (True, False), (False, True))
    }
    assert any(each.other_host for each in sent)
    assert {each.certificate for each in sent} == {"", *CERTIFICATES}
    assert {each.token.key for each in sent if each.token is not None} == {*FIRST_KEYS, NEXT_KEYS[-1], LAST_KEY}


def test_worlds_have_every_kind_of_route_and_change() -> None:
    made = list(batches(7_200, 11, per_set=10))
    sets = [each for batch in made for each in batch.world.sets]
    assert {each.rewrite for each in sets} == set(Rewrite)
    for name in ("service", "proxy", "weighted", "call_out"):
        assert {getattr(each, name) for each in sets} == {False, True}
    assert any(draft.spec.get("mode") == "Shadow" for each in sets for draft in each.backend)
    changes = [batch.change for batch in made if batch.change is not None]
    assert [each.rotates for each in changes] == [*[False] * 5, True] * 2
    for batch, change in zip(made, changes, strict=True):
        pairs = list(zip(batch.world.sets, change.world.sets, strict=True))
        assert any(old.backend != new.backend for old, new in pairs)
        assert any(old.call_out != new.call_out for old, new in pairs)


def _rules(policies: PolicySet) -> list[dict[str, Any]]:
    return [rule for draft in policies.backend for rule in draft.spec["rules"]]


NOT_MET: Final = {
    "ended-certificate", "signing-certificate", "lenient-token", "large-claims", "long-signature", "last-second",
    "far-times", "ed25519", "header-twice", "large-headers", "header-bytes",
}  # fmt: skip
"""Accepted differences that no case at random meets: each has a test of its own, or needs hours. Only shrinks."""


def test_every_exception_between_placements_is_an_accepted_difference_and_documented() -> None:
    assert {known.residue for known in KNOWN.values() if known.residue} == ACCEPTED.keys() - NOT_MET


@pytest.mark.parametrize(
    ("kind", "residue", "only"),
    [
        (Kind.WIDER, "", (AUTO,)),
        (Kind.WIDER, "made-up", (AUTO,)),
        (Kind.WIDER, "bearer-form", (AUTO,)),
        (Kind.STRICTER, "bearer-form", PLACEMENTS),
    ],
    ids=["not listed", "unknown", "of another kind", "not between placements"],
)
def test_a_difference_between_placements_that_is_not_listed_cannot_be_excepted(
    kind: Kind, residue: str, only: tuple[Placement, ...]
) -> None:
    with pytest.raises(ValueError, match="no accepted difference"):
        Known(reason="x", statuses=frozenset({200}), kind=kind, residue=residue, only=only)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    [batch] = batches(300, 3, sets=10, per_set=30)
    return Site(
        world=batch.world,
        root=tmp_path,
        origin=1,
        external=2,
        issuers={each: each.replace(".invalid", ".example") for each in ISSUERS},
        gateways=tuple(Listeners(8000 + index, 8100 + index) for index in range(len(gateways_of(batch.world)))),
        proxies=Listeners(8200, 8300),
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.mark.slow
def test_a_file_asks_what_the_reference_is_asked(site: Site) -> None:
    [batch] = batches(300, 3, sets=10, per_set=30)
    for case in batch.cases:
        document = document_of(site, site.shot(case))
        text = parse_text("request.yaml", yaml_of(document).encode(), binary="body")
        assert parse_requests(text).requests == (asked(document),)
