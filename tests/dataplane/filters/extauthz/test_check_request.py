from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote

import pytest
from envoy.config.core.v3 import address_pb2, base_pb2
from envoy.service.auth.v3 import attribute_context_pb2 as context_pb
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf import timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.authservers.answers import parse_check
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, STARTED, Wire, call

from authplane.dataplane.filters.calls import Call, Endpoint, PeerCertificate
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown
from authplane.dataplane.filters.extauthz.check_messages.wire import Questions
from authplane.matching.string_matchers import Exact, Prefix
from authplane.policy.check.request import Request

PEM: Final = b"-----BEGIN CERTIFICATE-----\nMII+/=\n-----END CERTIFICATE-----\n"
CERTIFICATE: Final = PeerCertificate(uris=("spiffe://td/a",), dns_names=("a.example",), subject="CN=a", pem=PEM)
TLS: Final = Wire(certificate=CERTIFICATE, own_principal="spiffe://td/own", tls_version="TLSv1.3")


def asked(call: Call, shown: Shown = Shown()) -> context_pb.AttributeContext:  # noqa: B008 (frozen)
    return pb.CheckRequest.FromString(Questions(shown).check(call)).attributes


def socket(address: str, port: int) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=address, port_value=port))


@pytest.mark.requirement("EA-21", "EA-22", "EA-23", "EA-25", "HM-3")
def test_a_check_has_exactly_these_attributes() -> None:
    http = context_pb.AttributeContext.HttpRequest(
        method="POST",
        path="/shop.Cart/Add",
        size=-1,
        protocol="HTTP/2",
        header_map=base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key="user-agent", raw_value=b"test")]),
    )
    want = context_pb.AttributeContext(
        source=context_pb.AttributeContext.Peer(address=socket("10.1.2.3", 4711), principal="spiffe://td/a"),
        destination=context_pb.AttributeContext.Peer(address=socket("10.9.9.9", 50051), principal="spiffe://td/own"),
        request=context_pb.AttributeContext.Request(
            time=timestamp_pb2.Timestamp(seconds=int(STARTED.timestamp()), nanos=250_000_000), http=http
        ),
    )
    assert asked(replace(CALL, connection=TLS)) == want


@pytest.mark.requirement("EA-21", "EA-22")
def test_without_tls_there_is_no_principal_and_both_addresses_are_set() -> None:
    attributes = asked(CALL)
    assert attributes.source == context_pb.AttributeContext.Peer(address=socket("10.1.2.3", 4711))
    assert attributes.destination == context_pb.AttributeContext.Peer(address=socket("10.9.9.9", 50051))
    unknown = asked(replace(CALL, connection=Wire(remote=Endpoint(), local=Endpoint())))
    assert unknown.HasField("source")
    assert unknown.HasField("destination")
    assert not unknown.source.HasField("address")


@pytest.mark.requirement("EA-21")
def test_a_unix_socket_is_a_pipe() -> None:
    connection = Wire(remote=Endpoint(address="/run/a.sock"), local=Endpoint(address="/run/b.sock"))
    attributes = asked(replace(CALL, connection=connection))
    assert attributes.source.address == address_pb2.Address(pipe=address_pb2.Pipe(path="/run/a.sock"))
    assert attributes.destination.address == address_pb2.Address(pipe=address_pb2.Pipe(path="/run/b.sock"))


@pytest.mark.requirement("EA-21")
@pytest.mark.parametrize(
    ("certificate", "principal"),
    [
        (CERTIFICATE, "spiffe://td/a"),
        (PeerCertificate(dns_names=("b", "c"), subject="CN=a"), "b"),
        (PeerCertificate(subject=r"CN=cli,O=Acme\, Inc."), r"CN=cli,O=Acme\, Inc."),
    ],
)
def test_the_principal_is_the_first_name_of_the_first_kind(certificate: PeerCertificate, principal: str) -> None:
    assert asked(replace(CALL, connection=Wire(certificate=certificate))).source.principal == principal


@pytest.mark.requirement("EA-21", "EA-8")
def test_the_certificate_is_percent_encoded_and_there_only_on_request() -> None:
    connected = replace(CALL, connection=TLS)
    assert asked(connected).source.certificate == ""
    found = asked(connected, Shown(peer_certificate=True)).source.certificate
    assert unquote(found).encode() == PEM
    assert found.startswith("-----BEGIN%20CERTIFICATE-----%0AMII%2B%2F%3D%0A")
    assert asked(CALL, Shown(peer_certificate=True)).source.certificate == ""


def test_a_client_has_no_connection_to_tell_of() -> None:
    attributes = asked(CLIENT_CALL)
    assert not attributes.HasField("source")
    assert not attributes.HasField("destination")
    assert attributes.request.http.path == "/shop.Cart/Add"


class Headers(NamedTuple):
    shown: Shown
    want: str


SELECTIONS: Final = {
    "all": Headers(Shown(), "a a ab b"),
    "allowed ones": Headers(Shown(allowed_headers=(Exact("a"),)), "a a"),
    "not the disallowed": Headers(Shown(disallowed_headers=(Exact("a"),)), "ab b"),
    "disallowed first": Headers(Shown(allowed_headers=(Prefix("a"),), disallowed_headers=(Exact("a"),)), "ab"),
    "a set narrows": Headers(Shown(only_headers=frozenset({"a", "b"}), disallowed_headers=(Exact("a"),)), "b"),
}


