"""Who may use a Secret of another namespace."""

from typing import NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret
from tests.support.resources.contour_documents import EXTENSION, world

from authplane.controlplane.graph.model.upstreams import ExtensionCluster, VerifiedTls
from authplane.controlplane.graph.tls.secret_delegation import may_use
from authplane.core.names import ObjectName
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import (
    CertificateDelegation,
    TLSCertificateDelegation,
    TLSCertificateDelegationSpec,
)
from authplane.resources.kinds.meta import Meta


def delegation(namespace: str, secret: str, *targets: str) -> TLSCertificateDelegation:
    return TLSCertificateDelegation(
        metadata=Meta(name="shared", namespace=namespace),
        spec=TLSCertificateDelegationSpec(
            delegations=(
                CertificateDelegation(secret_name="another", target_namespaces=("*",)),
                CertificateDelegation(secret_name=secret, target_namespaces=targets),
            )
        ),
    )


class Case(NamedTuple):
    delegation: TLSCertificateDelegation
    want: bool


CASES = {
    "to the namespace": Case(delegation("certs", "ca", "other", "default"), want=True),
    "to all namespaces": Case(delegation("certs", "ca", "*"), want=True),
    "to other namespaces": Case(delegation("certs", "ca", "other", "defaul"), want=False),
    "to nobody": Case(delegation("certs", "ca"), want=False),
    "of another Secret": Case(delegation("certs", "tls", "*"), want=False),
    "in the namespace that wants it": Case(delegation("default", "ca", "*"), want=False),
}


@pytest.mark.requirement("ES-10")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_delegation_counts_in_the_secrets_namespace_for_the_named_namespaces(case: Case) -> None:
    resources = Resources(delegations={case.delegation.metadata.object_name: case.delegation})
    assert may_use(resources, ObjectName("certs", "ca"), "default") is case.want


def test_a_secret_of_the_own_namespace_needs_no_delegation() -> None:
    assert may_use(Resources(), ObjectName("default", "ca"), "default")


DELEGATION = """
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {name: shared, namespace: certs}
spec:
  delegations:
  - {secretName: ca, targetNamespaces: [default]}
"""


@pytest.mark.requirement("ES-10")
@pytest.mark.requirement("ES-11")
def test_a_ca_of_another_namespace_is_used_while_it_is_delegated() -> None:
    extension = EXTENSION.replace("caSecret: ca", "caSecret: certs/ca")
    ca = ca_secret("ca", namespace="certs")
    with_it = world(extension=extension, ca=ca, delegation=DELEGATION, proxy="")
    [cluster] = [each for each in with_it.graph.clusters if isinstance(each, ExtensionCluster)]
    assert cluster.tls == VerifiedTls(
        ca=authority().certificate, subject_names=("auth.example",), server_name="auth.example"
    )
    without = world(extension=extension, ca=ca, proxy="")
    assert without.graph.clusters == ()
    assert without.problems("ExtensionService") == [
        (
            "CACertificateNotDelegated",
            'service.UpstreamValidation.CACertificate Secret "certs/ca" is not configured for certificate delegation',
        )
    ]


def test_a_delegation_that_cannot_be_read_delegates_nothing() -> None:
    broken = DELEGATION.replace("targetNamespaces: [default]", "targetNamespaces: default")
    extension = EXTENSION.replace("caSecret: ca", "caSecret: certs/ca")
    made = world(extension=extension, ca=ca_secret("ca", namespace="certs"), delegation=broken, proxy="")
    assert [reason for reason, _ in made.problems("ExtensionService")] == ["CACertificateNotDelegated"]
