"""The authorization of the whole gateway, of a virtual host and of each of its routes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from authplane.controlplane.graph.httpproxy.authorization_limits import (
    require_disabling_permitted,
    require_fail_open_permitted,
    require_shadow_permitted,
    require_short,
)
from authplane.controlplane.graph.httpproxy.authorization_service import build_service, require_no_context
from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.httpproxy.extension_refs import (
    Extensions,
    report_missing_reference,
    require_known_kind,
)
from authplane.controlplane.graph.model.host_model import ServiceHeaders
from authplane.controlplane.graph.model.reference_grants import may_refer
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    Disabled,
    Enforced,
    Guarded,
    HostAuthorization,
    OverHttp,
    RouteAuthorization,
    Shadow,
    Unavailable,
    Unenforceable,
    Unprotected,
)
from authplane.controlplane.graph.model.upstreams import Extension
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.settings.settings_places import settings_places
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Path, Problems
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import VirtualHost
from authplane.resources.kinds.contour_policies import Authorization, AuthPolicy

MODE: Final = "authplane.dev/authorization-mode"
"""The annotation of a root that says whether authorization is enforced or only tried."""

_HOST: Final = "Spec.Virtualhost.Authorization"
_GLOBAL: Final = "globalExtAuth"
_NO_POLICY: Final = AuthPolicy()


# --- The whole gateway


def global_authorization(
    settings: Settings,
    resources: Resources,
    extensions: Mapping[ObjectName, Extension],
    reports: Reports,
) -> HostAuthorization:
    """Return the authorization of hosts that name no service; problems are reported on the configuration."""
    written = settings.global_authorization
    if written is None:
        return Unprotected()
    known = Extensions(resources, extensions)
    policy = written.auth_policy or _NO_POLICY
    services: set[AuthorizationService | None] = set()
    holders = tuple(_holders(resources))
    for ref, path, field in holders:
        problems = reports.of(ref)
        with problems.at(*path):
            extension = known.named(written.extension_ref, ref.namespace, _GLOBAL, problems, field)
            services.add(None if extension is None else build_service(written, extension, _GLOBAL, problems))
            if resources.gateways or resources.backends or resources.x_backends:
                problems.warn(
                    "IgnoredField",
                    "Global authorization applies only to HTTPProxies. Use AccessPolicies for Backends.",
                )
    if len(services) > 1:
        _report_two_meanings(holders, reports)
    service = services.pop() if len(services) == 1 else None
    return Unavailable(policy=policy) if service is None else Guarded(service=service, policy=policy, anywhere=True)


def _holders(resources: Resources) -> Iterator[tuple[Ref, Path, Path]]:
    """Return the configurations that have global authorization, where, and the field that names the service."""
    for place in settings_places(resources):
        if place.spec.global_ext_auth is not None:
            path = place.path(("globalExtAuth",))
            yield place.ref, path, place.path(("globalExtAuth", "extensionRef"))[len(path) :]


def _report_two_meanings(holders: Iterable[tuple[Ref, Path, Path]], reports: Reports) -> None:
    """Report configurations that say the same and mean two services: they leave out a namespace that differs."""
    for ref, path, field in holders:
        problems = reports.of(ref)
        with problems.at(*path, *field, "namespace"):
            problems.add(
                "FieldConflict",
                "Two configurations name this service without a namespace and so refer to different namespaces. Set "
                "namespace in both.",
            )


# --- A virtual host


def host_authorization(
    virtual_host: VirtualHost, root: ObjectName, shared: BuildContext, problems: Problems
) -> HostAuthorization:
    """Say who authorizes a virtual host; whatever is configured and cannot be enforced is an error."""
    written = virtual_host.authorization
    if written is None:
        return _in_mode(shared.global_authorization, root, shared, problems)
    with problems.at("authorization"):
        _require_enforceable(virtual_host, written, shared.settings, problems)
        if written.extension_ref.name:
            guard = _own(written, root, shared, problems)
        else:
            guard = _adjusted(written, root, shared, problems)
        return _in_mode(guard, root, shared, problems)


def _require_enforceable(
    virtual_host: VirtualHost, written: Authorization, settings: Settings, problems: Problems
) -> None:
    tls = virtual_host.tls
    if tls is not None and tls.enable_fallback_certificate and not settings.insecure_authorization:
        problems.add("TLSIncompatibleFeatures", "Spec.Virtualhost.TLS fallback & client authorization are incompatible")
    insecure = tls is None and bool(written.extension_ref.name) and not settings.insecure_authorization
    if insecure or (tls is not None and tls.passthrough):
        problems.add(
            "AuthNotPermitted",
            "Spec.VirtualHost.Authorization.ExtensionServiceRef can only be defined for root HTTPProxies that "
            "terminate TLS",
        )


def _own(written: Authorization, root: ObjectName, shared: BuildContext, problems: Problems) -> HostAuthorization:
    """Read a block that names a service of its own."""
    settings = shared.settings
    policy = written.auth_policy or _NO_POLICY
    if policy.disabled:
        require_disabling_permitted(settings, root.namespace, root.namespace, problems)
    if written.fail_open:
        require_fail_open_permitted(settings, problems)
        with problems.at("failOpen"):
            problems.warn(
                "AuthFailOpen",
                "Envoy allows every request while the authorization service does not answer. Ignore this if intended.",
            )
    if not _granted(written, root, shared, problems):
        return Unenforceable()
    known = Extensions(shared.resources, shared.extensions)
    extension = known.named(written.extension_ref, root.namespace, _HOST, problems)
    service = None if extension is None else build_service(written, extension, _HOST, problems)
    if service is None:
        return Unenforceable()
    require_short(service.timeout, settings, problems)
    return Guarded(service=service, policy=policy, anywhere=settings.insecure_authorization)


def _granted(written: Authorization, root: ObjectName, shared: BuildContext, problems: Problems) -> bool:
    if not shared.settings.extension_grants:
        return True
    ref = written.extension_ref
    target = Ref("ExtensionService", ref.namespace or root.namespace, ref.name)
    if may_refer(shared.resources, Ref("HTTPProxy", root.namespace, root.name), target):
        return True
    with problems.at("extensionRef", "namespace"):
        problems.add(
            "RefNotPermitted",
            f'{_HOST}.ServiceRef extension service "{target.object_name}" is in another namespace, and no '
            f'ReferenceGrant lets HTTPProxies of "{root.namespace}" refer to it. '
            f'Add a ReferenceGrant in namespace "{target.namespace}".',
        )
    return False


def _adjusted(written: Authorization, root: ObjectName, shared: BuildContext, problems: Problems) -> HostAuthorization:
    """Read a block that names no service: it changes the policy of global authorization, as a whole."""
    require_known_kind(written.extension_ref, _HOST, problems)
    guard = shared.global_authorization
    policy = written.auth_policy or _NO_POLICY
    match guard:
        case Unprotected() | Unenforceable():
            report_missing_reference(_HOST, problems)
            return Unenforceable()
        case Guarded() | Unavailable():
            _warn_of_ignored(written, problems)
            if policy.disabled and not guard.policy.disabled:
                require_disabling_permitted(shared.settings, root.namespace, root.namespace, problems)
            if isinstance(guard, Guarded) and isinstance(guard.service.protocol, OverHttp):
                require_no_context(policy, _HOST, problems)
            return replace(guard, policy=policy)
        case _:
            assert_never(guard)


def _warn_of_ignored(written: Authorization, problems: Problems) -> None:
    """Name what counts only for a service of the host's own."""
    given = {
        "failOpen": written.fail_open,
        "httpSettings": written.http_settings is not None,
        "responseTimeout": bool(written.response_timeout),
        "serviceType": bool(written.service_type),
        "withRequestBody": written.with_request_body is not None,
    }
    for field in (field for field, is_given in given.items() if is_given):
        with problems.at(field):
            problems.warn(
                "IgnoredField",
                f"The global authorization protects this host, so {field} has no effect. Remove it, or set "
                "extensionRef.",
            )