@pytest.mark.requirement("EA-24", "EA-6")
@pytest.mark.parametrize("case", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_headers_are_selected(case: Headers) -> None:
    made = call(("a", "1"), ("a", "2"), ("ab", "3"), ("b", "4"))
    assert [each.key for each in asked(made, case.shown).request.http.header_map.headers] == case.want.split()


@pytest.mark.requirement("EA-24", "HM-3")
def test_each_value_is_separate_as_raw_bytes_and_binary_ones_as_on_the_wire() -> None:
    found = asked(call(("x", "1"), ("x", "2"), ("x-bin", b"\0\1"), ("y", ""))).request.http
    assert list(found.header_map.headers) == [
        base_pb2.HeaderValue(key="x", raw_value=b"1"),
        base_pb2.HeaderValue(key="x", raw_value=b"2"),
        base_pb2.HeaderValue(key="x-bin", raw_value=b"AAE"),
        base_pb2.HeaderValue(key="y"),
    ]
    assert dict(found.headers) == {}


def test_a_call_without_headers_still_has_the_map() -> None:
    assert asked(call()).request.http.HasField("header_map")


def test_the_form_for_servers_made_for_envoy_has_headers_and_host_as_well() -> None:
    made = call(("x", "1"), ("x", "2"), ("x-bin", b"\0\1"), ("odd", "caf\u00e9"), ("y", "a\tb"))
    http = asked(made, Shown(form=CheckForm.ENVOY)).request.http
    assert http.host == "shop.example:443"
    assert dict(http.headers) == {"x": "1,2", "x-bin": "AAE", "odd": "caf!!", "y": "a\tb"}
    assert len(http.header_map.headers) == 5
    assert asked(replace(made, authority=None), Shown(form=CheckForm.ENVOY)).request.http.host == ""


def test_our_own_server_reads_both_forms_alike() -> None:
    made = call(("authorization", "Bearer x"), ("x", "1"), ("x", "2"))
    plain, both = (parse_check(Questions(Shown(form=form)).check(made)) for form in CheckForm)
    assert isinstance(plain, Request)
    assert isinstance(both, Request)
    for read in (plain, both):
        assert (read.method, read.path, read.source.address) == ("POST", "/shop.Cart/Add", "10.1.2.3")
        assert read.headers[:3] == (("authorization", "Bearer x"), ("x", "1"), ("x", "2"))


def test_a_key_is_the_same_at_any_time_and_from_any_port() -> None:
    questions = Questions(Shown())
    later = replace(
        CALL,
        started=STARTED.replace(year=2027),
        connection=Wire(remote=Endpoint(address="10.1.2.3", port=5)),
    )
    assert questions.key(CALL) == questions.key(later)


_NAMES = st.sampled_from(["x-a", "x-hidden", "x-bin"])
_CERTIFICATES = st.none() | st.builds(
    PeerCertificate,
    uris=st.sampled_from([(), ("spiffe://a/b",)]),
    dns_names=st.sampled_from([(), ("x-bin",)]),
    subject=st.just("CN=a"),
    pem=st.sampled_from([b"", b"pem"]),
)
_ENDPOINTS = st.builds(Endpoint, address=st.sampled_from(["10.1.1.1", "10.1.1.2"]), port=st.sampled_from([0, 7]))
_WIRES = st.builds(
    Wire,
    remote=_ENDPOINTS,
    local=_ENDPOINTS,
    certificate=_CERTIFICATES,
    own_principal=st.sampled_from(["", "x-bin"]),
)
_CALLS = st.builds(
    replace,
    st.just(CALL),
    path=st.sampled_from(["/a.B/c", "/a.B/d"]),
    authority=st.sampled_from([None, "shop.example"]),
    metadata=st.lists(st.tuples(_NAMES, st.sampled_from(["", "1", b"pem"])), max_size=3).map(tuple),
    connection=_WIRES,
)
_SHOWN = st.builds(
    Shown,
    disallowed_headers=st.sampled_from([(), (Exact("x-hidden"),)]),
    peer_certificate=st.booleans(),
    peer_address=st.booleans(),
    form=st.sampled_from(CheckForm),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_SHOWN, _CALLS, _CALLS)
def test_calls_that_a_service_can_tell_apart_have_different_keys(shown: Shown, one: Call, other: Call) -> None:
    def lasting(made: Call) -> bytes:
        message = pb.CheckRequest.FromString(Questions(shown).check(made))
        message.attributes.request.ClearField("time")
        if message.attributes.source.address.HasField("socket_address"):
            message.attributes.source.address.socket_address.port_value = 1
        return message.SerializeToString(deterministic=True)

    questions = Questions(shown)
    if questions.key(one) == questions.key(other):
        assert lasting(one) == lasting(other)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_SHOWN, st.lists(_CALLS, min_size=2, max_size=6))
def test_a_check_has_nothing_of_those_before_it(shown: Shown, calls: list[Call]) -> None:
    questions = Questions(shown)
    for each in calls:
        asked_before = pb.CheckRequest.FromString(questions.check(each)).attributes
        assert asked_before == asked(each, shown)


def test_without_the_address_of_the_peer_nothing_tells_it() -> None:
    attributes = asked(CALL, Shown(peer_address=False))
    assert attributes.HasField("source")
    assert not attributes.source.HasField("address")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=5), st.text(max_size=8) | st.binary(max_size=8)), max_size=4),
    st.text(max_size=10),
)
def test_whatever_a_client_sends_can_be_asked_about(pairs: list[tuple[str, str | bytes]], path: str) -> None:
    for form in CheckForm:
        attributes = asked(replace(call(*pairs), path=path, authority=path), Shown(form=form))
        assert len(attributes.request.http.header_map.headers) == len(pairs)


def test_odd_characters_do_not_break_a_check() -> None:
    odd = replace(call(("x\udc80", "\udcff")), path="/a/\udcff", authority="\udcff")
    assert asked(odd, Shown(form=CheckForm.ENVOY)).request.http.path == "/a/?"
