"""Which Services are reached over TLS, and how to verify them: BackendTLSPolicies.

A Service that a policy names is never reached without TLS: if the policy cannot be applied, the Service is not reached.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.core.addresses import parse_ip_address
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem, Problems
from authplane.core.values import dataclass
from authplane.resources.catalogue import TLS_POLICY
from authplane.resources.documents import Resources
from authplane.resources.kinds.backend_tls_policy import BackendTLSPolicy, BackendTlsValidation, CaRef
from authplane.resources.kinds.core import Service

_HOST: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*")
_KEY: Final = "ca.crt"
_UNRESOLVED: Final = frozenset({"InvalidCACertificateRef", "InvalidKind"})
"""Problems of what a policy refers to."""


@dataclass(frozen=True, slots=True)
class SystemTrust:
    """The CAs that the connecting machine trusts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTls:
    """TLS to a Service whose certificate is for this name."""

    hostname: str
    """Asked for, and what the certificate must be for."""
    ca: bytes | SystemTrust
    """Certificates in PEM form, of which one must have signed it."""


@dataclass(frozen=True, slots=True)
class TlsRefused:
    """Why a Service must not be reached."""

    reason: str
    message: str


Tls: TypeAlias = BackendTls | TlsRefused


@dataclass(frozen=True, slots=True)
class TlsStanding:
    """The status of a policy at one of its targets."""

    service: ObjectName
    section: str
    reason: str
    """``Accepted``, or why not."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPolicyStanding:
    """The status of a policy."""

    ref: Ref
    generation: int
    targets: tuple[TlsStanding, ...]
    unresolved: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTlsPolicies:
    """What all policies say together."""

    services: Mapping[ObjectName, Mapping[str, Tls]] = field(default_factory=lambda: MappingProxyType({}))
    """By the name of a port; the empty name is the whole Service."""
    closed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Namespaces with a policy whose targets cannot be read, and the message about it.

    The empty namespace means all.
    """
    standings: tuple[TlsPolicyStanding, ...] = field(default=(), compare=False)
    problems: Mapping[Ref, tuple[Problem, ...]] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    def find(self, service: Service, port: int) -> Tls | None:
        """Return how a port of a Service is reached; None means without TLS.

        A policy for the port takes precedence over one for the whole Service. If a policy names a port that does not
        exist, ports without a policy are not reached, since the policy may mean one of them.
        """
        name = service.metadata.object_name
        said = self.services.get(name, {})
        if said:
            own = (said.get(each.name) for each in service.spec.ports if each.port == port and each.name)
            found = next((each for each in own if each is not None), said.get(""))
            if found is not None:
                return found
            stray = said.keys() - {each.name for each in service.spec.ports}
            if stray:
                message = f'Service "{name}" has no port {min(stray)!r}. Correct sectionName.'
                return TlsRefused("TargetNotFound", message)
        why = self.closed.get(name.namespace) or self.closed.get("")
        return None if why is None else TlsRefused("Invalid", why)


def read_backend_tls(resources: Resources) -> BackendTlsPolicies:
    """Read every policy; of two for the same target the older applies, then the one whose name comes first."""
    if not (resources.backend_tls_policies or resources.broken_tls_policies):
        return _NONE
    services: dict[ObjectName, dict[str, Tls]] = {}
    standings, problems = [], {}
    for policy in sorted(resources.backend_tls_policies.values(), key=_seniority):
        found = Problems()
        standing = _place(policy, resources, services, found)
        standings.append(standing)
        if found:
            problems[standing.ref] = tuple(found)
    closed = dict(_close(resources, services))
    return BackendTlsPolicies(
        services=MappingProxyType({name: MappingProxyType(said) for name, said in services.items()}),
        closed=MappingProxyType(closed),
        standings=tuple(sorted(standings, key=lambda each: each.ref)),
        problems=MappingProxyType(problems),
    )


_NONE: Final = BackendTlsPolicies()


def _seniority(policy: BackendTLSPolicy) -> tuple[bool, str, ObjectName]:
    created = policy.metadata.creation_timestamp
    return not created, created, policy.metadata.object_name


def _place(
    policy: BackendTLSPolicy, resources: Resources, services: dict[ObjectName, dict[str, Tls]], problems: Problems
) -> TlsPolicyStanding:
    name = policy.metadata.object_name
    with problems.at("spec"):
        if policy.spec.options:
            with problems.at("options"):
                problems.warn("IgnoredField", "authplane does not support options. Remove them.")
        with problems.at("validation"):
            tls = _read(policy.spec.validation, name.namespace, resources, problems)
        unresolved = tuple(each for each in problems.errors if each.reason in _UNRESOLVED)
        targets = []
        for index, target in enumerate(policy.spec.target_refs):
            service = ObjectName(name.namespace, target.name)
            with problems.at("targetRefs", index):
                if (target.group, target.kind) != ("", "Service"):
                    message = f"A {target.kind!r} of group {target.group!r} cannot be a target. Use a Service."
                    problems.add("UnsupportedTarget", message)
                    targets.append(TlsStanding(service, target.section_name, "Invalid", message))
                    continue
                said = services.setdefault(service, {})
                targets.append(_standing(tls, service, target.section_name, said, resources, problems))
    return TlsPolicyStanding(
        ref=Ref(TLS_POLICY, name.namespace, name.name),
        generation=policy.metadata.generation,
        targets=tuple(targets),
        unresolved=unresolved,
    )


