"""``spec.tls.frontend`` of a Gateway: which certificates the clients of each port need."""

from typing import Final, NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret, indented, server, tls_secret
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.model.port_model import SecurePort

CONFIG_MAP: Final = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: ca}}
data:
  ca.crt: |
{indented(authority().certificate)}
"""
BY_SECRET: Final = "{validation: {caCertificateRefs: [{group: '', kind: Secret, name: ca}]}}"
BY_CONFIG_MAP: Final = "{validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}"
OPTIONAL: Final = "{validation: {mode: AllowInsecureFallback, caCertificateRefs: [{name: ca}]}}"


def gateway(tls: str, own: str = "") -> str:
    listeners = "\n".join(
        f"  - {{name: l{port}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: tls}}]{own}}}}}"
        for port in (8443, 9443)
    )
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  tls: {tls}
  listeners:
{listeners}
"""


ROUTE: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: edge}]
"""


def world_of(tls: str, own: str = "") -> World:
    secrets = (tls_secret("tls", server("edge.example")), ca_secret("ca"), CONFIG_MAP)
    return World([gateway(tls, own), ROUTE, *secrets])


def required(world: World) -> dict[int, bool | None]:
    """Return by port whether clients need a certificate; None if they cannot show one."""
    return {
        port.where.port: None if chain.clients is None else chain.clients.required
        for port in world.graph.gateways
        if isinstance(port, SecurePort)
        for chain in port.chains
        if chain.certificates
    }


class Case(NamedTuple):
    tls: str
    want: dict[int, bool | None]
    own: str = ""


CASES: Final = {
    "the default is for every port": Case(f"{{frontend: {{default: {BY_SECRET}}}}}", {8443: True, 9443: True}),
    "CAs may be in a ConfigMap": Case(f"{{frontend: {{default: {BY_CONFIG_MAP}}}}}", {8443: True, 9443: True}),
    "a port may have its own": Case(
        f"{{frontend: {{default: {BY_SECRET}, perPort: [{{port: 9443, tls: {OPTIONAL}}}]}}}}",
        {8443: True, 9443: False},
    ),
    "a port may have none": Case(
        f"{{frontend: {{default: {BY_SECRET}, perPort: [{{port: 9443, tls: {{}}}}]}}}}", {8443: True, 9443: None}
    ),
    "a listener's own comes first": Case(
        f"{{frontend: {{default: {OPTIONAL}}}}}",
        {8443: True, 9443: True},
        ", frontendValidation: {caCertificateRefs: [{name: ca}]}",
    ),
    "nothing is nothing": Case("{frontend: {default: {}}}", {8443: None, 9443: None}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_port_demands_what_is_written(case: Case) -> None:
    world = world_of(case.tls, case.own)
    assert world.problems("Gateway") == []
    assert required(world) == case.want


@pytest.mark.parametrize(
    ("tls", "served", "reason"),
    [
        pytest.param(
            "{frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: gone}]}}}}",
            {},
            "InvalidCACertificateRef",
            id="a ConfigMap that is not there closes all ports",
        ),
        pytest.param(
            "{frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: ca, namespace: other}]}}}}",
            {},
            "RefNotPermitted",
            id="a ConfigMap of another namespace needs a grant",
        ),
        pytest.param(
            f"{{frontend: {{default: {BY_SECRET}, perPort: [{{port: 9443, tls: {{}}}}, {{port: 9443, tls: {{}}}}]}}}}",
            {8443: True},
            "Invalid",
            id="a port that is named twice is closed",
        ),
    ],
)
def test_what_cannot_be_enforced_is_not_served(tls: str, served: dict[int, bool], reason: str) -> None:
    world = world_of(tls)
    assert {found for found, _ in world.problems("Gateway")} == {reason}
    assert required(world) == served
