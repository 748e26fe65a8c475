"""What an HTTPProxy says about authorization, as `Unprotected`, `Disabled` or `Enforced` for each route."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.base.timeouts import UseDefault, parse_timeout
from authplane.graph.guards import (
    AuthorizationService,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    OverGrpc,
    RouteAuthorization,
    Unprotected,
)
from authplane.graph.upstreams import ExtensionCluster
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import VirtualHost
from authplane.resources.kinds.contour_policies import Authorization, AuthPolicy

_API_VERSION: Final = "projectcontour.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class Guarded:
    """The virtual host has an authorization service; ``policy`` holds where a route has none of its own."""

    service: AuthorizationService
    policy: AuthPolicy


@dataclass(frozen=True, slots=True)
class Unenforceable:
    """The virtual host asks for authorization that cannot be given: an error has withdrawn it."""


HostAuthorization: TypeAlias = Unprotected | Guarded | Unenforceable


def host_authorization(
    virtual_host: VirtualHost,
    namespace: str,
    resources: Resources,
    extensions: Mapping[ObjectName, ExtensionCluster],
    problems: Problems,
) -> HostAuthorization:
    """Read ``virtualhost.authorization``; whatever is configured and cannot be enforced is an error."""
    authorization = virtual_host.authorization
    if authorization is None:
        return Unprotected()
    with problems.at("authorization"):
        _require_enforceable(virtual_host, authorization, problems)
        cluster = _extension(authorization, namespace, resources, extensions, problems)
        timeout = parse_timeout(authorization.response_timeout)
        if timeout is None:
            text = authorization.response_timeout
            with problems.at("responseTimeout"):
                problems.add(
                    "AuthResponseTimeoutInvalid",
                    "Spec.Virtualhost.Authorization.ResponseTimeout is invalid: unable to parse timeout string "
                    f'"{text}": time: invalid duration "{text}"',
                )
        if authorization.fail_open:
            with problems.at("failOpen"):
                problems.warn(
                    "AuthFailOpen", "requests go through unchecked whenever the authorization service does not answer"
                )
    if cluster is None or timeout is None:
        return Unenforceable()
    service = AuthorizationService(
        cluster=cluster.name,
        protocol=OverGrpc(authority=cluster.authority),
        timeout=cluster.response_timeout if isinstance(timeout, UseDefault) else timeout,
        on_failure=FailOpen() if authorization.fail_open else FailClosed(),
    )
    return Guarded(service, authorization.auth_policy or AuthPolicy())


def _require_enforceable(virtual_host: VirtualHost, authorization: Authorization, problems: Problems) -> None:
    tls = virtual_host.tls
    if tls is not None and tls.enable_fallback_certificate:
        problems.add("TLSIncompatibleFeatures", "Spec.Virtualhost.TLS fallback & client authorization are incompatible")
    if not authorization.extension_ref.name:
        with problems.at("extensionRef", "name"):
            problems.add(
                "AuthMissingExtensionRef",
                "Spec.VirtualHost.Authorization names no authorization service, so nothing would be enforced",
            )
    elif tls is None or tls.passthrough:
        problems.add(
            "AuthNotPermitted",
            "Spec.VirtualHost.Authorization.ExtensionServiceRef can only be defined for root HTTPProxies that "
            "terminate TLS",
        )


def _extension(
    authorization: Authorization,
    namespace: str,
    resources: Resources,
    extensions: Mapping[ObjectName, ExtensionCluster],
    problems: Problems,
) -> ExtensionCluster | None:
    ref = authorization.extension_ref
    with problems.at("extensionRef"):
        if ref.api_version not in {"", _API_VERSION}:
            problems.add(
                "AuthBadResourceVersion",
                "Spec.Virtualhost.Authorization.extensionRef specifies an unsupported resource version "
                f'"{ref.api_version}"',
            )
        if ref.kind not in {"", "ExtensionService"}:
            problems.add(
                "AuthBadResourceKind",
                f'Spec.Virtualhost.Authorization.extensionRef specifies an unsupported resource kind "{ref.kind}"',
            )
        if not ref.name:
            return None
        name = ObjectName(ref.namespace or namespace, ref.name)
        cluster = extensions.get(name)
        if cluster is None:
            reason, why = _why_unusable(resources, name)
            problems.add(reason, f'Spec.Virtualhost.Authorization.ServiceRef extension service "{name}" {why}')
        return cluster


def _why_unusable(resources: Resources, name: ObjectName) -> tuple[str, str]:
    exists = (
        name in resources.extension_services or Ref("ExtensionService", name.namespace, name.name) in resources.broken
    )
    if exists:
        return "ExtensionServiceNotValid", "is not valid; its own status says why"
    return "ExtensionServiceNotFound", "not found"


def route_authorization(host: HostAuthorization, policy: AuthPolicy | None, problems: Problems) -> RouteAuthorization:
    """Apply a route's own policy to what holds for its virtual host."""
    match host:
        case Unprotected():
            if policy is not None:
                with problems.at("authPolicy"):
                    problems.warn("IgnoredField", "the virtual host has no authorization that this could change")
            return Unprotected()
        case Unenforceable():
            return Unprotected()  # nobody will meet this route
        case Guarded(service, default):
            # A route's policy replaces `disabled` as a whole: one that only adds context switches authorization on.
            if (policy or default).disabled:
                return Disabled()
            context = dict(default.context) | (dict(policy.context) if policy else {})
            return Enforced(service=service, context=tuple(sorted(context.items())))
        case _:
            assert_never(host)
