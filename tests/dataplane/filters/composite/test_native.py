"""What only our servers tell of calls, and the override in which they are asked for it."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as pb
from google.protobuf import struct_pb2
from google.protobuf.message import Message
from tests.dataplane.filters.composite.parts import CLIENT, SERVER
from tests.support.dataplane.driven_calls import packed
from tests.support.issuers.svids import AGENT, NOW, certificate, purposes, uri, usage
from tests.support.issuers.svids import CLIENT as FOR_CLIENTS
from xds.type.matcher.v3 import matcher_pb2
from xds.type.v3 import typed_struct_pb2

from authplane.dataplane.filters.calls import Call, Connection, Endpoint, PeerCertificate, Side
from authplane.dataplane.filters.composite.filter import Action, Choice, Skip
from authplane.dataplane.filters.composite.native.native_inputs import PLAIN, PlainInput, WorkloadInput
from authplane.dataplane.filters.composite.wire import parse_override
from authplane.dataplane.filters.registry import Scope
from authplane.grpc.matching import composite_override, first_match, header, skip, when
from authplane.matching.matcher_tree import Act, Branch, ListMatcher, Single
from authplane.matching.string_matchers import Exact
from authplane.matching.tree_inputs import TextMatcher

NOWHERE: Final = Endpoint()
OTHER: Final = "spiffe://cluster.local/ns/default/sa/other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A connection of which only the certificate is known."""

    certificate: PeerCertificate | None
    remote: Endpoint = NOWHERE
    local: Endpoint = NOWHERE
    own_principal: str = ""
    tls_version: str = "TLSv1.3"
    requested_server_name: str = ""


def call(path: str = "/shop.Orders/Get", *metadata: tuple[str, str | bytes], peer: Connection | None = None) -> Call:
    return Call(
        side=Side.SERVER,
        path=path,
        authority=None,
        metadata=metadata,
        started=NOW,
        remaining=None,
        connection=peer,
    )


# --- Calls that a server may judge


INPUT: Final = PlainInput(absent=frozenset({"x-spiffe-id", "remote-user"}), single=frozenset({"x-a", "b"}))
A: Final = "/shop.Orders/Get"
PLAIN_CALLS: Final[dict[str, Call]] = {
    "nothing else": call(),
    "headers": call(A, ("x-a", "b"), ("c_d", "e"), ("c_d", "f"), ("g-bin", b"\x00\xff")),
    "headers that nobody asks for twice": call(A, ("x-c", "b"), ("x-c", "b")),
    "as many headers as go": call(A, ("c", "d" * 16_000)),
}
ODD_CALLS: Final[dict[str, Call]] = {
    "dots": call("/shop.Orders/.."),
    "an escape": call("/shop.Orders/%47et"),
    "a query": call("/shop.Orders/Get?a"),
    "no path": call(""),
    "a header that claims to be somebody": call(A, ("x-spiffe-id", "a")),
    "one that does so in another spelling": call(A, ("x_spiffe-id", "a")),
    "and in yet another": call(A, ("remote_user", "a")),
    "a header twice": call(A, ("x-a", "b"), ("c", "d"), ("x-a", "b")),
    "a header and one like it": call(A, ("x-a", "b"), ("x_a", "c")),
    "only one like it": call(A, ("x_a", "b")),
    "a name in upper case": call(A, ("X-A", "b")),
    "a name that is none": call(A, ("x a", "b")),
    "a value that is not ASCII": call(A, ("c", "é")),
    "a value with odd bytes": call(A, ("c", "\udcff")),
    "a value with a NUL": call(A, ("c", "d\0")),
    "more headers than the policy engine reads all of": call(A, ("c", "d" * 16_384)),
    "more of them together": call(A, *(("c", "d" * 1000) for _ in range(17))),
    "more bytes": call(A, ("c-bin", b"d" * 8192)),
}


@pytest.mark.parametrize("plain", PLAIN_CALLS.values(), ids=PLAIN_CALLS.keys())
def test_an_unambiguous_call_is_plain(plain: Call) -> None:
    assert [INPUT.read(plain), INPUT.read(plain)] == [PLAIN, PLAIN]


@pytest.mark.parametrize("odd", ODD_CALLS.values(), ids=ODD_CALLS.keys())
def test_a_call_that_the_policy_engine_doubts_or_changes_is_not_plain(odd: Call) -> None:
    assert [INPUT.read(odd), INPUT.read(odd)] == [None, None]


def test_names_that_clients_make_up_are_not_remembered_for_ever() -> None:
    for number in range(3000):
        assert INPUT.read(call(A, (f"made-up-{number}", "a"))) == PLAIN
    assert len(INPUT._known) <= 1024


# --- Workloads


def shown(*names: Any, principal: str = AGENT, **more: Any) -> Peer:
    pem = certificate(*names, **more).public_bytes(Encoding.PEM)
    return Peer(certificate=PeerCertificate(uris=(principal,), pem=pem))


