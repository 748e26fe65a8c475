"""Finds changes of documents that remove protection.

A change that removes no protection applies immediately. A change that does, or may, could be intended or an unfinished
file, so it waits. If it is uncertain, it counts as removing protection.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.resources.catalogue import Resource
from authplane.resources.kinds.agentic import (
    MATCH_BASE,
    AccessPolicy,
    AccessRule,
    AuthorizationEntry,
    Backend,
    McpAttributes,
    McpMethod,
    PathRule,
    XAccessPolicy,
    XAccessPolicyV0,
    XBackend,
)
from authplane.resources.kinds.authorization_service_kind import AuthorizationService
from authplane.resources.kinds.backend_tls_policy import BackendTLSPolicy
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.contour import HTTPProxy, Route, TLSCertificateDelegation
from authplane.resources.kinds.contour_file import ContourFile
from authplane.resources.kinds.contour_policies import Authorization
from authplane.resources.kinds.contour_settings import ContourConfiguration, ContourDeployment
from authplane.resources.kinds.core import ConfigMap, EndpointSlice, Secret, Service
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.kinds.gateway import Gateway, HTTPRoute, ReferenceGrant
from authplane.resources.kinds.meta import Meta

_ALL_TOOLS: Final = "*"
_Policy: TypeAlias = AccessPolicy | XAccessPolicyV0 | XAccessPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseningContext:
    """What else is in force and decides whether a change takes protection away."""

    exempts: bool = False
    """A route of an HTTPProxy switches authorization off: requests may fall to it when another route goes."""
    any_policy: bool = False
    """One policy of a target is enough to grant a request: another one can only grant more."""


def loosening(old: Resource | None, new: Resource | None, around: LooseningContext) -> str:
    """Say what a change of one resource takes away from what protects; empty if it takes nothing away."""
    if old == new:
        return ""
    if old is None or new is None:
        return _added(new, around) if new is not None else _removed(old, around) if old is not None else ""
    return _changed(old, new, around)


def exempts(resource: Resource) -> bool:
    """Tell whether the resource switches authorization off for some requests."""
    if not isinstance(resource, HTTPProxy):
        return False
    host = resource.spec.virtualhost
    return (host is not None and _off(host.authorization)) or any(map(_exempt, resource.spec.routes))


def _changed(old: Resource, new: Resource, around: LooseningContext) -> str:
    found = "changes"
    match new:
        case HTTPProxy() if isinstance(old, HTTPProxy):
            found = _proxy(old, new, around)
        case AccessPolicy() | XAccessPolicyV0() | XAccessPolicy() if isinstance(old, type(new)):
            found = _policy(old, new)
        case Backend() | XBackend() if isinstance(old, type(new)):
            found = "" if _same_protection(old, new) else "changes more than its address"
        case HTTPRoute() if isinstance(old, HTTPRoute):
            found = "" if old.spec.parent_refs == new.spec.parent_refs else "changes its Gateways"
        case ConfigMap():
            found = _removed(old, around)
        case Service() | EndpointSlice() | Secret() | AuthorizationService():
            found = ""
        case _:
            # A setting, a permission or the like, or another form of a policy: these are not compared.
            pass
    return found


def _added(new: Resource, around: LooseningContext) -> str:
    match new:
        case ReferenceGrant() | TLSCertificateDelegation():
            return "is new and permits references"
        case AuthplaneConfiguration() | ContourConfiguration() | ContourDeployment() | ContourFile():
            return "is new"
        case AccessPolicy() | XAccessPolicyV0() | XAccessPolicy():
            return "is new and may grant more requests" if around.any_policy else ""
        case (
            Service() | Secret() | ConfigMap() | EndpointSlice() | HTTPProxy() | ExtensionService() | Gateway()
            | HTTPRoute() | BackendTLSPolicy() | Backend() | XBackend() | AuthorizationService()
        ):  # fmt: skip
            return ""
        case _:
            assert_never(new)


def _removed(old: Resource, around: LooseningContext) -> str:
    match old:
        case HTTPProxy():
            return "is removed" if around.exempts or _authorized(old) else ""
        case (
            AccessPolicy() | XAccessPolicyV0() | XAccessPolicy() | Backend() | XBackend() | Gateway()
            | BackendTLSPolicy() | AuthplaneConfiguration() | ContourConfiguration() | ContourDeployment()
            | ContourFile()
        ):  # fmt: skip
            return "is removed"
        case (
            Service() | Secret() | ConfigMap() | EndpointSlice() | ExtensionService() | HTTPRoute() | ReferenceGrant()
            | TLSCertificateDelegation() | AuthorizationService()
        ):  # fmt: skip
            return ""
        case _:
            assert_never(old)


# --- HTTPProxies


def _authorized(proxy: HTTPProxy) -> bool:
    host = proxy.spec.virtualhost
    return host is not None and host.authorization is not None


def _off(authorization: Authorization | None) -> bool:
    return authorization is not None and authorization.auth_policy is not None and authorization.auth_policy.disabled


def _lax(authorization: Authorization | None) -> bool:
    """Tell whether a host has less than the global authorization that it may have had."""
    return authorization is not None and (authorization.fail_open or _off(authorization))


def _proxy(old: HTTPProxy, new: HTTPProxy, around: LooseningContext) -> str:
    guarded = _authorized(old) or around.exempts or exempts(new)
    before, after = old.spec.virtualhost, new.spec.virtualhost
    if before is not None:
        if before.authorization is not None and (after is None or after.authorization != before.authorization):
            return "changes the authorization of its host"
        if before.authorization is None and after is not None and _lax(after.authorization):
            return "replaces the global authorization of its host"
        if before.tls is not None and (after is None or after.tls != before.tls):
            return "changes the TLS of its host"
    if guarded and (after.fqdn if after else "") != (before.fqdn if before else ""):
        return "changes its host"
    rest = replace(new.spec, virtualhost=before, routes=old.spec.routes, includes=old.spec.includes)
    if guarded and (rest != old.spec or not _same_meta(old.metadata, new.metadata)):
        return "changes more than its routes"
    return _routes(old, new, falls=around.exempts or exempts(new))


def _routes(old: HTTPProxy, new: HTTPProxy, *, falls: bool) -> str:
    """Compare routes; with ``falls``, requests of a route that goes may fall to one without authorization."""
    there = new.spec.routes
    for route in old.spec.routes:
        if _exempt(route):
            continue
        same = [each for each in there if each.conditions == route.conditions]
        if any(_terms(each) != _terms(route) for each in same):
            return "changes the authorization of a route"
        if falls and not same:
            return "removes a route"
    known = [each.conditions for each in old.spec.routes if _exempt(each)]
    if any(_exempt(each) and each.conditions not in known for each in there):
        return "disables authorization for a route"
    if falls and old.spec.includes != new.spec.includes:
        return "changes its includes"
    return ""


def _exempt(route: Route) -> bool:
    return route.auth_policy is not None and route.auth_policy.disabled


def _terms(route: Route) -> object:
    return route.auth_policy, route.permit_insecure


# --- Policies and what they protect


def _same_protection(old: Backend | XBackend, new: Backend | XBackend) -> bool:
    return _same_meta(old.metadata, new.metadata) and replace(new.spec, mcp=old.spec.mcp) == old.spec


def _same_meta(old: Meta, new: Meta) -> bool:
    return (old.labels, old.annotations) == (new.labels, new.annotations)


def _policy(old: _Policy, new: _Policy) -> str:
    before, after = old.spec, new.spec
    if not _same_meta(old.metadata, new.metadata):
        return "changes its labels or annotations"
    if not _among(before.target_refs, after.target_refs):
        return "no longer has one of its targets"
    if after.mode not in {before.mode, "Enforce"}:
        return "is no longer enforced"
    rest = replace(after, target_refs=before.target_refs, mode=before.mode, rules=before.rules)
    if rest != before:
        return "changes more than its rules"
    # Rules grant: each that is there now must have been there, or be narrower than one that was.
    if not all(any(_narrower(rule, one) for one in before.rules) for rule in after.rules):
        return "has a rule that is new or grants more"
    # Where no rule is left nothing is granted, but by an XAccessPolicy that has more than rules.
    return "no longer has rules" if isinstance(new, XAccessPolicy) and not after.rules else ""


def _narrower(new: AccessRule, old: AccessRule) -> bool:
    """Tell whether a rule surely grants nothing that the other does not."""
    if old.source is not None and new.source != old.source:
        return False
    return _fewer(new.tools, old.tools) and _fewer_entries(new.authorization, old.authorization)


def _fewer(new: tuple[str, ...] | None, old: tuple[str, ...] | None) -> bool:
    if new == old or not new or not old:
        return new == old
    # One list has all tools; beside others the name means nothing that could be compared.
    return _ALL_TOOLS not in new and (old == (_ALL_TOOLS,) or _among(new, old))


def _fewer_entries(new: tuple[AuthorizationEntry, ...] | None, old: tuple[AuthorizationEntry, ...] | None) -> bool:
    # Entries are alternatives: each grants by itself.
    if new == old:
        return True
    return bool(new) and bool(old) and all(any(_narrower_entry(each, one) for one in old or ()) for each in new or ())


def _narrower_entry(new: AuthorizationEntry, old: AuthorizationEntry) -> bool:
    """Compare conditions, which must all be met: each must be the same or surely met by fewer requests."""
    rest = replace(
        new,
        tools=old.tools,
        mcp=old.mcp,
        methods=old.methods,
        paths=old.paths,
        headers=old.headers,
        hosts=old.hosts,
        ports=old.ports,
    )
    return (
        rest == old
        and _fewer(new.tools, old.tools)
        and _fewer_paths(new.paths, old.paths)
        and _among(old.headers, new.headers)
        and all(map(_fewer_listed, (new.methods, new.hosts, new.ports), (old.methods, old.hosts, old.ports)))
        and _fewer_mcp(new.mcp, old.mcp)
    )


def _fewer_listed(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    """Compare lists of accepted values; an empty list is no condition."""
    return not old or (bool(new) and _among(new, old))


def _fewer_paths(new: tuple[PathRule, ...], old: tuple[PathRule, ...]) -> bool:
    return not old or (bool(new) and all(any(_within(each, one) for one in old) for each in new))


def _within(new: PathRule, old: PathRule) -> bool:
    if new == old:
        return True
    prefix, path = old.pattern or "", new.pattern or ""
    return prefix.endswith("*") and path.startswith(prefix[:-1])


def _fewer_mcp(new: McpAttributes | None, old: McpAttributes | None) -> bool:
    if new == old or not _limits(old):
        return True
    if new is None or old is None or not _limits(new):
        return False
    same_base = new.mcp_base_protocol_methods_option == old.mcp_base_protocol_methods_option
    return same_base and all(any(_narrower_method(each, one) for one in old.methods) for each in new.methods)


def _limits(mcp: McpAttributes | None) -> bool:
    """Tell whether there is a condition on MCP: a method, or the base protocol alone."""
    return mcp is not None and (bool(mcp.methods) or mcp.mcp_base_protocol_methods_option == MATCH_BASE)


def _narrower_method(new: McpMethod, old: McpMethod) -> bool:
    return new.name == old.name and _fewer_listed(new.params, old.params)


def _among(some: Iterable[object], others: Iterable[object]) -> bool:
    known = list(others)
    return all(each in known for each in some)