def _standing(  # noqa: PLR0913, PLR0917 (each of them decides something)
    tls: Tls, service: ObjectName, section: str, said: dict[str, Tls], resources: Resources, problems: Problems
) -> TlsStanding:
    if section in said:
        port = f" port {section!r}" if section else ""
        message = f'An older policy already applies to Service "{service}"{port}. Remove one of the policies.'
        problems.add("Conflicted", message)
        return TlsStanding(service, section, "Conflicted", message)
    said[section] = tls
    if isinstance(tls, TlsRefused):
        return TlsStanding(service, section, tls.reason, f"authplane does not call the Service: {tls.message}")
    known = resources.services.get(service)
    if known is None or (section and all(each.name != section for each in known.spec.ports)):
        wrong = (
            "not found. Create it, or correct the name."
            if known is None
            else f"has no port {section!r}. Correct sectionName."
        )
        what = f'Service "{service}" {wrong}'
        problems.warn("TargetNotFound", what)
        return TlsStanding(service, section, "TargetNotFound", what)
    return TlsStanding(service, section, "Accepted", "authplane calls the Service over TLS.")


def _read(written: BackendTlsValidation, namespace: str, resources: Resources, problems: Problems) -> Tls:
    """Read how certificates are verified; one CA that can be used suffices."""
    before = problems.error_count
    host = written.hostname
    if not _HOST.fullmatch(host) or parse_ip_address(host) is not None:
        with problems.at("hostname"):
            problems.add("FieldInvalid", f"{host!r} is not a host name. Use a name such as 'authz.example.com'.")
    if bool(written.ca_certificate_refs) == bool(written.well_known_ca_certificates):
        given = "are both set" if written.ca_certificate_refs else "are both missing"
        message = f"'caCertificateRefs' and 'wellKnownCACertificates' {given}. Set exactly one of them."
        problems.add("FieldInvalid", message)
    if problems.error_count > before:
        return TlsRefused("Invalid", problems.errors[-1].message)
    if not written.ca_certificate_refs:
        return BackendTls(hostname=host, ca=SystemTrust())
    found = []
    for index, ref in enumerate(written.ca_certificate_refs):
        with problems.at("caCertificateRefs", index):
            pem = _authority(ref, namespace, resources, problems)
        found += [pem] if pem else []
    if not found:
        return TlsRefused("NoValidCACertificate", "No CA certificate is usable. Correct caCertificateRefs.")
    return BackendTls(hostname=host, ca=b"".join(found))


def _authority(ref: CaRef, namespace: str, resources: Resources, problems: Problems) -> bytes:
    """Return the certificates that a reference leads to; nothing after a problem."""
    name = ObjectName(namespace, ref.name)
    if ref.group or ref.kind not in {"ConfigMap", "Secret"}:
        message = f"A {ref.kind!r} of group {ref.group!r} cannot provide CA certificates. Use a ConfigMap or a Secret."
        problems.add("InvalidKind", message)
        return b""
    text: bytes | None
    if ref.kind == "ConfigMap":
        config_map = resources.config_maps.get(name)
        text = config_map.data.get(_KEY, "").encode() if config_map is not None else None
    else:
        secret = resources.secrets.get(name)
        value = secret.value(_KEY) if secret is not None else None
        text = (b"" if value is None else value.reveal()) if secret is not None else None
    if text is None:
        broken = Ref(ref.kind, namespace, ref.name) in resources.broken
        why = "cannot be read. Correct the document." if broken else "not found. Create it, or correct the name."
        problems.add("InvalidCACertificateRef", f'{ref.kind} "{name}" {why}')
        return b""
    from authplane.policy.rules.ca_certificates import rewrite_certificates  # noqa: PLC0415 (few have any to read, and cryptography takes 0.06 s)

    pem = rewrite_certificates(text)
    if not pem:
        said = f'{ref.kind} "{name}" has no readable certificates under {_KEY!r}. Add certificates in PEM format.'
        problems.add("InvalidCACertificateRef", said)
    return pem


def _close(resources: Resources, services: dict[ObjectName, dict[str, Tls]]) -> Iterator[tuple[str, str]]:
    """Close what policies that cannot even be read were meant for, or all that they can have been meant for."""
    for ref, targets in sorted(resources.broken_tls_policies.items()):
        message = f'{ref.kind} "{ref.object_name}" cannot be read. Correct the document.'
        if not ref.namespace:
            message = f"{ref.name} may contain a {ref.kind} and cannot be read. Correct the file."
        if targets is None:
            yield ref.namespace, message
        for each in _services(targets or ()):
            services.setdefault(each, {}).setdefault("", TlsRefused("Invalid", message))


def _services(targets: Iterable[Ref]) -> Iterator[ObjectName]:
    return (each.object_name for each in targets if each.kind == "Service")
