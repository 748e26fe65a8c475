"""What expressions learn of calls."""

from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.support import certificates
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, Wire, call

from authplane.cel.calls.call_vocabulary import CLIENT_CALLS, SERVER_CALLS, compile_call_expression
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Code, Failed, Outcome
from authplane.cel.check.program import Program
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.dataplane.filters.call_attributes import VOCABULARIES, CallAttributes
from authplane.dataplane.filters.calls import Call, Endpoint, PeerCertificate, Side
from authplane.dataplane.filters.filter_metadata import FilterMetadata
from authplane.matching.expressions.expression_matcher import ExpressionMatcher, Reads


def matcher(text: str, vocabulary: Vocabulary = SERVER_CALLS) -> ExpressionMatcher:
    program = compile_call_expression(text, vocabulary)
    assert isinstance(program, Program), program
    return ExpressionMatcher(program)


def outcome(text: str, of: Call) -> Outcome:
    return matcher(text, VOCABULARIES[of.side]).outcome(CallAttributes(of))


BUSY = call(
    ("user-agent", "grpc-test"),
    ("x-many", "a"),
    ("x-many", "b"),
    ("raw-bin", b"\x00\xff"),
    ("raw-bin", b"x"),
    ("te", "trailers"),
    ("x-request-id", "42"),
)

TRUE = [
    'request.path == "/shop.Cart/Add" && request.url_path == request.path',
    'request.host == "shop.example:443" && request.method == "POST" && request.query == ""',
    'request.useragent == "grpc-test" && request.id == "42" && request.referer == ""',
    'request.headers["x-many"] == "a,b" && request.headers["X-Many"] == "a,b"',
    'request.headers["raw-bin"] == "AP8,eA"',
    'request.headers[":path"] == request.path && request.headers[":method"] == "POST"',
    'request.headers["host"] == request.host && request.headers[":authority"] == request.host',
    'request.headers["Host"] == request.headers.host && request.headers["content-type"] == "application/grpc"',
    '!("te" in request.headers) && !has(request.headers.te) && !("nothing" in request.headers)',
    'has(request.headers.host) && "USER-AGENT" in request.headers',
    "!has(request.scheme) && !has(request.protocol) && !has(request.time)",
    'request.headers == {":path": "/shop.Cart/Add", ":method": "POST", ":authority": "shop.example:443", '
    '"host": "shop.example:443", "content-type": "application/grpc", "user-agent": "grpc-test", "x-many": "a,b", '
    '"raw-bin": "AP8,eA", "x-request-id": "42"}',
]


@pytest.mark.requirement("CEL-8")
@pytest.mark.parametrize("text", TRUE)
@pytest.mark.parametrize("side", Side)
def test_expressions_see_the_request_of_a_call(text: str, side: Side) -> None:
    assert outcome(text, replace(BUSY, side=side)) is HOLDS


ERRORS = {
    'request.headers["nothing"] == ""': Code.NO_SUCH_KEY,
    'request.headers["te"] == "trailers"': Code.NO_SUCH_KEY,
    'request.scheme == ""': Code.NO_SUCH_KEY,
    'request.time < timestamp("2026-01-01T00:00:00Z")': Code.NO_SUCH_KEY,
    "1 / (size(request.path) - size(request.path)) == 1": Code.ARITHMETIC,
    'int(request.headers["x-many"]) == 1': Code.CONVERSION,
    'xds.route_metadata.filter_metadata["a"]["b"] == 1': Code.NO_SUCH_KEY,
    "xds.route_metadata.filter_metadata.a.b.c == 1": Code.NO_SUCH_KEY,
}


@pytest.mark.requirement("CEL-6")
@pytest.mark.parametrize(("text", "code"), ERRORS.items(), ids=ERRORS.keys())
def test_an_error_is_no_match(text: str, code: Code) -> None:
    assert outcome(text, BUSY) == Failed(code)
    assert not matcher(text).matches(CallAttributes(BUSY))
    assert outcome(f"true || {text}", BUSY) is HOLDS


@pytest.mark.requirement("CEL-6")
def test_what_the_engine_must_not_see_is_no_match() -> None:
    assert outcome('request.path == "/a"', replace(CALL, path="/a\0b")) == Failed(Code.NUL_IN_INPUT)
    assert outcome('request.headers.a == "b"', call(("a", "b\0"))) == Failed(Code.NUL_IN_INPUT)
    assert outcome('request.headers.a == "b"', call(("a", "b" * 40_000))) == Failed(Code.STRING_TOO_LONG)
    assert outcome('request.path == "/a"', replace(CALL, path="/\ud800")) == Failed(Code.NOT_UNICODE)


@pytest.mark.requirement("CEL-6")
def test_a_type_that_does_not_fit_is_no_match() -> None:
    told = replace(CALL, route_metadata=FilterMetadata({"a": {"b": "text", "c": True}}))
    assert outcome("xds.route_metadata.filter_metadata.a.b > 1", told) == Failed(Code.NO_SUCH_OVERLOAD)
    assert outcome("!xds.route_metadata.filter_metadata.a.b", told) == Failed(Code.NO_SUCH_OVERLOAD)
    assert outcome("!xds.route_metadata.filter_metadata.a.c", told) is HOLDS_NOT


