"""The lines of the decision log, byte by byte."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Golden
from tests.support.authservers.log_lines import Lines

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import Conclusion, Entry
from authplane.authserver.records.policy_record import careful_line, entry_line, is_small
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Peer, Request
from authplane.policy.verdicts.verdict import Grounds, Shadowed, Verdict, Would

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "decision_log" / "lines.jsonl"
UUID: Final = "b2d3a1e0-0000-4000-8000-000000000000"
CALL: Final = Request(
    method="POST",
    host="mcp.example",
    path="/mcp",
    query="token=hunter2",
    headers=(("x-request-id", UUID), ("authorization", "Bearer hunter2")),
    id="42",
    source=Peer(address="10.0.0.1", port=4711),
)
ODD: Final = Request(
    method="GET\x1b", host='ann:hunter2@"shop"\\', path="/é;jsessionid=hunter2", id="a\nb", source=Peer(address="@unix")
)
LONG: Final = Request(method="M" * 300, host="h" * 5000, path="/" + "p" * 5000 + "?x", id="i" * 300)
GRANTED: Final = Grounds(
    "AccessPolicy/shop/tools", "reads", "0:CEL", "https://idp.example#ann", "tools/call", "read_file", "granted"
)
FAILED: Final = GRANTED._replace(identity="", reason="cel_false", failures=("AccessPolicy/shop/tools reads 0 no_key",))
STRANGE: Final = Grounds("AccessPolicy/shop/t", "r\n", "0:\\", 'é"ann', "tools/\u202ecall", "t" * 300, "gründe")
SHADOWS: Final = (
    Shadowed("AccessPolicy/shop/new", "Backend/shop/x", Would.DENY, rule="r", entry="0:CEL", reason="cel_false"),
    Shadowed("AccessPolicy/shop/other", "Backend/shop/x", Would.UNKNOWN),
)
DENIED: Final = Deny(http_status=403, rule="own rule", identity="ann", body="hunter2")
ANSWERS: Final[tuple[tuple[Request | Malformed, Decision, Verdict | None], ...]] = (
    (CALL, Allow(), None),
    (CALL, Allow(identity="ann"), None),
    (CALL, DENIED, None),
    (CALL, Unavailable(cause="no keys"), None),
    (Malformed(reason="the request has no path"), Deny(http_status=400, rule="malformed"), None),
    (ODD, Allow(identity="é\\"), None),
    (LONG, DENIED, None),
    (CALL, Allow(), Verdict(Allow(), GRANTED)),
    (CALL, DENIED, Verdict(DENIED, FAILED)),
    (CALL, Unavailable(cause="x"), Verdict(Unavailable(cause="x"), Grounds(reason="issuer_not_ready"))),
    (ODD, Allow(), Verdict(Allow(), STRANGE)),
    (LONG, Allow(), Verdict(Allow(), GRANTED)),
    (CALL, Allow(), Verdict(Allow(), GRANTED, shadows=SHADOWS)),
)


def test_every_kind_of_line_is_what_it_was(golden: Golden) -> None:
    # The file was written by the code that made each line while its check waited.
    lines, times = Lines(), iter(1_767_225_599.9985 + 0.3337 * number for number in range(100))
    observer = Observer("policy", Metrics().checks("policy"), lines=lines, clock=lambda: next(times))
    for request, decision, verdict in ANSWERS:
        observer.passed(Answer(reply=b"", request=request, decision=decision, verdict=verdict), 0.0012345)
    observer.failed(KeyError("hunter2"), 12.5, request=CALL)
    observer.late(0.2, request=LONG)
    golden.check(GOLDEN, "".join(lines.texts))


texts: Final = st.one_of(
    st.sampled_from(["", "a", "/mcp", "a@b", "a;b", "a%3fb", "50%25", "x#y", '"', "\\", "\n", "é", "\u202e", "\udcff"]),
    st.text(st.characters(codec="ascii"), max_size=300),
    st.text(max_size=600),
    st.integers(250, 520).map(lambda length: "x" * length),
)
grounds: Final = st.builds(
    Grounds, texts, texts, texts, texts, texts, texts, texts, st.lists(texts, max_size=2).map(tuple)
)
shadows: Final = st.lists(
    st.builds(Shadowed, texts, texts, st.sampled_from(Would), rule=texts, entry=texts, identity=texts, reason=texts),
    max_size=2,
).map(tuple)
entries: Final = st.builds(
    Entry,
    time=st.floats(0, 4e9),
    seconds=st.floats(0, 1e6),
    backend=texts,
    decision=st.sampled_from(Conclusion),
    status=st.none() | st.integers(100, 599),
    path=texts,
    host=texts,
    method=texts,
    id=texts,
    source=texts,
    identity=texts,
    rule=texts,
    reason=texts,
    grounds=st.none() | grounds,
    shadows=shadows,
)
plain: Final = st.builds(
    lambda entry, parts: entry._replace(
        path=parts[0],
        host=parts[1],
        method=parts[2],
        id=parts[3],
        source=parts[4],
        identity=parts[5],
        rule=parts[6],
        reason=parts[7],
        backend="policy",
        grounds=Grounds(*parts[8:]),
        shadows=(),
    ),
    entries,
    st.lists(st.sampled_from(["", "a", "/mcp", "a-b", "~ !", "https://idp.example#ann"]), min_size=15, max_size=15),
)


@given(entries | plain)
def test_the_quick_way_writes_what_the_careful_way_writes(entry: Entry) -> None:
    assert entry_line(entry) == careful_line(entry)
    assert entry_line(entry).isascii()


BIG: Final = "x" * 10_000
SMALL: Final = Entry(0, 0, "policy", Conclusion.ALLOW, None, "/mcp", "h", "GET", "7", "", "", "", "", GRANTED)
LARGE: Final = {
    "path": SMALL._replace(path=BIG),
    "host": SMALL._replace(host=BIG),
    "method": SMALL._replace(method=BIG),
    "id": SMALL._replace(id=BIG),
    "identity": SMALL._replace(identity=BIG),
    "identity of the grounds": SMALL._replace(grounds=GRANTED._replace(identity=BIG)),
    "method of MCP": SMALL._replace(grounds=GRANTED._replace(mcp_method=BIG)),
    "tool": SMALL._replace(grounds=GRANTED._replace(tool=BIG)),
}


@pytest.mark.parametrize("entry", LARGE.values(), ids=LARGE.keys())
def test_an_entry_with_much_of_what_a_client_sent_is_not_kept_until_its_line_is_written(entry: Entry) -> None:
    assert (is_small(SMALL), is_small(entry)) == (True, False)


def test_of_a_long_request_the_log_keeps_its_line_alone() -> None:
    kept: list[Entry | str] = []

    class Kept:
        def write(self, line: Entry | str) -> None:
            kept.append(line)

    observer = Observer("policy", Metrics().checks("policy"), lines=Kept())
    for request in (CALL, LONG):
        observer.passed(Answer(reply=b"", request=request, decision=Allow()), 0.001)
    assert [type(each) for each in kept] == [Entry, str]
    assert len(str(kept[1])) < 3000
