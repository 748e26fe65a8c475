"""Envoy's own filters before the one that calls the policy server: their common settings, and those of routes.

A route without settings for them is closed: without rules no request passes, and without a decision Envoy calls the
policy server.
"""

from collections.abc import Iterable, Iterator
from importlib.resources import files
from operator import attrgetter
from typing import Final

from envoy.config.core.v3 import base_pb2, config_source_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as jwt_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.struct_pb2 import Struct

from authplane.controlplane.graph.model.programming import TOKENS
from authplane.controlplane.render.envoy_pieces import FROM_ADS, pack, type_url
from authplane.controlplane.render.native.native_enforcement import Placed
from authplane.controlplane.render.native.rbac_policies import deny_everything, refuse_the_known
from authplane.controlplane.render.native.request_classification import find_nothing, render_front
from authplane.controlplane.render.native.shadow_rules import count_only
from authplane.controlplane.render.native.token_filter import claims_only
from authplane.core.envoy_releases import Release
from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_answers import DenialFormat
from authplane.policy.placement.placement_model import Token

FRONT: Final = "authplane/front"
"""The filter that looks once at what all policies want to know."""
DECIDE: Final = "authplane/decide"
REFUSE: Final = "authplane/refuse"
READER: Final = "authplane/mcp-reader"
"""The filter that reads MCP messages."""
_SLOT: Final = "authplane/policy-"
_SHADOW: Final = "authplane/shadow-"
SWITCHED_OFF: Final = pack(route_components_pb2.FilterConfig(disabled=True))
"""What a route says of a filter that it does not need."""
_SOURCE: Final = files("authplane.policy.mcp").joinpath("reader.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Natives:
    """Which of Envoy's filters the routes of a connection manager use together."""

    envoy: Release
    slots: int = 0
    """Maximum number of policies of one target, if a target has several."""
    shadows: int = 0
    """How many policies in shadow."""
    verifies_tokens: bool = False
    """Tokens count on some route."""
    tokens: tuple[Token, ...] = ()
    """What good tokens are, of all issuers whose tokens count on a route without MCP messages, sorted."""
    wants_tokens: bool = False
    """Some route asks those who show no token for one."""
    reads_mcp: bool = False
    most_bytes: int = 0
    """How large a body may be that is read."""
    certificates: bool = False
    denial_format: DenialFormat = DenialFormat.HTTP403

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the filters, in order."""
        slots = (f"{_SLOT}{number}" for number in range(self.slots))
        tokens, reader = ([TOKENS] if self.verifies_tokens else []), ([READER] if self.reads_mcp else [])
        front, refuse = ([FRONT] if self.tokens else []), ([REFUSE] if self.wants_tokens else [])
        shadows = (f"{_SHADOW}{number}" for number in range(self.shadows))
        return (*tokens, *reader, *front, *slots, DECIDE, *refuse, *shadows)


def join(placed: Iterable[Placed], natives: Natives) -> Natives | None:
    """Return what all of these targets need; None if there is none."""
    found = list(placed)
    if not found:
        return None
    return Natives(
        envoy=natives.envoy,
        slots=max(len(each.slots) for each in found),
        shadows=max(len(each.shadows) for each in found),
        verifies_tokens=any(each.providers for each in found),
        tokens=tuple(sorted(_each_once(found), key=attrgetter("issuer"))),
        wants_tokens=any(each.wants_tokens for each in found),
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
        elif name == READER:
            yield hcm_pb2.HttpFilter(name=name, typed_config=pack(message_reader(natives.most_bytes)))
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
    return {FRONT: pack(render_front(natives.tokens))} if natives.tokens else {}


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
        # The filter that looks for valid tokens needs their headers; the reader of messages does not.
        chosen = requirement if placed.tokens else claims_only(requirement)
        changes[TOKENS] = pack(jwt_pb2.PerRouteConfig(requirement_name=chosen))
    if placed.wants_tokens:
        del changes[REFUSE]
    if placed.reads_mcp and (placed.arguments or placed.providers):
        changes[READER] = pack(_read(placed))
    elif placed.reads_mcp:
        del changes[READER]
    if placed.tokens:
        del changes[FRONT]
    return changes


def _discovered(name: str, kind: str) -> hcm_pb2.HttpFilter:
    """Let a filter be configured by a resource of its own: when keys change, no connection is closed."""
    source = config_source_pb2.ExtensionConfigSource(config_source=FROM_ADS, type_urls=[kind])
    return hcm_pb2.HttpFilter(name=name, config_discovery=source)


def message_reader(most_bytes: int) -> lua_pb2.Lua:
    """Render the filter that reads messages of up to so many bytes; those that it does not mark are called out."""
    source = base_pb2.DataSource(inline_string=f"MOST_BYTES = {most_bytes}\n{_SOURCE}")
    return lua_pb2.Lua(default_source_code=source)


def _read(placed: Placed) -> lua_pb2.LuaPerRoute:
    """Name the tool arguments that rules of a target read, and whether they read tokens."""
    context = Struct()
    if placed.arguments:
        context.update({"arguments": "\n".join(placed.arguments)})
    if placed.providers:
        context.update({"tokens": True})
    return lua_pb2.LuaPerRoute(filter_context=context)
