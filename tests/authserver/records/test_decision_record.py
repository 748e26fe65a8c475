"""What is written down about a decision, and what never is."""

import json
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.answers import answer
from tests.support.authservers.check_requests import check

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import (
    Conclusion,
    Record,
    build_entry,
    build_record,
    build_undecided,
    line_of,
)
from authplane.authserver.records.policy_record import entry_line
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Peer, Request
from authplane.runtime.clock import now

TIME: Final = 1_767_225_600.0425
CANARY: Final = "hunter2"

REQUEST: Final = Request(
    method="GET", host="shop.example", path="/a", query="b=c", id="7", source=Peer(address="192.0.2.1", port=4711)
)
PLAIN: Final = Record(
    time=TIME,
    seconds=0.0015,
    backend="test",
    decision=Conclusion.ALLOW,
    status=None,
    path="/a",
    host="shop.example",
    method="GET",
    id="7",
    source="192.0.2.1",
    identity="",
    rule="",
    reason="",
)
UNKNOWN: Final = PLAIN._replace(path="", host="", method="", id="", source="")


def _record(request: Request | Malformed, decision: Decision) -> Record:
    made = Answer(reply=b"", request=request, decision=decision)
    return build_record(build_entry(made, backend="test", now=TIME, seconds=0.0015))


class Case(NamedTuple):
    request: Request | Malformed
    decision: Decision
    want: Record