PEERS: Final[dict[str, tuple[Connection | None, timedelta, str | None]]] = {
    "a workload": (shown(uri()), timedelta(), AGENT),
    "another workload": (shown(uri(OTHER), principal=OTHER), timedelta(), OTHER),
    "a certificate that has ended meanwhile": (shown(uri()), timedelta(hours=2), None),
    "a certificate that is not yet valid": (shown(uri()), timedelta(hours=-2), None),
    "two ids": (shown(uri(), uri(OTHER)), timedelta(), None),
    "an id twice": (shown(uri(), uri()), timedelta(), None),
    "another principal than in the certificate": (shown(uri(), principal=OTHER), timedelta(), None),
    "a certificate that is not for clients": (
        shown(uri(), extensions=(*FOR_CLIENTS[:2], purposes(ExtendedKeyUsageOID.SERVER_AUTH))),
        timedelta(),
        None,
    ),
    "the certificate of an authority": (
        shown(uri(), extensions=(FOR_CLIENTS[0], usage("digital_signature", "key_cert_sign"))),
        timedelta(),
        None,
    ),
    "what is no certificate": (Peer(certificate=PeerCertificate(uris=(AGENT,), pem=b"x")), timedelta(), None),
    "no certificate": (Peer(certificate=None), timedelta(), None),
    "no connection": (None, timedelta(), None),
}


@pytest.mark.parametrize(("peer", "later", "wanted"), PEERS.values(), ids=PEERS.keys())
def test_a_workload_is_who_has_proved_it_to_the_policy_engine(
    peer: Connection | None, later: timedelta, wanted: str | None
) -> None:
    asked = replace(call(peer=peer), started=NOW + later)
    assert [WorkloadInput().read(asked), WorkloadInput().read(asked)] == [wanted, wanted]


# --- The override


def native(kind: str, **fields: Any) -> Message:
    value = struct_pb2.Struct()
    value.update(fields)
    return typed_struct_pb2.TypedStruct(type_url=f"type.googleapis.com/authplane.native.v1.{kind}", value=value)


def carried(source: Message, name: str = "authplane.native") -> extension_pb2.TypedExtensionConfig:
    """Return an override whose tree has one input of ours."""
    choice = composite_override(first_match(when(header("x").is_("a"), then=skip())))
    tree = matcher_pb2.Matcher()
    tree.CopyFrom(choice.xds_matcher)
    tree.matcher_list.matchers[0].predicate.single_predicate.input.typed_config.Pack(source)
    made = extension_pb2.TypedExtensionConfig(name=name)
    made.typed_config.Pack(pb.ExtensionWithMatcherPerRoute(xds_matcher=tree))
    return made


def read(message: Message, scope: Scope = SERVER) -> Choice | list[str]:
    found = parse_override(packed(message), scope)
    return [str(each) for each in found] if isinstance(found, tuple) else found


def test_an_override_of_ours_has_inputs_that_others_do_not_have() -> None:
    for source, wanted in (
        (native("Workload"), WorkloadInput()),
        (
            native("PlainCall", absent=["a"], single=["b"]),
            PlainInput(absent=frozenset({"a"}), single=frozenset({"b"})),
        ),
    ):
        branch: Branch[Call, Action] = Branch(Single(wanted, TextMatcher(Exact("a"))), Act(Skip()))
        assert read(carried(source)) == Choice(ListMatcher(branches=(branch,)))


AT: Final = "typed_config.xds_matcher.matcher_list.matchers[0].predicate.single_predicate.input.typed_config"
REFUSED: Final[dict[str, tuple[Message, Scope, list[str]]]] = {
    "on a client": (
        carried(native("Workload")),
        CLIENT,
        ["name: 'authplane.native' is not a supported extension on clients. Remove the override. [NameUnknown]"],
    ),
    "of another name": (
        carried(native("Workload"), "other"),
        SERVER,
        ["name: 'other' is not a supported extension on servers. Remove the override. [NameUnknown]"],
    ),
    "of another type": (
        extension_pb2.TypedExtensionConfig(name="authplane.native"),
        SERVER,
        [
            "typed_config: The override type is not supported. Expected"
            " envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute. [TypeUnsupported]",
            "typed_config.type_url: This field is required. Add it. [Missing]",
        ],
    ),
    "with an unknown input": (
        carried(native("Other")),
        SERVER,
        [f"{AT}: 'authplane.native.v1.Other' is not a supported input. Use another input. [TypeUnknown]"],
    ),
    "with an input that asks for more": (
        carried(native("Workload", domain="a")),
        SERVER,
        [f"{AT}.value.domain: The field is unknown. Remove it. [FieldUnknown]"],
    ),
    "with an input that is not written right": (
        carried(native("PlainCall", absent="a", single=[1])),
        SERVER,
        [
            f"{AT}.value.absent: The value is not a list of strings. Use a list of strings. [Invalid]",
            f"{AT}.value.single: The value is not a list of strings. Use a list of strings. [Invalid]",
        ],
    ),
    "with an input that does not say what it looks for": (
        carried(native("PlainCall", single=[])),
        SERVER,
        [f"{AT}.value.absent: The value is not a list of strings. Use a list of strings. [Invalid]"],
    ),
}


@pytest.mark.parametrize(("message", "scope", "wanted"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_known_is_refused(message: Message, scope: Scope, wanted: list[str]) -> None:
    found = read(message, scope)
    assert isinstance(found, list)
    assert sorted(found) == sorted(wanted)


def test_no_other_tree_has_those_inputs() -> None:
    choice = pb.ExtensionWithMatcherPerRoute.FromString(carried(native("Workload")).typed_config.value)
    assert read(choice) == [
        f"{AT.removeprefix('typed_config.')}.type_url: 'xds.type.v3.TypedStruct' is not a supported input."
        " Use another input."
        " [TypeUnknown]"
    ]
