from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, Watched, Wire, call, no_effects, packed

from authplane.core.problems import Problem
from authplane.dataplane.filters.calls import Call, Code, Endpoint, PeerCertificate, Proceed, Side, Stop
from authplane.dataplane.filters.rbac.filter import RbacFilter
from authplane.dataplane.filters.rbac.wire import RBAC, parse_rbac, parse_rbac_override
from authplane.dataplane.filters.registry import Packed, Registry, Scope, Trust

SCOPE: Final = Scope(side=Side.SERVER, trust=Trust(), registry=Registry.of())
ANYBODY: Final = pb.Principal(any=True)
ANYTHING: Final = pb.Permission(any=True)
DENIED: Final = Stop(code=Code.PERMISSION_DENIED, message="an RBAC policy denies the call")


def policy(permission: pb.Permission = ANYTHING, principal: pb.Principal = ANYBODY) -> pb.Policy:
    return pb.Policy(permissions=[permission], principals=[principal])


def rbac(action: int, **policies: pb.Policy) -> filter_pb.RBAC:
    message = filter_pb.RBAC()
    message.rules.action = action  # type: ignore[assignment]
    message.rules.SetInParent()
    for name, each in policies.items():
        message.rules.policies[name].CopyFrom(each)
    return message


def parse(message: filter_pb.RBAC) -> RbacFilter | list[str]:
    found = parse_rbac(packed(message), SCOPE)
    return found if isinstance(found, RbacFilter) else [str(problem) for problem in found]


def passes(message: filter_pb.RBAC, made: Call = CALL) -> bool:
    config = parse(message)
    assert isinstance(config, RbacFilter), config
    verdict = no_effects(config.build(Watched().state, None).run(made))
    assert verdict in (DENIED, Proceed(metadata=made.metadata))
    return isinstance(verdict, Proceed)


def keeps(permission: pb.Permission, made: Call) -> bool:
    """Tell whether a call has a permission; both actions must agree on it."""
    found = passes(rbac(pb.RBAC.ALLOW, p=policy(permission)), made)
    assert passes(rbac(pb.RBAC.DENY, p=policy(permission)), made) is not found
    negated = pb.Permission(not_rule=permission)
    assert passes(rbac(pb.RBAC.ALLOW, p=policy(negated)), made) is not found
    return found


def is_meant(principal: pb.Principal, made: Call) -> bool:
    """Tell whether a call is made by a principal; both actions must agree on it."""
    found = passes(rbac(pb.RBAC.ALLOW, p=policy(principal=principal)), made)
    assert passes(rbac(pb.RBAC.DENY, p=policy(principal=principal)), made) is not found
    negated = pb.Principal(not_id=principal)
    assert passes(rbac(pb.RBAC.ALLOW, p=policy(principal=negated)), made) is not found
    return found


# --- Actions and policies


@pytest.mark.parametrize(("action", "empty", "matched"), [(pb.RBAC.ALLOW, False, True), (pb.RBAC.DENY, True, False)])
def test_actions(action: int, empty: bool, matched: bool) -> None:
    assert passes(rbac(action)) is empty
    assert passes(rbac(action, p=policy())) is matched
    nobody = pb.Principal(not_id=ANYBODY)
    assert passes(rbac(action, p=policy(principal=nobody))) is empty
    assert passes(rbac(action, p=policy(principal=nobody), q=policy())) is matched


def test_log_is_as_if_there_were_no_rules() -> None:
    assert parse(rbac(pb.RBAC.LOG, p=pb.Policy())) == RbacFilter()
    assert parse(filter_pb.RBAC()) == RbacFilter()
    assert passes(filter_pb.RBAC())


def test_shadow_rules_and_audit_are_ignored() -> None:
    message = rbac(pb.RBAC.ALLOW, p=policy())
    want = parse(message)
    message.shadow_rules.action = pb.RBAC.DENY
    message.rules_stat_prefix = "x"
    message.rules.audit_logging_options.audit_condition = 1  # type: ignore[assignment]
    message.rules.audit_logging_options.logger_configs.add(is_optional=False)
    assert parse(message) == want