class Fragile:
    """A connection of which nothing can be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"somebody looked at {name}")


class Shy:
    """Attributes that tell what was asked for."""

    def __init__(self, of: Call) -> None:
        self._inner = CallAttributes(of)
        self.asked: list[object] = []

    def headers(self, names: tuple[str, ...] | None) -> Any:
        self.asked.append(names)
        return self._inner.headers(names)

    def fact(self, name: str) -> Any:
        self.asked.append(name)
        return self._inner.fact(name)

    def seen(self, reads: Reads) -> Any:
        return self._inner.seen(reads)


@pytest.mark.requirement("CEL-7")
def test_only_what_an_expression_reads_is_made() -> None:
    shy = Shy(replace(BUSY, connection=Fragile()))
    assert matcher('request.path == "/" || request.headers["X-Many"] == "a,b"').matches(shy)
    assert shy.asked == ["request.path", ("x-many",)]
    shy = Shy(BUSY)
    assert matcher("size(request.headers) > 5").matches(shy)
    assert shy.asked == [None]
    shy = Shy(BUSY)
    assert matcher("request.headers[request.headers.a] == 'x'").matches(shy) is False
    assert shy.asked == [None]


LOOKS = {
    "a header": (call(("a", "b")), call(("a", "c"))),
    "a header or none": (call(("a", "b")), call()),
    "an empty header or none": (call(("a", "")), call()),
    "the second header that is read": (call(("a", "x")), call(("a", "x"), ("z", "1"))),
    "a path": (CALL, replace(CALL, path="/a.B/C")),
    "an authority or none": (CALL, replace(CALL, authority=None)),
    "a port": (CALL, replace(CALL, connection=Wire(remote=Endpoint(address="10.1.2.3", port=80)))),
    "metadata": (CALL, replace(CALL, route_metadata=FilterMetadata({"a": {"b": 1}}))),
}


@pytest.mark.parametrize(("one", "other"), LOOKS.values(), ids=LOOKS.keys())
def test_what_is_remembered_of_a_call_is_not_taken_for_another(one: Call, other: Call) -> None:
    text = (
        '(has(request.headers.a) && request.headers["A"] == "b") '
        '|| ("a" in request.headers && request.headers.a == "") || request.headers["z"] == "1" '
        '|| request.path == "/a.B/C" || !has(request.host) || source.port == 80 '
        "|| xds.route_metadata.filter_metadata.a.b == 1"
    )
    asked = matcher(text)
    for each in (one, other, one, other):
        assert asked.matches(CallAttributes(each)) == (asked.outcome(CallAttributes(each)) is HOLDS)
    reads = tuple((step.variable, step.keys) for step in asked.program.steps)
    assert CallAttributes(one).seen(reads) != CallAttributes(other).seen(reads)


def test_long_texts_and_whole_maps_are_not_remembered_and_others_only_so_many() -> None:
    asked = matcher('request.headers.a.startsWith("b")')
    for number in range(1_000):
        assert asked.matches(CallAttributes(call(("a", f"b{number}"))))
        assert asked.matches(CallAttributes(call(("a", f"b{number}" + "x" * 300))))
    assert 0 < len(asked._known) <= 256
    assert all(len(str(each)) < 20 for each in asked._known)
    whole = matcher("size(request.headers) > 5")
    assert not whole.matches(CallAttributes(call()))
    assert not whole._known


IN_ANY_CASE = [
    '"X-Blocked" in request.headers',
    "has(request.headers.In)",
    'request.headers["X-Blocked"] == "1"',
    'request.headers.In == "2"',
    '!!("X-Blocked" in request.headers)',
    '[request.headers["X-Blocked"]] == ["1"]',
    '{"a": request.headers["X-Blocked"]} == {"a": "1"}',
    'request.headers["X-Blocked"].startsWith("1")',
]


@pytest.mark.requirement("CEL-8")
@pytest.mark.parametrize("text", IN_ANY_CASE)
@pytest.mark.parametrize("beside", ["true", "size(request.headers) > 0", 'request.headers != {"a": "b"}'])
def test_names_of_headers_are_in_any_case_also_beside_a_read_of_all_headers(text: str, beside: str) -> None:
    blocked = call(("x-blocked", "1"), ("in", "2"))
    for whole in (f"{beside} && {text}", f"!({beside} && !({text}))"):
        assert outcome(whole, blocked) is HOLDS


def test_a_computed_name_of_a_header_is_in_lower_case() -> None:
    assert outcome("request.headers[request.headers.a] == 'x'", call(("a", "b"), ("b", "x"))) is HOLDS
    assert outcome("request.headers[request.headers.a] == 'x'", call(("a", "B"), ("b", "x"))) == Failed(
        Code.NO_SUCH_KEY
    )


def test_an_unknown_authority_is_absent() -> None:
    unknown = replace(CALL, authority=None)
    assert outcome('request.host == ""', unknown) == Failed(Code.NO_SUCH_KEY)
    assert outcome('has(request.host) || "host" in request.headers || ":authority" in request.headers', unknown) is (
        HOLDS_NOT
    )


class Peer(NamedTuple):
    connection: Wire
    address: str
    ip: str
    port: int


PEERS = {
    "version 4": Peer(Wire(remote=Endpoint(address="10.0.0.1", port=4711)), "10.0.0.1:4711", "10.0.0.1", 4711),
    "version 6": Peer(Wire(remote=Endpoint(address="::1", port=80)), "[::1]:80", "::1", 80),
    "unix socket": Peer(Wire(remote=Endpoint(address="/run/s", port=0)), "/run/s", "/run/s", 0),
    "unnamed unix socket": Peer(Wire(remote=Endpoint()), "", "", 0),
}


@pytest.mark.requirement("CEL-9")
@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS.keys())
def test_a_server_sees_the_address_of_the_peer(peer: Peer) -> None:
    text = f'source.address == "{peer.address}" && source.ip == "{peer.ip}" && source.port == {peer.port}'
    assert outcome(text, replace(CALL, connection=peer.connection)) is HOLDS


@pytest.mark.requirement("CEL-9")
def test_a_server_sees_what_tls_says() -> None:
    pem = certificates.server("shop.example").certificate
    digest = sha256(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)).hexdigest()
    wire = Wire(tls_version="TLSv1.3", requested_server_name="shop.example", certificate=PeerCertificate(pem=pem))
    text = (
        'connection.tls_version == "TLSv1.3" && connection.requested_server_name == "shop.example" '
        f'&& connection.sha256_peer_certificate_digest == "{digest}"'
    )
    assert outcome(text, replace(CALL, connection=wire)) is HOLDS
    plain = (
        'connection.tls_version == "" && connection.requested_server_name == "" '
        '&& connection.sha256_peer_certificate_digest == ""'
    )
    assert outcome(plain, CALL) is HOLDS


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----"])
def test_a_certificate_that_cannot_be_read_has_no_digest(pem: bytes) -> None:
    odd = replace(CALL, connection=Wire(certificate=PeerCertificate(pem=pem)))
    assert outcome('connection.sha256_peer_certificate_digest == ""', odd) == Failed(Code.NO_SUCH_KEY)


@pytest.mark.requirement("CEL-9")
def test_a_call_without_a_connection_has_nothing_of_it() -> None:
    assert outcome('source.ip == ""', replace(CALL, connection=None)) == Failed(Code.NO_SUCH_KEY)
    assert isinstance(compile_call_expression('source.ip == ""', CLIENT_CALLS), tuple)


METADATA = FilterMetadata({"shop": {"tier": "gold", "limit": 5.0, "share": 0.5, "tags": ("a", "b"), "in": {"x": None}}})
KNOWN = [
    '{m}["shop"]["tier"] == "gold" && {m}.shop.tier == "gold"',
    "{m}.shop.limit == 5 && {m}.shop.limit + 1 == 6 && {m}.shop.limit < 5.5",
    '{m}.shop.share == 0.5 && "a" in {m}.shop.tags && {m}.shop["in"].x == null',
    '"shop" in {m} && !("other" in {m}) && has({m}.shop) && !has({m}.shop.nothing)',
]


@pytest.mark.requirement("CEL-10")
@pytest.mark.requirement("MD-2")
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("text", KNOWN)
@pytest.mark.parametrize("which", ["route", "cluster"])
def test_metadata_is_seen_on_both_sides(side: Side, text: str, which: str) -> None:
    told = replace(CALL if side is Side.SERVER else CLIENT_CALL, **{f"{which}_metadata": METADATA})  # type: ignore[arg-type]
    assert outcome(text.replace("{m}", f"xds.{which}_metadata.filter_metadata"), told) is HOLDS


@pytest.mark.requirement("CEL-10")
def test_without_metadata_the_map_is_empty() -> None:
    assert outcome("size(xds.route_metadata.filter_metadata) == 0", CALL) is HOLDS
    assert outcome("size(xds.cluster_metadata.filter_metadata) == 0", CALL) is HOLDS


def test_metadata_with_a_nul_character_says_nothing() -> None:
    odd = replace(CALL, route_metadata=FilterMetadata({"a": {"b": "c\0"}}))
    assert outcome('xds.route_metadata.filter_metadata.a.b == "c"', odd) == Failed(Code.NUL_IN_INPUT)


def test_numbers_that_no_integer_can_be_stay_doubles() -> None:
    large = replace(CALL, route_metadata=FilterMetadata({"a": {"b": 1e300}}))
    assert outcome("xds.route_metadata.filter_metadata.a.b > 1e299", large) is HOLDS
