"""Plans as resources of xDS."""

from functools import lru_cache
from random import Random
from typing import Any, Final, assert_never

from envoy.config.listener.v3 import listener_pb2
from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.message import Message
from tests.oracles.plans import Abort, Check, Choice, Config, Filter, Inner, Pass, Permit, Run, Write
from tests.support.dataplane.ext_authz_messages import INSECURE, google_grpc
from tests.support.dataplane.ext_authz_messages import config as ext_authz
from tests.support.dataplane.filter_messages import http_filter, router
from tests.support.dataplane.listener_messages import api_listener, chain, manager, server_listener
from tests.support.dataplane.route_messages import here, host, route_config, weighted
from tests.support.matching.native_composite import outcomes
from xds.type.matcher.v3 import matcher_pb2

from authplane.dataplane.filters.calls import Side
from authplane.grpc.matching import Predicate, cel, composite, composite_override, skip

NAME: Final = "choice"


def render_listener(config: Config, chance: Random) -> listener_pb2.Listener:
    """Return a Listener with one route for all calls; chance decides which predicates become expressions."""
    named = {
        level: {} if choice is None else {NAME: pack(composite_override(render_tree(choice, chance)))}
        for level, choice in (("host", config.host), ("route", config.route), ("cluster", config.cluster))
    }
    if config.filter is None:
        top = extension_matcher_pb2.ExtensionWithMatcher()
        top.extension_config.typed_config.Pack(composite_pb2.Composite())
    else:
        top = composite(render_tree(config.filter, chance))
    route = _route(config.side, named["route"], named["cluster"])
    routes = route_config(host(route, typed_per_filter_config=named["host"]))
    held = manager(http_filter(NAME, pack(top)), router(), route_config=routes)
    return api_listener(held) if config.side is Side.CLIENT else server_listener(chain(held))


def _route(side: Side, route: dict[str, any_pb2.Any], cluster: dict[str, any_pb2.Any]) -> route_pb.Route:
    if side is Side.SERVER:
        return here(typed_per_filter_config=route)
    made = weighted(("cluster", 1), typed_per_filter_config=route)
    for name, each in cluster.items():
        made.route.weighted_clusters.clusters[0].typed_per_filter_config[name].CopyFrom(each)
    return made


def render_tree(choice: Choice, chance: Random | None = None) -> matcher_pb2.Matcher:
    """Return the tree with actions of a composite filter."""
    made = matcher_pb2.Matcher()
    made.CopyFrom(choice.tree)
    for name, outcome in named_outcomes(made):
        outcome.action.typed_config.CopyFrom(pack(render_action(choice.plans[name], chance)))
    if chance is not None:
        _express(made, chance)
    return made


def named_outcomes(tree: matcher_pb2.Matcher) -> list[tuple[str, Any]]:
    """Return everything in a tree that has an action, by the name of its plan: maps have no order of their own."""
    found = [
        (wrappers_pb2.StringValue.FromString(each.action.typed_config.value).value, each) for each in outcomes(tree)
    ]
    return sorted(found, key=lambda pair: pair[0])


def pack(message: Message) -> any_pb2.Any:
    """Pack a message; the same one gives the same bytes in every process."""
    url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    return any_pb2.Any(type_url=url, value=message.SerializeToString(deterministic=True))


def render_action(plan: Pass | Run, chance: Random | None = None) -> Message:
    """Return the action of a plan."""
    if isinstance(plan, Pass):
        return skip()
    action = composite_pb2.ExecuteFilterAction()
    # One filter may stand alone or in a chain.
    if len(plan.filters) == 1 and (chance is None or chance.random() < 0.5):
        action.typed_config.typed_config.CopyFrom(pack(render_filter(plan.filters[0], chance)))
        action.typed_config.name = "alone"
    else:
        action.filter_chain.SetInParent()
        for number, each in enumerate(plan.filters):
            link = action.filter_chain.typed_config.add(name=f"link-{number}")
            link.typed_config.CopyFrom(pack(render_filter(each, chance)))
    if plan.per_million is not None:
        action.sample_percent.default_value.numerator = plan.per_million
        action.sample_percent.default_value.denominator = percent_pb2.FractionalPercent.MILLION
    return action


def render_filter(each: Filter, chance: Random | None = None) -> Message:
    """Return the configuration of a filter."""
    match each:
        case Write(name, text):
            return wrappers_pb2.StringValue(value=f"{name}={text}")
        case Abort(code, per_million):
            fault = fault_pb2.HTTPFault()
            fault.abort.grpc_status = code
            fault.abort.percentage.numerator = per_million
            fault.abort.percentage.denominator = percent_pb2.FractionalPercent.MILLION
            return fault
        case Permit(name, text, others):
            permission = rules_pb2.Permission()
            permission.header.name = name
            permission.header.string_match.exact = text
            policy = rules_pb2.Policy(permissions=[permission], principals=[rules_pb2.Principal(any=True)])
            action = rules_pb2.RBAC.DENY if others else rules_pb2.RBAC.ALLOW
            return rbac_pb2.RBAC(rules=rules_pb2.RBAC(action=action, policies={"policy": policy}))
        case Check(number, _, fails_open):
            asking = ext_authz()
            asking.grpc_service.CopyFrom(google_grpc(target_of(number), INSECURE))
            asking.failure_mode_allow = fails_open
            return asking
        case Inner(choice):
            return composite(render_tree(choice, chance))
        case _:
            assert_never(each)


def target_of(number: int) -> str:
    """Name a service that checks ask."""
    return f"dns:///check-{number}:1"


# --- Predicates as expressions of the same meaning

_FORMS: Final = {
    "exact": "{} == {}",
    "prefix": "{}.startsWith({})",
    "suffix": "{}.endsWith({})",
    "contains": "{}.contains({})",
}


def _express(tree: Any, chance: Random) -> None:
    for branch in tree.matcher_list.matchers:
        _express_predicate(branch.predicate, chance)
        if branch.on_match.HasField("matcher"):
            _express(branch.on_match.matcher, chance)
    maps = (tree.matcher_tree.exact_match_map.map, tree.matcher_tree.prefix_match_map.map)
    for other in (*(each[key] for each in maps for key in sorted(each)), tree.on_no_match):
        if other.HasField("matcher"):
            _express(other.matcher, chance)


def _express_predicate(predicate: Any, chance: Random) -> None:
    kind = predicate.WhichOneof("match_type")
    if kind == "single_predicate":
        single = predicate.single_predicate
        form = single.value_match.WhichOneof("match_pattern")
        if form in _FORMS and not single.value_match.ignore_case and chance.random() < 0.3:
            data = single.input.typed_config.value
            name = http_inputs_pb2.HttpRequestHeaderMatchInput.FromString(data).header_name
            predicate.CopyFrom(_expression(form, name, getattr(single.value_match, form)))
    elif kind == "not_matcher":
        _express_predicate(predicate.not_matcher, chance)
    else:
        for each in getattr(predicate, kind).predicate:
            _express_predicate(each, chance)


@lru_cache
def _expression(form: str, name: str, text: str) -> Predicate:
    literal = '"' + "".join(f"\\U{ord(each):08x}" for each in text) + '"'
    subject = "request.path" if name == ":path" else f'request.headers["{name}"]'
    return cel(_FORMS[form].format(subject, literal), side=Side.CLIENT)