def test_a_policy_needs_one_of_its_permissions_and_one_of_its_principals() -> None:
    never = pb.Permission(not_rule=ANYTHING)
    nobody = pb.Principal(not_id=ANYBODY)
    both = pb.Policy(permissions=[never, ANYTHING], principals=[nobody, ANYBODY])
    assert passes(rbac(pb.RBAC.ALLOW, p=both))
    assert not passes(rbac(pb.RBAC.ALLOW, p=pb.Policy(permissions=[ANYTHING], principals=[nobody])))
    assert not passes(rbac(pb.RBAC.ALLOW, p=pb.Policy(permissions=[never], principals=[ANYBODY])))


def test_a_call_without_a_connection_is_not_permitted() -> None:
    assert not passes(rbac(pb.RBAC.DENY), CLIENT_CALL)
    assert RBAC.sides == {Side.SERVER}


# --- Rules


def permitted(**fields: Any) -> pb.Permission:
    return pb.Permission(**fields)


def meant(**fields: Any) -> pb.Principal:
    return pb.Principal(**fields)


def header(name: str, value: str, *, invert: bool = False) -> pb.Permission:
    made = pb.Permission()
    made.header.name, made.header.string_match.exact, made.header.invert_match = name, value, invert
    return made


CARRIER: Final = call(("x", "1"), ("x", "2"), ("y-bin", b"\0\1"), ("te", "trailers"), ("host", "evil"))
CERTIFIED: Final = replace(CALL, connection=Wire(certificate=PeerCertificate(subject="CN=a"), tls_version="TLSv1.3"))
PERMISSIONS: Final[dict[str, tuple[pb.Permission, Call, bool]]] = {
    "a header": (header("X", "1,2"), CARRIER, True),
    "a header in part": (header("x", "1"), CARRIER, False),
    "a binary header": (header("y-bin", "AAE"), CARRIER, True),
    "a header that is missing": (header("z", ""), CARRIER, False),
    "a header that is missing, inverted": (header("z", "", invert=True), CARRIER, False),
    "te is never there": (header("te", "trailers"), CARRIER, False),
    ":method": (header(":method", "POST"), CARRIER, True),
    ":path": (header(":path", "/shop.Cart/Add"), CARRIER, True),
    ":authority": (header(":authority", "shop.example:443"), CARRIER, True),
    "host is :authority": (header("host", "shop.example:443"), CARRIER, True),
    "content-type": (header("content-type", "application/grpc"), CARRIER, True),
    "a method": (permitted(url_path={"path": {"exact": "/shop.Cart/Add"}}), CALL, True),
    "a service": (permitted(url_path={"path": {"prefix": "/shop.Cart/"}}), CALL, True),
    "another service": (permitted(url_path={"path": {"prefix": "/shop.Till/"}}), CALL, False),
    "our port": (permitted(destination_port=50051), CALL, True),
    "another port": (permitted(destination_port=50052), CALL, False),
    "a range of ports": (permitted(destination_port_range={"start": 50051, "end": 50052}), CALL, True),
    "a range ends before its end": (permitted(destination_port_range={"start": 1, "end": 50051}), CALL, False),
    "our address": (
        permitted(destination_ip={"address_prefix": "10.9.9.9", "prefix_len": {"value": 32}}),
        CALL,
        True,
    ),
    "metadata never matches": (permitted(metadata={"filter": "x"}), CALL, False),
    "metadata, inverted": (permitted(metadata={"filter": "x", "invert": True}), CALL, True),
    "a server name is empty": (permitted(requested_server_name={"exact": ""}), CERTIFIED, True),
    "a server name that is not empty": (permitted(requested_server_name={"prefix": "a"}), CERTIFIED, False),
    "all": (permitted(and_rules={"rules": [ANYTHING, header("x", "1,2")]}), CARRIER, True),
    "not all": (permitted(and_rules={"rules": [ANYTHING, header("x", "1")]}), CARRIER, False),
    "some": (permitted(or_rules={"rules": [header("x", "1"), ANYTHING]}), CARRIER, True),
    "none": (permitted(or_rules={"rules": [header("x", "1"), header("x", "2")]}), CARRIER, False),
}