def _in_mode(guard: HostAuthorization, root: ObjectName, shared: BuildContext, problems: Problems) -> HostAuthorization:
    """Apply the annotation of the root that says whether authorization is enforced."""
    mode = shared.resources.proxies[root].metadata.annotations.get(MODE, "Enforce")
    if mode not in {"Enforce", "Shadow"}:
        problems.add(
            "AuthModeNotValid", f'Annotation {MODE} has the unsupported value "{mode}". Supported: Enforce, Shadow.'
        )
    if mode != "Shadow" or isinstance(guard, Unenforceable | Unavailable):
        return guard
    if isinstance(guard, Unprotected):
        problems.warn(
            "IgnoredField", f"Annotation {MODE} has no effect: the virtual host has no authorization. Remove it."
        )
        return guard
    if not require_shadow_permitted(shared.settings, problems):
        return guard
    problems.warn(
        "AuthShadow",
        "Authorization is not enforced: Envoy sends checks, counts the decisions and allows every request. "
        "Ignore this if intended.",
    )
    return replace(guard, service=replace(guard.service, on_failure=Shadow()))


def reserved_headers(guard: HostAuthorization) -> ServiceHeaders | None:
    """Return which headers the authorization service of a host sets; None if the host has no authorization."""
    match guard:
        case Guarded(service=service):
            return ServiceHeaders(service.protocol.upstream_headers if isinstance(service.protocol, OverHttp) else ())
        case Unavailable():
            return ServiceHeaders()
        case Unprotected() | Unenforceable():
            return None
        case _:
            assert_never(guard)