CASES: Final = {
    "an allowance names who was recognised": Case(REQUEST, Allow(identity="ann"), PLAIN._replace(identity="ann")),
    "a denial names its rule and status": Case(
        REQUEST,
        Deny(http_status=401, rule="htpasswd", identity="ann", body="no"),
        PLAIN._replace(decision=Conclusion.DENY, status=401, rule="htpasswd", identity="ann"),
    ),
    "the id is the one that the access log has too": Case(
        replace(REQUEST, headers=(("x-request-id", "4711-0815"), ("x-request-id", "another"))),
        Allow(),
        PLAIN._replace(id="4711-0815"),
    ),
    "what does not look like an id is not shown": Case(
        replace(REQUEST, headers=(("x-request-id", "ey.ey.hunter2"),)), Allow(), PLAIN
    ),
    "nor what is longer than ids are": Case(replace(REQUEST, headers=(("x-request-id", "a" * 65),)), Allow(), PLAIN),
    "without a decision there is a reason": Case(
        REQUEST,
        Unavailable(cause="no keys"),
        PLAIN._replace(decision=Conclusion.UNAVAILABLE, status=503, reason="no keys"),
    ),
    "a malformed request is described by its fault alone": Case(
        Malformed(reason="the request has no path"),
        Deny(http_status=400, rule="malformed"),
        UNKNOWN._replace(decision=Conclusion.DENY, status=400, rule="malformed", reason="the request has no path"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_build_record(case: Case) -> None:
    assert _record(case.request, case.decision) == case.want


def test_a_check_without_an_answer_says_why() -> None:
    entry = build_undecided(Conclusion.FAILED, "KeyError", backend="test", now=TIME, seconds=0.0015)
    assert build_record(entry) == UNKNOWN._replace(decision=Conclusion.FAILED, status=503, reason="KeyError")


def test_a_line_is_one_object_of_json() -> None:
    record = _record(REQUEST, Deny(http_status=403, rule='say "no"', identity="é\\"))
    line = line_of(record)
    assert line.endswith("}\n")
    assert line.isascii()
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.042Z",
        "decision": "deny",
        "status": 403,
        "ms": 1.5,
        "backend": "test",
        "rule": 'say "no"',
        "reason": "",
        "identity": "é\\",
        "source": "192.0.2.1",
        "id": "7",
        "method": "GET",
        "host": "shop.example",
        "path": "/a",
    }


def test_an_allowance_has_no_status_since_the_origin_gives_it() -> None:
    assert json.loads(line_of(PLAIN))["status"] is None


PATHS: Final = {
    "/a/b": "/a/b",
    "/50%25": "/50%25",
    "/a;jsessionid=hunter2/b": "/a…",
    "/a?token=hunter2": "/a…",
    "/a%3Ftoken=hunter2": "/a…",
    "/a%3btoken=hunter2": "/a…",
    "/a#access_token=hunter2": "/a…",
    "/a%23access_token=hunter2": "/a…",
    "/é\udcff": "/é\\udcff",
    "/" + "a" * 511: "/" + "a" * 511,
    "/" + "a" * 512: "/" + "a" * 511 + "…",
}


@pytest.mark.requirement("threat:A10")
@pytest.mark.parametrize(("path", "want"), PATHS.items())
def test_a_path_is_shown_without_parameters(path: str, want: str) -> None:
    assert _record(replace(REQUEST, path=path), Allow()) == PLAIN._replace(path=want)


HOSTILE: Final = {
    "a forged line": 'x\n{"decision":"allow"}',
    "a terminal's commands": "\x1b[2J\x07\x9b",
    "text that runs backwards": "\u202eevil",
    "odd bytes": "\udcff\udc80",
    "line breaks of other kinds": "a\u2028b\x85c",
    "very long": "a" * 1_000_000,
    "long when escaped": "\U000e0001" * 1000,
    "quotes": '","decision":"allow","x":"\\',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_stays_in_its_field(text: str) -> None:
    request = Request(method=text, host=text, path=text, id=text, source=Peer(address=text))
    line = line_of(_record(request, Deny(http_status=403, rule=text, identity=text)))
    read = json.loads(line)
    assert read["decision"] == "deny"
    assert len(line) < 8000
    assert line.count("\n") == 1
    assert all(value.isprintable() for value in read.values() if isinstance(value, str))


def test_a_long_text_is_cut_and_marked() -> None:
    record = _record(replace(REQUEST, host="h" * 300), Allow(identity="a\nb"))
    assert record == PLAIN._replace(host="h" * 256 + "…", identity="a\\nb")


SECRET_HEADERS: Final = (
    "authorization", "proxy-authorization", "cookie", "x-api-key", "apikey", "token", "client_secret", "password",
    "x-request-id", "user-agent", "referer", "x-forwarded-for", "traceparent", "tracestate", "x-custom",
)  # fmt: skip


def _with_canaries(path: str) -> pb.CheckRequest:
    """Build a check with a secret in every place that a client can put one, apart from the path's words."""
    message = check(
        path, headers=dict.fromkeys(SECRET_HEADERS, f"Bearer {CANARY}"), context={"realm": CANARY, CANARY: "x"}
    )
    http = message.attributes.request.http
    http.host = f"ann:{CANARY}@shop.example"
    http.query = f"token={CANARY}"
    http.fragment = CANARY
    http.body = CANARY
    http.raw_body = CANARY.encode()
    http.protocol = CANARY
    http.header_map.headers.append(base_pb2.HeaderValue(key="cookie", raw_value=CANARY.encode()))
    for peer in (message.attributes.source, message.attributes.destination):
        peer.principal = f"spiffe://{CANARY}"
        peer.certificate = CANARY
        peer.labels["token"] = CANARY
        peer.address.CopyFrom(
            address_pb2.Address(socket_address=address_pb2.SocketAddress(address="192.0.2.1", port_value=1))
        )
    message.attributes.metadata_context.filter_metadata["token"]["value"] = CANARY
    message.attributes.tls_session.CopyFrom(attribute_context_pb2.AttributeContext.TLSSession(sni=CANARY))
    return message


@pytest.mark.requirement("threat:A10")
@pytest.mark.parametrize("path", [f"/allow?t={CANARY}", f"/x?t={CANARY}", f"/x;t={CANARY}", f"/x#{CANARY}"])
def test_no_secret_of_a_client_is_written_down(path: str) -> None:
    made = answer(TestServer(mode=Mode.PATH), _with_canaries(path).SerializeToString(), now())
    assert CANARY in str(made), "the canary did not get this far"
    assert CANARY not in entry_line(build_entry(made, backend="testserver", now=TIME, seconds=0))


@pytest.mark.requirement("threat:A10")
@pytest.mark.parametrize(
    "decision",
    [
        Allow(edits=HeaderEdits(set=(("x-token", CANARY),)), response_headers=(("set-cookie", CANARY),)),
        Deny(http_status=401, rule="basic", headers=(("set-cookie", CANARY),), body=CANARY),
    ],
)
def test_no_secret_of_an_answer_is_written_down(decision: Decision) -> None:
    made = Answer(reply=CANARY.encode(), request=REQUEST, decision=decision)
    assert CANARY not in entry_line(build_entry(made, backend="test", now=TIME, seconds=0))


@pytest.mark.requirement("threat:A10")
@pytest.mark.parametrize("field", ["method", "path"])
def test_a_malformed_request_is_not_repeated(field: str) -> None:
    message = check()
    setattr(message.attributes.request.http, field, f"a {CANARY}")
    made = answer(TestServer(), message.SerializeToString(), now())
    assert isinstance(made.request, Malformed)
    assert CANARY not in entry_line(build_entry(made, backend="testserver", now=TIME, seconds=0))