@pytest.mark.parametrize(("permission", "made", "want"), PERMISSIONS.values(), ids=PERMISSIONS.keys())
def test_permissions(permission: pb.Permission, made: Call, want: bool) -> None:
    assert keeps(permission, made) is want


def network(prefix: str, length: int | None) -> pb.Principal:
    made = pb.Principal()
    made.source_ip.address_prefix = prefix
    if length is not None:
        made.source_ip.prefix_len.value = length
    return made


NETWORKS: Final = {
    "inside": (network("10.1.0.0", 16), "10.1.2.3", True),
    "low bits do not count": (network("10.1.255.255", 16), "10.1.2.3", True),
    "outside": (network("10.2.0.0", 16), "10.1.2.3", False),
    "no length is everybody": (network("10.2.0.0", None), "192.168.0.1", True),
    "a length is cut": (network("10.1.2.3", 99), "10.1.2.3", True),
    "IPv6": (network("2001:db8::", 32), "2001:db8::7", True),
    "IPv4 is not IPv6": (network("::", 0), "10.1.2.3", False),
    "IPv4 as a part of IPv6": (network("10.1.0.0", 16), "::ffff:10.1.2.3", True),
    "a network of IPv4 as a part of IPv6": (network("::ffff:10.1.0.0", 112), "10.1.2.3", True),
    "a scoped address": (network("fe80::", 10), "fe80::1%eth0", True),
    "a socket has no address": (network("0.0.0.0", 0), "/run/a.sock", False),
}


@pytest.mark.parametrize(("principal", "address", "want"), NETWORKS.values(), ids=NETWORKS.keys())
def test_addresses(principal: pb.Principal, address: str, want: bool) -> None:
    made = replace(CALL, connection=Wire(remote=Endpoint(address=address, port=1)))
    assert is_meant(principal, made) is want
    for same in (
        meant(direct_remote_ip=principal.source_ip),
        meant(remote_ip=principal.source_ip),
    ):
        assert is_meant(same, made) is want


def named(name: str | None) -> pb.Principal:
    made = pb.Principal()
    made.authenticated.SetInParent()
    if name is not None:
        made.authenticated.principal_name.exact = name
    return made


FULL: Final = PeerCertificate(uris=("spiffe://a", "spiffe://b"), dns_names=("d.example",), subject="CN=s")
PEERS: Final = {
    "any URI name": (named("spiffe://b"), Wire(certificate=FULL), True),
    "no DNS name beside URI names": (named("d.example"), Wire(certificate=FULL), False),
    "a DNS name": (named("d.example"), Wire(certificate=replace(FULL, uris=())), True),
    "no subject beside DNS names": (named("CN=s"), Wire(certificate=replace(FULL, uris=())), False),
    "the subject": (named("CN=s"), Wire(certificate=PeerCertificate(subject="CN=s")), True),
    "nobody is empty": (named(""), Wire(tls_version="TLSv1.3"), True),
    "nobody is not somebody": (named("spiffe://a"), Wire(tls_version="TLSv1.3"), False),
    "TLS is enough without a name": (named(None), Wire(tls_version="TLSv1.3"), True),
    "plain text is not": (named(None), Wire(), False),
    "plain text is not even nobody": (named(""), Wire(), False),
}


@pytest.mark.parametrize(("principal", "connection", "want"), PEERS.values(), ids=PEERS.keys())
def test_who_a_client_is(principal: pb.Principal, connection: Wire, want: bool) -> None:
    assert is_meant(principal, replace(CALL, connection=connection)) is want


def test_principals_can_be_combined() -> None:
    inside, outside = network("10.1.0.0", 16), network("10.2.0.0", 16)
    assert is_meant(meant(or_ids={"ids": [outside, inside]}), CALL)
    assert not is_meant(meant(and_ids={"ids": [outside, inside]}), CALL)
    assert is_meant(meant(url_path={"path": {"suffix": "/Add"}}), CALL)
    assert is_meant(meant(metadata={"filter": "x", "invert": True}), CALL)
    made = pb.Principal()
    made.header.name, made.header.present_match = "user-agent", True
    assert is_meant(made, CALL)


