"""Gateway API's BackendTLSPolicy: Services that are reached over TLS."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar

from authplane.core.values import dataclass
from authplane.resources.kinds.meta import NOTHING, Meta
from authplane.resources.typed.schema import Length, Named, OneOf, Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTargetRef:
    """A Service, or one of its ports."""

    group: str = ""
    kind: Annotated[str, Length(1, 63)]
    name: Annotated[str, Length(1, 253)]
    section_name: Annotated[str, Length(0, 253)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaRef:
    """A ConfigMap or Secret in the policy's own namespace."""

    group: str = ""
    kind: Annotated[str, Length(1, 63)]
    name: Annotated[str, Length(1, 253)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTlsValidation:
    """How Envoy verifies the certificate of the Service."""

    ca_certificate_refs: Annotated[tuple[CaRef, ...], Length(0, 8)] = ()
    well_known_ca_certificates: Annotated[str, Named("wellKnownCACertificates"), OneOf(("System",))] = ""
    hostname: Annotated[str, Length(1, 253)]

    UPSTREAM: ClassVar = Upstream(refused=("subjectAltNames",))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTLSPolicySpec:
    """``spec`` of a BackendTLSPolicy."""

    target_refs: Annotated[tuple[TlsTargetRef, ...], Length(1, 16)]
    validation: BackendTlsValidation
    options: Mapping[str, str] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTLSPolicy:
    """Connects to Services over TLS, and sets how their certificates are verified."""

    metadata: Meta
    spec: BackendTLSPolicySpec
