"""``RBAC`` to our value, and the filter as the registry knows it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from envoy.config.core.v3 import address_pb2
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from envoy.type.matcher.v3 import path_pb2
from google.protobuf.message import DecodeError

from authplane.core.problems import Problem, Problems
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.networks import Network, network_of
from authplane.dataplane.filters.rbac.filter import Action, Policy, Rbac, RbacFilter
from authplane.dataplane.filters.rbac.rbac_rules import (
    All,
    Always,
    Authenticated,
    Header,
    LocalAddress,
    LocalPort,
    Not,
    PeerAddress,
    Rule,
    Some,
    UrlPath,
)
from authplane.dataplane.filters.registry import FilterType, Packed, Scope
from authplane.dataplane.filters.wire import check_missing_header
from authplane.matching.string_matchers import matches
from authplane.matching.wire import parse_header_matcher, parse_string_matcher

TYPE_NAME: Final = "envoy.extensions.filters.http.rbac.v3.RBAC"
OVERRIDE_NAME: Final = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"

M = TypeVar("M")
_NOTHING: Final = Always(holds=False)
"""A placeholder after a problem."""


def parse_rbac(packed: Packed, scope: Scope) -> RbacFilter | tuple[Problem, ...]:
    """Parse the configuration; report every problem."""
    del scope
    problems = Problems()
    try:
        message = filter_pb.RBAC.FromString(packed.value)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {TYPE_NAME}.")
        return problems.errors
    config = _parse_filter(message, problems)
    return problems.errors or config


def parse_rbac_override(packed: Packed, scope: Scope) -> RbacFilter | tuple[Problem, ...]:
    """Parse an override; without rules it allows every call."""
    del scope
    problems = Problems()
    try:
        message = filter_pb.RBACPerRoute.FromString(packed.value)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {OVERRIDE_NAME}.")
        return problems.errors
    if not message.HasField("rbac"):
        return RbacFilter()
    with problems.at("rbac"):
        config = _parse_filter(message.rbac, problems)
    return problems.errors or config


RBAC: Final = FilterType(
    type_urls=(TYPE_NAME,),
    override_urls=(OVERRIDE_NAME,),
    sides=frozenset({Side.SERVER}),
    parse=parse_rbac,
    parse_override=parse_rbac_override,
)


def _parse_filter(message: filter_pb.RBAC, problems: Problems) -> RbacFilter:
    if message.HasField("matcher") and not message.HasField("rules"):
        # Ignoring the matcher would allow every call that it should deny.
        with problems.at("matcher"):
            problems.add("MatcherUnsupported", "matcher is not supported. Use rules.")
    if not message.HasField("rules"):
        return RbacFilter()
    with problems.at("rules"):
        return RbacFilter(_parse_rules(message.rules, problems))


def _parse_rules(message: pb.RBAC, problems: Problems) -> Rbac | None:
    """Read the policies; None if they are only for a log, which we do not have."""
    if message.action == pb.RBAC.LOG:
        return None
    action = Action.ALLOW if message.action == pb.RBAC.ALLOW else Action.DENY
    if message.action not in {pb.RBAC.ALLOW, pb.RBAC.DENY}:
        with problems.at("action"):
            problems.add("ActionUnknown", f"{int(message.action)} is not an action. Supported: ALLOW, DENY, LOG.")
    policies = []
    for name in sorted(message.policies):
        with problems.at("policies", name):
            policies.append(_parse_policy(name, message.policies[name], problems))
    return Rbac(action=action, policies=tuple(policies))


def _parse_policy(name: str, message: pb.Policy, problems: Problems) -> Policy:
    for field, there in (
        ("condition", message.HasField("condition")),
        ("checked_condition", message.HasField("checked_condition")),
    ):
        if there:
            with problems.at(field):
                problems.add("ConditionUnsupported", "The field is not supported. Remove it.")
    permissions = _parse_each(message.permissions, "permissions", _parse_permission, problems)
    principals = _parse_each(message.principals, "principals", _parse_principal, problems)
    return Policy(name=name, permission=Some(permissions), principal=Some(principals))


def _parse_each(
    messages: Iterable[M], field: str, parse: Callable[[M, Problems], Rule], problems: Problems
) -> tuple[Rule, ...]:
    """Read the rules of a list, which has at least one."""
    found = []
    with problems.at(field):
        for index, message in enumerate(messages):
            with problems.at(index):
                found.append(parse(message, problems))
        if not found:
            problems.add("RulesMissing", "The list is empty. Add a rule.")
    return tuple(found)


def _parse_permission(message: pb.Permission, problems: Problems) -> Rule:
    kind = message.WhichOneof("rule")
    with problems.at(*(() if kind is None else (kind,))):
        match kind:
            case "and_rules":
                return All(_parse_each(message.and_rules.rules, "rules", _parse_permission, problems))
            case "or_rules":
                return Some(_parse_each(message.or_rules.rules, "rules", _parse_permission, problems))
            case "not_rule":
                return Not(_parse_permission(message.not_rule, problems))
            case None:
                problems.add("RuleMissing", "The permission is empty. Set a rule.")
                return _NOTHING
            case _:
                return _PERMISSIONS.get(kind, _unsupported)(message, problems)


def _parse_principal(message: pb.Principal, problems: Problems) -> Rule:
    kind = message.WhichOneof("identifier")
    with problems.at(*(() if kind is None else (kind,))):
        match kind:
            case "and_ids":
                return All(_parse_each(message.and_ids.ids, "ids", _parse_principal, problems))
            case "or_ids":
                return Some(_parse_each(message.or_ids.ids, "ids", _parse_principal, problems))
            case "not_id":
                return Not(_parse_principal(message.not_id, problems))
            case None:
                problems.add("RuleMissing", "The principal is empty. Set an identifier.")
                return _NOTHING
            case _:
                return _PRINCIPALS.get(kind, _unsupported)(message, problems)


def _unsupported(_: object, problems: Problems) -> Rule:
    problems.add("RuleUnsupported", "The field is not supported. Remove it.")
    return _NOTHING


def _parse_any(problems: Problems, *, value: bool) -> Rule:
    if not value:
        problems.add("RuleInvalid", "any is false. Set it to true.")
    return Always()


def _parse_header(message: route_pb.HeaderMatcher, problems: Problems) -> Rule:
    name = message.name.lower()
    if name.startswith("grpc-") or name == ":scheme":
        with problems.at("name"):
            problems.add("HeaderUnsupported", f"Rules cannot read header '{name}'. Use another header.")
    check_missing_header(message, problems)
    matcher = parse_header_matcher(message, problems)
    return _NOTHING if matcher is None else Header(matcher)


def _parse_path(message: path_pb2.PathMatcher, problems: Problems) -> Rule:
    with problems.at("path"):
        matcher = parse_string_matcher(message.path, problems)
    return _NOTHING if matcher is None else UrlPath(matcher)


def _parse_authenticated(message: pb.Principal.Authenticated, problems: Problems) -> Rule:
    if not message.HasField("principal_name"):
        return Authenticated()
    with problems.at("principal_name"):
        matcher = parse_string_matcher(message.principal_name, problems)
    return _NOTHING if matcher is None else Authenticated(matcher)


def _parse_network(message: address_pb2.CidrRange, make: Callable[[Network], Rule], problems: Problems) -> Rule:
    network = network_of(message.address_prefix, message.prefix_len.value)
    if network is not None:
        return make(network)
    with problems.at("address_prefix"):
        problems.add("AddressInvalid", f"'{message.address_prefix}' is not an IP address. Use an IPv4 or IPv6 address.")
    return _NOTHING


def _parse_server_name(message: pb.Permission, problems: Problems) -> Rule:
    """Read the matcher of the server name (SNI); gRFC A41 treats the server name as always empty."""
    matcher = parse_string_matcher(message.requested_server_name, problems)
    return Always(matcher is not None and matches(matcher, ""))


_PERMISSIONS: Final[Mapping[str, Callable[[pb.Permission, Problems], Rule]]] = {
    "any": lambda message, problems: _parse_any(problems, value=message.any),
    "header": lambda message, problems: _parse_header(message.header, problems),
    "url_path": lambda message, problems: _parse_path(message.url_path, problems),
    "destination_ip": lambda message, problems: _parse_network(message.destination_ip, LocalAddress, problems),
    "destination_port": lambda message, _: LocalPort(message.destination_port, message.destination_port + 1),
    "destination_port_range": lambda message, _: LocalPort(
        message.destination_port_range.start, message.destination_port_range.end
    ),
    # Metadata of Envoy's, of which there is none: a value that is not there matches nothing.
    "metadata": lambda message, _: Always(message.metadata.invert),
    "requested_server_name": _parse_server_name,
}

# No proxy's word counts, so that all three addresses are that of the connection.
_PRINCIPALS: Final[Mapping[str, Callable[[pb.Principal, Problems], Rule]]] = {
    "any": lambda message, problems: _parse_any(problems, value=message.any),
    "authenticated": lambda message, problems: _parse_authenticated(message.authenticated, problems),
    "source_ip": lambda message, problems: _parse_network(message.source_ip, PeerAddress, problems),
    "direct_remote_ip": lambda message, problems: _parse_network(message.direct_remote_ip, PeerAddress, problems),
    "remote_ip": lambda message, problems: _parse_network(message.remote_ip, PeerAddress, problems),
    "header": lambda message, problems: _parse_header(message.header, problems),
    "url_path": lambda message, problems: _parse_path(message.url_path, problems),
    "metadata": lambda message, _: Always(message.metadata.invert),
}