NOT_EVIL: Final = permitted(not_rule={"header": {"name": ":authority", "string_match": {"exact": "evil.example"}}})
OF_HOST: Final = meant(
    and_ids={"ids": [ANYBODY, {"or_ids": {"ids": [{"header": {"name": "Host", "present_match": True}}]}}]}
)


ON_OURS: Final = permitted(destination_ip={"address_prefix": "10.8.0.0", "prefix_len": {"value": 16}})
ON_PORT: Final = permitted(or_rules={"rules": [{"not_rule": {"destination_port": 50052}}]})
UNNAMED: Final = replace(CALL, authority=None)
ANYWHERE: Final = replace(CALL, connection=Wire(local=Endpoint(address="0.0.0.0", port=50051)))
NOWHERE: Final = replace(CALL, connection=Wire(local=Endpoint()))
UNKNOWN: Final = {
    "an authority": (policy(NOT_EVIL), UNNAMED),
    "an authority, of a principal": (policy(principal=OF_HOST), UNNAMED),
    "our address": (policy(ON_OURS), NOWHERE),
    "our address of several": (policy(ON_OURS), ANYWHERE),
    "our port": (policy(ON_PORT), NOWHERE),
}


@pytest.mark.parametrize("action", [pb.RBAC.ALLOW, pb.RBAC.DENY])
@pytest.mark.parametrize(("rule", "made"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_rules_on_unknown_values_deny_every_call(action: int, rule: pb.Policy, made: Call) -> None:
    never = policy(pb.Permission(not_rule=ANYTHING))
    assert not passes(rbac(action, p=rule), made)
    assert not passes(rbac(action, a=never, p=rule), made)
    assert passes(rbac(action, p=rule)) is not passes(rbac(pb.RBAC.DENY - action, p=rule))
    assert passes(rbac(pb.RBAC.ALLOW, p=policy()), made)


def test_the_port_of_any_address_is_known() -> None:
    assert keeps(ON_PORT, ANYWHERE)


# --- Problems


class Wrong(NamedTuple):
    message: filter_pb.RBAC
    problems: list[str]


def with_matcher() -> filter_pb.RBAC:
    made = filter_pb.RBAC()
    made.matcher.SetInParent()
    return made


def with_condition(field: str) -> pb.Policy:
    made = policy()
    getattr(made, field).SetInParent()
    return made


AT: Final = "rules.policies.p"
WRONG: Final = {
    "a condition": Wrong(
        rbac(0, p=with_condition("condition")),
        [f"{AT}.condition: The field is not supported. Remove it. [ConditionUnsupported]"],
    ),
    "a checked condition": Wrong(
        rbac(0, p=with_condition("checked_condition")),
        [f"{AT}.checked_condition: The field is not supported. Remove it. [ConditionUnsupported]"],
    ),
    "an action that nobody knows": Wrong(
        rbac(9, p=policy()), ["rules.action: 9 is not an action. Supported: ALLOW, DENY, LOG. [ActionUnknown]"]
    ),
    "a header that may be missing": Wrong(
        rbac(0, p=policy(permitted(header={"name": "x", "exact_match": "", "treat_missing_header_as_empty": True}))),
        [
            f"{AT}.permissions[0].header.treat_missing_header_as_empty: "
            "treat_missing_header_as_empty is not supported. Remove it; a missing header matches nothing."
            " [MatcherUnsupported]"
        ],
    ),
    "a header of gRPC": Wrong(
        rbac(0, p=policy(header("Grpc-Timeout", "1"))),
        [
            f"{AT}.permissions[0].header.name: Rules cannot read header 'grpc-timeout'. Use another header."
            " [HeaderUnsupported]"
        ],
    ),
    "the scheme": Wrong(
        rbac(0, p=policy(header(":scheme", "https"))),
        [
            f"{AT}.permissions[0].header.name: Rules cannot read header ':scheme'. Use another header."
            " [HeaderUnsupported]"
        ],
    ),
    "nothing permitted and nobody meant": Wrong(
        rbac(0, p=pb.Policy()),
        [
            f"{AT}.permissions: The list is empty. Add a rule. [RulesMissing]",
            f"{AT}.principals: The list is empty. Add a rule. [RulesMissing]",
        ],
    ),
    "rules that say nothing": Wrong(
        rbac(0, p=policy(pb.Permission(), pb.Principal())),
        [
            f"{AT}.permissions[0]: The permission is empty. Set a rule. [RuleMissing]",
            f"{AT}.principals[0]: The principal is empty. Set an identifier. [RuleMissing]",
        ],
    ),
    "empty sets": Wrong(
        rbac(0, p=policy(permitted(and_rules={}), meant(or_ids={}))),
        [
            f"{AT}.permissions[0].and_rules.rules: The list is empty. Add a rule. [RulesMissing]",
            f"{AT}.principals[0].or_ids.ids: The list is empty. Add a rule. [RulesMissing]",
        ],
    ),
    "any that is false": Wrong(
        rbac(0, p=policy(permitted(any=False))),
        [f"{AT}.permissions[0].any: any is false. Set it to true. [RuleInvalid]"],
    ),
    "what is not supported": Wrong(
        rbac(0, p=policy(permitted(uri_template={"name": "x"}), meant(filter_state={"key": "x"}))),
        [
            f"{AT}.permissions[0].uri_template: The field is not supported. Remove it. [RuleUnsupported]",
            f"{AT}.principals[0].filter_state: The field is not supported. Remove it. [RuleUnsupported]",
        ],
    ),
    "an address that is none, deep inside": Wrong(
        rbac(0, p=policy(principal=meant(not_id={"and_ids": {"ids": [network("a", 1)]}}))),
        [
            f"{AT}.principals[0].not_id.and_ids.ids[0].source_ip.address_prefix: "
            "'a' is not an IP address. Use an IPv4 or IPv6 address. [AddressInvalid]"
        ],
    ),
    "a matcher, which must not be taken for no rules": Wrong(
        with_matcher(), ["matcher: matcher is not supported. Use rules. [MatcherUnsupported]"]
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_problems(case: Wrong) -> None:
    assert parse(case.message) == case.problems


# --- Overrides


def override(change: Callable[[filter_pb.RBACPerRoute], object]) -> object:
    message = filter_pb.RBACPerRoute()
    change(message)
    return parse_rbac_override(packed(message), SCOPE)


def test_an_override_replaces_the_whole() -> None:
    closed = parse(rbac(pb.RBAC.ALLOW))
    assert isinstance(closed, RbacFilter)
    state = Watched().state
    assert no_effects(closed.build(state, None).run(CALL)) == DENIED
    for opened in (
        override(lambda _: None),
        override(lambda message: message.rbac.CopyFrom(rbac(pb.RBAC.ALLOW, p=policy()))),
    ):
        assert isinstance(opened, RbacFilter)
        assert isinstance(no_effects(closed.build(state, opened).run(CALL)), Proceed)
        assert no_effects(opened.build(state, closed).run(CALL)) == DENIED


def test_bytes_that_are_no_message_are_refused() -> None:
    rules = "envoy.extensions.filters.http.rbac.v3.RBAC"
    unreadable = Packed("x", b"\xff")
    assert parse_rbac(unreadable, SCOPE) == (Problem((), "Unreadable", f"Cannot decode the bytes. Expected {rules}."),)
    assert parse_rbac_override(unreadable, SCOPE) == (
        Problem((), "Unreadable", f"Cannot decode the bytes. Expected {rules}PerRoute."),
    )


def test_problems_of_an_override_have_their_path() -> None:
    found = override(lambda message: message.rbac.CopyFrom(rbac(9)))
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [
        "rbac.rules.action: 9 is not an action. Supported: ALLOW, DENY, LOG. [ActionUnknown]"
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_raise(data: bytes) -> None:
    parse_rbac_override(Packed("x", data), SCOPE)
    parse_rbac(Packed("x", data), SCOPE)
    try:
        message = rbac(0, p=pb.Policy(permissions=[pb.Permission.FromString(data)]))
    except DecodeError:
        return
    found = parse_rbac(packed(message), SCOPE)
    assert isinstance(found, tuple)
