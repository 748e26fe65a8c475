"""What a gRPC server grants without a check: an override that our servers understand, and others skip."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import struct_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb2
from xds.type.matcher.v3 import cel_pb2, matcher_pb2, string_pb2
from xds.type.matcher.v3 import http_inputs_pb2 as xds_inputs_pb2
from xds.type.v3 import cel_pb2 as expression_pb2
from xds.type.v3 import typed_struct_pb2

from authplane.cel.calls.wire import checked_expression
from authplane.controlplane.render.envoy_pieces import pack
from authplane.policy.placement.grpc_entries import Grant
from authplane.policy.placement.grpc_plan import Grants, Groups, grants_to

NAME: Final = "authplane.native"
"""What the override is called; servers that do not have it do not look into it."""

_OnMatch = matcher_pb2.Matcher.OnMatch
_Predicate = matcher_pb2.Matcher.MatcherList.Predicate
_FieldMatcher = matcher_pb2.Matcher.MatcherList.FieldMatcher


def render_grants(
    grants: Grants, *, asked: matcher_pb2.Matcher.OnMatch, otherwise: matcher_pb2.Matcher.OnMatch
) -> route_components_pb2.FilterConfig:
    """Render the override.

    ``asked`` decides what the server may judge and does not grant, and ``otherwise`` what it may not judge.
    """
    plain = _plain(grants)
    tree = matcher_pb2.Matcher(
        matcher_list=matcher_pb2.Matcher.MatcherList(
            # A branch without a result did not match: so a call that is not granted reaches the second one.
            matchers=[
                _FieldMatcher(predicate=plain, on_match=_OnMatch(matcher=_by_workload(grants.groups))),
                _FieldMatcher(predicate=plain, on_match=asked),
            ]
        ),
        on_no_match=otherwise,
    )
    choice = extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=tree)
    return route_components_pb2.FilterConfig(
        config=pack(extension_pb2.TypedExtensionConfig(name=NAME, typed_config=pack(choice))), is_optional=True
    )


def _by_workload(groups: Groups) -> matcher_pb2.Matcher:
    """Return the matcher that finds the grants of the calling workload; the grants for any caller come last."""
    ids = sorted({each for group in groups for grant in group for each in grant.ids or ()})
    rest = _skip_if(grants_to(None, groups))
    if rest is not None and not ids:
        return rest
    tree = matcher_pb2.Matcher(matcher_tree=matcher_pb2.Matcher.MatcherTree(input=_native_input("Workload")))
    for each in ids:
        granted = _skip_if(grants_to(each, groups))
        if granted is not None:
            tree.matcher_tree.exact_match_map.map[each].matcher.CopyFrom(granted)
    if rest is not None:
        tree.on_no_match.matcher.CopyFrom(rest)
    return tree


def _skip_if(groups: Groups) -> matcher_pb2.Matcher | None:
    """Return the matcher that allows calls with a grant of each group; None if there is no such call."""
    if not all(groups):
        return None
    wanted = [
        _some([_every(list(_parts(grant))) for grant in group])
        for group in groups
        if all(_asks(grant) for grant in group)
    ]
    skip = _OnMatch(action=_extension("skip", skip_action_pb2.SkipFilter()))
    predicate = _every(wanted) if wanted else _any_path()
    return matcher_pb2.Matcher(
        matcher_list=matcher_pb2.Matcher.MatcherList(matchers=[_FieldMatcher(predicate=predicate, on_match=skip)])
    )


def _asks(grant: Grant) -> bool:
    """Tell whether a grant requires anything but its workload."""
    return bool(grant.paths or grant.headers or grant.expression)


def _parts(grant: Grant) -> Iterator[matcher_pb2.Matcher.MatcherList.Predicate]:
    if grant.paths:
        yield _some([_single(_header(":path"), _path(each)) for each in grant.paths])
    for name, value in grant.headers:
        yield _single(_header(name), string_pb2.StringMatcher(exact=value))
    if grant.expression:
        yield _holds(grant.expression)


def _path(path: str) -> string_pb2.StringMatcher:
    return string_pb2.StringMatcher(prefix=path[:-1]) if path.endswith("*") else string_pb2.StringMatcher(exact=path)


def _any_path() -> matcher_pb2.Matcher.MatcherList.Predicate:
    return _single(_header(":path"), string_pb2.StringMatcher(prefix="/"))


def _plain(grants: Grants) -> matcher_pb2.Matcher.MatcherList.Predicate:
    source = _native_input("PlainCall", absent=grants.absent, single=grants.single)
    return _single(source, string_pb2.StringMatcher(exact="plain"))


# --- Parts of predicates


def _every(parts: list[matcher_pb2.Matcher.MatcherList.Predicate]) -> matcher_pb2.Matcher.MatcherList.Predicate:
    if len(parts) == 1:
        return parts[0]
    return _Predicate(and_matcher=_Predicate.PredicateList(predicate=parts))


def _some(parts: list[matcher_pb2.Matcher.MatcherList.Predicate]) -> matcher_pb2.Matcher.MatcherList.Predicate:
    if len(parts) == 1:
        return parts[0]
    return _Predicate(or_matcher=_Predicate.PredicateList(predicate=parts))


def _single(
    source: xds_extension_pb2.TypedExtensionConfig, wanted: string_pb2.StringMatcher
) -> matcher_pb2.Matcher.MatcherList.Predicate:
    return _Predicate(single_predicate=_Predicate.SinglePredicate(input=source, value_match=wanted))


def _holds(expression: str) -> matcher_pb2.Matcher.MatcherList.Predicate:
    checked = checked_expression(expression)
    if isinstance(checked, tuple):
        raise ValueError("an expression that a server does not take was placed there")  # noqa: TRY004
    matcher = cel_pb2.CelMatcher(expr_match=expression_pb2.CelExpression(cel_expr_checked=checked))
    return _Predicate(
        single_predicate=_Predicate.SinglePredicate(
            input=_extension("call", xds_inputs_pb2.HttpAttributesCelMatchInput()),
            custom_match=_extension("expression", matcher),
        )
    )


def _header(name: str) -> xds_extension_pb2.TypedExtensionConfig:
    return _extension(name.removeprefix(":"), http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))


def _native_input(kind: str, **lists: Iterable[str]) -> xds_extension_pb2.TypedExtensionConfig:
    value = struct_pb2.Struct()
    fields: dict[str, Any] = {key: list(each) for key, each in lists.items()}
    value.update(fields)
    typed = typed_struct_pb2.TypedStruct(type_url=f"type.googleapis.com/authplane.native.v1.{kind}", value=value)
    return _extension("native", typed)


def _extension(name: str, message: Message) -> xds_extension_pb2.TypedExtensionConfig:
    return xds_extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(message))