# --- A route


def route_authorization(  # noqa: PLR0913 (a route, its two HTTPProxies and what is shared them)
    host: HostAuthorization,
    policy: AuthPolicy | None,
    *,
    root: ObjectName,
    proxy: ObjectName,
    shared: BuildContext,
    problems: Problems,
) -> RouteAuthorization:
    """Apply a route's own policy to the authorization of its virtual host; ``problems`` are those of ``proxy``."""
    match host:
        case Unprotected():
            if policy is not None:
                with problems.at("authPolicy"):
                    problems.warn(
                        "IgnoredField", "authPolicy has no effect: the virtual host has no authorization. Remove it."
                    )
            return Unprotected()
        case Unenforceable():
            return Unprotected()  # no request reaches this route
        case Guarded() | Unavailable():
            # A route's policy replaces `disabled` as a whole: one that only adds context switches authorization on.
            disabled = (policy or host.policy).disabled
            if disabled and not host.policy.disabled:
                disabled = require_disabling_permitted(shared.settings, root.namespace, proxy.namespace, problems)
            if disabled:
                return Disabled()
            if isinstance(host, Guarded):
                return _enforced(host, policy, problems)
            for each in (problems, shared.reports.of(Ref("HTTPProxy", root.namespace, root.name))):
                _report_unavailable(each)
            return Unprotected()  # the error of the root has withdrawn it
        case _:
            assert_never(host)


def _enforced(host: Guarded, policy: AuthPolicy | None, problems: Problems) -> Enforced:
    if isinstance(host.service.protocol, OverHttp):
        require_no_context(policy, "Spec.Routes", problems)
        return Enforced(service=host.service, context=())
    context = dict(host.policy.context) | (dict(policy.context) if policy else {})
    return Enforced(service=host.service, context=tuple(sorted(context.items())))


def _report_unavailable(problems: Problems) -> None:
    reason = "GlobalAuthorizationNotValid"
    if all(problem.reason != reason for problem in problems.errors):
        problems.add(
            reason,
            "Global authorization protects this HTTPProxy, but Envoy cannot enforce it. See the status of the "
            "configuration.",
        )
