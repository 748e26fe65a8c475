"""Configurations of the filters that decide natively, written by hand."""

import json
from collections.abc import Mapping
from typing import Final

from envoy.config.rbac.v3 import rbac_pb2
from google.protobuf import json_format
from tests.controlplane.render.native_names import FILTERS, Json
from tests.support.issuers.minting import signer

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.wire import render_condition
from authplane.cel.syntax.tree import Node

FIRST: Final = "https://first.example"
SECOND: Final = "https://second.example"
DISABLED: Final[Json] = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": True}


TRUE: Final = condition_nodes.literal(value=True)


def header(name: str, value: str) -> Node:
    """Return what holds for a request with a header of this value."""
    return condition_nodes.equal(condition_nodes.member(condition_nodes.name("request.headers"), name), value)


def rules(policies: Mapping[str, Node]) -> Json:
    """Return the rules of RBAC with a condition for each name."""
    made = {
        name: rbac_pb2.Policy(
            permissions=[rbac_pb2.Permission(any=True)],
            principals=[rbac_pb2.Principal(any=True)],
            condition=render_condition(tree),
        )
        for name, tree in policies.items()
    }
    return json_format.MessageToDict(rbac_pb2.RBAC(policies=made), preserving_proto_field_name=True)


def decides(policies: Mapping[str, Node]) -> Json:
    """Return what a route says to decide by rules."""
    return {"@type": f"{FILTERS}.rbac.v3.RBACPerRoute", "rbac": {"rules": rules(policies)}}


def shadows(policies: Mapping[str, Node], prefix: str) -> Json:
    """Return what a route says to evaluate rules without obeying them."""
    rbac = {"shadow_rules": rules(policies), "shadow_rules_stat_prefix": prefix}
    return {"@type": f"{FILTERS}.rbac.v3.RBACPerRoute", "rbac": rbac}


def requires(name: str) -> Json:
    """Return what a route says to demand tokens by the name of a requirement."""
    return {"@type": f"{FILTERS}.jwt_authn.v3.PerRouteConfig", "requirement_name": name}


def tokens(*issuers: str) -> Json:
    """Return the configuration of the filter for tokens; each issuer has a key of its own."""
    providers = {
        issuer: {
            "issuer": issuer,
            "local_jwks": {"inline_string": json.dumps({"keys": [signer("ES256", number=number).jwk()]})},
            "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
            "payload_in_metadata": issuer,
            "header_in_metadata": f"header {issuer}",
            "failed_status_in_metadata": f"failed {issuer}",
            "require_expiration": True,
            "clock_skew_seconds": 30,
            "forward": True,
        }
        for number, issuer in enumerate(issuers)
    }
    wanted = [*({"provider_name": each} for each in issuers), {"allow_missing_or_failed": {}}]
    return {
        "@type": f"{FILTERS}.jwt_authn.v3.JwtAuthentication",
        "providers": providers,
        "requirement_map": {"all": {"requires_any": {"requirements": wanted}}},
    }


def asking() -> Json:
    service = {"server_uri": {"uri": "http://ask", "cluster": "ask", "timeout": "5s"}}
    granted = {"filter": "envoy.filters.http.rbac", "path": [{"key": "enforced_effective_policy_id"}],
               "value": {"string_match": {"contains": "/"}}, "invert": True}  # fmt: skip
    return {"@type": f"{FILTERS}.ext_authz.v3.ExtAuthz", "http_service": service, "filter_enabled_metadata": granted}
