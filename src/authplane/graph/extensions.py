"""ExtensionServices to clusters."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.base.timeouts import Timeout, UseDefault, parse_timeout
from authplane.graph.reports import Reports
from authplane.graph.secrets import ca_bundle
from authplane.graph.services import Unresolved, resolve
from authplane.graph.upstreams import (
    Balancing,
    EndpointGroup,
    ExtensionCluster,
    HttpVersion,
    Plaintext,
    UnverifiedTls,
    UpstreamTls,
    VerifiedTls,
)
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_policies import UpstreamValidation
from authplane.resources.kinds.extension_service import ExtensionServiceSpec

T = TypeVar("T")

_BALANCING: Final = {"": Balancing.ROUND_ROBIN} | {strategy.value: strategy for strategy in Balancing}


def extension_clusters(resources: Resources, reports: Reports) -> Mapping[ObjectName, ExtensionCluster]:
    """Build the cluster of every valid ExtensionService, whether or not something refers to it."""
    clusters = {}
    for name, extension in sorted(resources.extension_services.items()):
        problems = reports.of(Ref("ExtensionService", name.namespace, name.name))
        with problems.at("spec"):
            cluster = _build_cluster(resources, name, extension.spec, problems)
        if not problems.errors:
            clusters[name] = cluster
    return clusters


def _build_cluster(
    resources: Resources, name: ObjectName, spec: ExtensionServiceSpec, problems: Problems
) -> ExtensionCluster:
    protocol = _agreed("protocol", [spec.protocol, *(each.protocol for each in spec.services)], problems) or "h2"
    validation = _agreed("validation", [spec.validation, *(each.validation for each in spec.services)], problems)
    if spec.protocol_version == "v2":
        with problems.at("protocolVersion"):
            problems.warn("IgnoredField", "Envoy no longer speaks v2 of the protocol; v3 is used")
    tls = _upstream_tls(resources, name.namespace, protocol, validation, problems)
    return ExtensionCluster(
        name=f"extension/{name}",
        object_name=name,
        version=HttpVersion.HTTP2,
        tls=tls,
        # A slash is not allowed in the name of a host.
        authority=tls.server_name if isinstance(tls, VerifiedTls) else f"extension/{name}".replace("/", "."),
        destinations=_endpoint_groups(resources, name.namespace, spec, problems),
        balancing=_balancing(spec.load_balancer_policy.strategy, problems),
        response_timeout=_timeout(spec.timeout_policy.response, "response", problems),
        idle_connection_timeout=_idle_connection(spec, problems),
    )


def _agreed(field: str, written: Iterable[T | None], problems: Problems) -> T | None:
    """Return the one value of a field that may stand in ``spec`` and in each of its services."""
    values = [value for value in written if value is not None]
    if any(value != values[0] for value in values):
        with problems.at(field):
            problems.add("FieldConflict", f"{field} is given more than once, with different values")
    return values[0] if values else None


def _upstream_tls(
    resources: Resources, namespace: str, protocol: str, validation: UpstreamValidation | None, problems: Problems
) -> UpstreamTls:
    if protocol == "h2c":
        if validation is not None:
            problems.add("InconsistentProtocol", f'upstream TLS validation not supported for "{protocol}" protocol')
        return Plaintext()
    if validation is None:
        problems.warn("UpstreamNotVerified", "without validation, Envoy sends requests to whoever answers there")
        return UnverifiedTls()
    with problems.at("validation"):
        return _verified_tls(resources, namespace, validation, problems)


def _verified_tls(
    resources: Resources, namespace: str, validation: UpstreamValidation, problems: Problems
) -> UpstreamTls:
    names = validation.subject_names or (validation.subject_name,)
    wrong = "TLS upstream validation policy error: "
    if names[0] != validation.subject_name:
        problems.add(
            "TLSUpstreamValidation",
            f"{wrong}first entry of SubjectNames ({names[0]}) does not match SubjectName ({validation.subject_name})",
        )
    secret = secret_name(validation.ca_secret, namespace)
    if secret.namespace != namespace:
        problems.add(
            "CACertificateNotDelegated",
            f'service.UpstreamValidation.CACertificate Secret "{secret}" is not configured for certificate delegation',
        )
        return UnverifiedTls()
    bundle = ca_bundle(resources, secret)
    if isinstance(bundle, str):
        problems.add("TLSUpstreamValidation", f'{wrong}invalid CA Secret "{secret}": {bundle}')
        return UnverifiedTls()
    return VerifiedTls(ca=bundle, subject_names=names, server_name=names[0])


def secret_name(written: str, namespace: str) -> ObjectName:
    """Read ``name`` or ``namespace/name``."""
    other, slash, name = written.partition("/")
    return ObjectName(other, name) if slash else ObjectName(namespace, written)


def _endpoint_groups(
    resources: Resources, namespace: str, spec: ExtensionServiceSpec, problems: Problems
) -> tuple[EndpointGroup, ...]:
    equal = all(target.weight == 0 for target in spec.services)
    groups = []
    for index, target in enumerate(spec.services):
        service = ObjectName(namespace, target.name)
        found = resolve(resources, service, target.port)
        if isinstance(found, Unresolved):
            with problems.at("services", index):
                problems.add(found.reason, _unresolved(service, found))
            continue
        groups.append(EndpointGroup(service=service, weight=1 if equal else target.weight, endpoints=found))
    return tuple(groups)


def _unresolved(service: ObjectName, why: Unresolved) -> str:
    return why.message if why.reason == "UnsupportedServiceType" else f'unresolved service "{service}": {why.message}'


def _balancing(strategy: str, problems: Problems) -> Balancing:
    if strategy not in _BALANCING:
        with problems.at("loadBalancerPolicy", "strategy"):
            problems.warn(
                "IgnoredField",
                f'ignoring field ".Spec.LoadBalancerPolicy"; {strategy} load balancer policy is not supported for '
                "ExtensionClusters",
            )
    return _BALANCING.get(strategy, Balancing.ROUND_ROBIN)


def _idle_connection(spec: ExtensionServiceSpec, problems: Problems) -> Timeout:
    _timeout(spec.timeout_policy.idle, "idle", problems)
    if spec.timeout_policy.idle:
        with problems.at("timeoutPolicy", "idle"):
            problems.warn(
                "IgnoredField",
                'ignoring field ".Spec.TimeoutPolicy.Idle"; idle timeouts are not supported for ExtensionClusters',
            )
    return _timeout(spec.timeout_policy.idle_connection, "idleConnection", problems)


def _timeout(text: str, field: str, problems: Problems) -> Timeout:
    timeout = parse_timeout(text)
    if timeout is not None:
        return timeout
    spoken = {"response": "response", "idle": "idle", "idleConnection": "idle connection"}[field]
    with problems.at("timeoutPolicy", field):
        problems.add(
            "TimeoutPolicyNotValid",
            f"spec.timeoutPolicy failed to parse: error parsing {spoken} timeout: "
            f'unable to parse timeout string "{text}": time: invalid duration "{text}"',
        )
    return UseDefault()
