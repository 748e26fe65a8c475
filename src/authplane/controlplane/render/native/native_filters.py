"""Envoy's own filters before the one that asks the policy server: what is the same for all routes, and what is not.

Whatever a route forgets to say about them closes it: without rules nobody passes, and without a decision the policy
server is asked.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from envoy.config.core.v3 import config_source_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2 as json_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as jwt_pb2
from envoy.extensions.filters.http.mcp.v3 import mcp_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from authplane.controlplane.graph.model.programming import TOKENS
from authplane.controlplane.render.envoy_pieces import FROM_ADS, pack, type_url
from authplane.controlplane.render.native.native_enforcement import Placed
from authplane.controlplane.render.native.rbac_policies import deny_everything, refuse_the_known
from authplane.controlplane.render.native.request_classification import find_nothing, render_front
from authplane.controlplane.render.native.shadow_rules import count_only
from authplane.controlplane.render.newer_fields import EXTRACTION_RULES, REJECT_DUPLICATE_KEYS
from authplane.controlplane.render.varint import varint
from authplane.core.envoy_releases import Release
from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_answers import DenialFormat
from authplane.policy.placement.native_requests import BODY_METADATA, EXTRACTED
from authplane.policy.placement.placement_model import Token

FRONT: Final = "authplane/front"
"""The filter that looks once at what all policies want to know."""
DECIDE: Final = "authplane/decide"
REFUSE: Final = "authplane/refuse"
_MCP: Final = "envoy.filters.http.mcp"
_AGAIN: Final = "authplane/body"
"""The filter that reads a body a second time, where the first may take one member for another."""
_SLOT: Final = "authplane/policy-"
_SHADOW: Final = "authplane/shadow-"
SWITCHED_OFF: Final = pack(route_components_pb2.FilterConfig(disabled=True))
"""What a route says of a filter that it does not need."""
_STRICT: Final = mcp_pb2.Mcp.TrafficMode.REJECT_NO_MCP


@dataclass(frozen=True, slots=True, kw_only=True)
class Natives:
    """Which of Envoy's filters the routes of a connection manager use together."""

    envoy: Release
    slots: int = 0
    """How many policies stand before one target at most, if several do."""
    shadows: int = 0
    """How many policies in shadow."""
    tokens: tuple[Token, ...] = ()
    """What good tokens are, of all issuers whose tokens count on some route, sorted."""
    reads_mcp: bool = False
    most_bytes: int = 0
    """How large a body may be that is read."""
    certificates: bool = False
    denial_format: DenialFormat = DenialFormat.HTTP403

    @property
    def reads_twice(self) -> bool:
        """Whether bodies are read by two filters."""
        return self.reads_mcp and not self.envoy.tells_members_apart

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the filters, in order."""
        slots = (f"{_SLOT}{number}" for number in range(self.slots))
        bodies = (*([_MCP] if self.reads_mcp else ()), *([_AGAIN] if self.reads_twice else ()))
        before = (*([TOKENS] if self.tokens else ()), *bodies)
        front = [FRONT] if self.tokens or self.reads_mcp else []
        shadows = (f"{_SHADOW}{number}" for number in range(self.shadows))
        return (*before, *front, *slots, DECIDE, *([REFUSE] if self.tokens else ()), *shadows)


def join(placed: Iterable[Placed], natives: Natives) -> Natives | None:
    """Return what all of these targets need; None if there is none."""
    found = list(placed)
    if not found:
        return None
    return Natives(
        envoy=natives.envoy,
        slots=max(len(each.slots) for each in found),
        shadows=max(len(each.shadows) for each in found),
        tokens=tuple(sorted(_each_once(found), key=attrgetter("issuer"))),
        reads_mcp=any(each.reads_mcp for each in found),
        most_bytes=natives.most_bytes,
        certificates=any(each.certificates for each in found),
        denial_format=natives.denial_format,
    )


def _each_once(placed: Iterable[Placed]) -> set[Token]:
    # Most are the same objects, and to compare them whole takes long.
    return set({id(token): token for each in placed for token in each.tokens}.values())


def native_filters(natives: Natives) -> Iterator[hcm_pb2.HttpFilter]:
    """Render the filters."""
    for name in natives.names:
        if name == TOKENS:
            yield _discovered(name, type_url(jwt_pb2.JwtAuthentication()))
        elif name == _MCP:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(_mcp(natives)))
        elif name == _AGAIN:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(_again()))
        elif name == REFUSE:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(refuse_the_known()))
        elif name == FRONT:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(find_nothing()))
        elif name.startswith(_SHADOW):
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(count_only()))
        else:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(deny_everything()))


def table_changes(natives: Natives) -> dict[str, Any]:
    """Render what all routes of a table say about the filters."""
    if FRONT not in natives.names:
        return {}
    return {FRONT: pack(render_front(natives.envoy, natives.most_bytes, natives.tokens, reads_mcp=natives.reads_mcp))}


def native_changes(natives: Natives, placed: Placed | None, requirement: str = "") -> dict[str, Any]:
    """Render what a route changes about the filters: those that it does not need are switched off.

    ``requirement`` is what the filter that verifies tokens calls those that count here.
    """
    changes = dict.fromkeys(natives.names, SWITCHED_OFF)
    if placed is None:
        return changes
    changes |= {f"{_SLOT}{number}": each for number, each in enumerate(placed.slots)}
    changes |= {f"{_SHADOW}{number}": each for number, each in enumerate(placed.shadows)}
    if placed.decide is not None:
        changes[DECIDE] = placed.decide
    if placed.providers:
        changes[TOKENS] = pack(jwt_pb2.PerRouteConfig(requirement_name=requirement))
    if placed.wants_tokens:
        del changes[REFUSE]
    if placed.reads_mcp:
        del changes[_MCP]
        changes.pop(_AGAIN, None)
    if placed.reads_mcp or placed.tokens:
        del changes[FRONT]
    return changes


def _discovered(name: str, kind: str) -> hcm_pb2.HttpFilter:
    """Let a filter be configured by a resource of its own: when keys change, no connection is closed."""
    source = config_source_pb2.ExtensionConfigSource(config_source=FROM_ADS, type_urls=[kind])
    return hcm_pb2.HttpFilter(name=name, config_discovery=source)


def _mcp(natives: Natives) -> mcp_pb2.Mcp:
    parsed = mcp_pb2.ParserConfig(methods=[_extracted(method, EXTRACTED[method]) for method in sorted(EXTRACTED)])
    message = mcp_pb2.Mcp(
        traffic_mode=_STRICT, max_request_body_size=UInt32Value(value=natives.most_bytes), parser_config=parsed
    )
    if natives.envoy.rejects_duplicate_keys:
        message.MergeFromString(_newer(REJECT_DUPLICATE_KEYS, BoolValue(value=True)))
    return message


def _extracted(method: str, paths: Iterable[str]) -> mcp_pb2.ParserConfig.MethodConfig:
    made = mcp_pb2.ParserConfig.MethodConfig(method=method)
    for each in paths:
        made.MergeFromString(_newer(EXTRACTION_RULES, mcp_pb2.ParserConfig.AttributeExtractionRule(path=each)))
    return made


def _newer(number: int, value: Message) -> bytes:
    """Write a field that our copy of the messages does not have."""
    written = value.SerializeToString(deterministic=True)
    return varint(number << 3 | 2) + varint(len(written)) + written


def _again() -> json_pb2.JsonToMetadata:
    """Read what rules go by with another parser; where it finds none, or something else, the server is asked."""
    told = [
        json_pb2.JsonToMetadata.Rule(
            selectors=[json_pb2.JsonToMetadata.Selector(key=each) for each in path],
            on_present=json_pb2.JsonToMetadata.KeyValuePair(metadata_namespace=BODY_METADATA, key=path[-1]),
        )
        for path in (("method",), ("id",), ("params", "name"), ("params", "uri"))
    ]
    rules = json_pb2.JsonToMetadata.MatchRules(rules=told)
    rules.allow_content_types_regex.regex = "application/json.*"
    return json_pb2.JsonToMetadata(request_rules=rules)
