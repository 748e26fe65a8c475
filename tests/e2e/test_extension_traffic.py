"""Checks that really go where an ExtensionService says: shares, names outside, and TLS both ways."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

import pytest
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority, client, server, tls_secret
from tests.support.gateways.contour_gateway import Gateway, gateway, proxy, service

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.policy.check.decision import Allow, Decision
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import ServerTls, TcpAddress

pytestmark = pytest.mark.real

REQUESTS: Final = 200


@dataclass
class Counting:
    """Allows everything and counts by host."""

    name: ClassVar = "counting"
    hosts: Counter[str] = field(default_factory=Counter)

    def decide(self, request: Request, _now: datetime) -> Decision:
        self.hosts[request.host] += 1
        return Allow()


@asynccontextmanager
async def listening(backend: Counting, tls: ServerTls | None = None) -> AsyncGenerator[int]:
    """Serve checks and yield the port."""
    front = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0))
    async with serve_authz(backend, front, observer=Told(), tls=tls) as address:
        assert isinstance(address, TcpAddress)
        yield address.port


def extension(name: str, *targets: str, strategy: str = "RoundRobin") -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: {name}}}
spec:
  protocol: h2c
  services: [{", ".join(f"{{{target}}}" for target in targets)}]
  loadBalancerPolicy: {{strategy: {strategy}}}
"""


def host(name: str) -> str:
    return proxy(f"{name}.many.example", name=name).replace(
        "extensionRef: {name: auth}", f"extensionRef: {{name: {name}}}"
    )


def external(name: str) -> str:
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{type: ExternalName, externalName: 127.0.0.1}}
"""


def settle(it: Gateway, contour: str) -> None:
    """Add settings to those of the gateway."""
    it.write("gateway.yaml", (it.folder / "gateway.yaml").read_text(encoding="utf-8") + f"  contour: {{{contour}}}\n")


STRATEGIES: Final = {"robin": "RoundRobin", "random": "Random", "least": "WeightedLeastRequest"}


@pytest.mark.requirement("ES-21")
@pytest.mark.requirement("ES-23")
@pytest.mark.requirement("ES-25")
async def test_weights_steer_checks_to_endpoints_and_to_names_outside_alike() -> None:
    first, second = Counting(), Counting()
    async with gateway() as it, listening(first) as one, listening(second) as two:
        settle(it, "allowLocalExternalNames: true")
        it.write("one.yaml", "---".join([service("one", one), external("out-one")]))
        it.write("two.yaml", "---".join([service("two", two), external("out-two")]))
        near = ("name: one, port: 80, weight: 3", "name: two, port: 80, weight: 1")
        far = (f"name: out-one, port: {one}, weight: 3", f"name: out-two, port: {two}, weight: 1")
        documents = [extension(name, *near, strategy=strategy) for name, strategy in STRATEGIES.items()]
        documents += [extension("outside", *far), extension("equal", "name: one, port: 80", "name: two, port: 80")]
        documents += [extension("none", "name: one, port: 80, weight: 7", "name: two, port: 80, weight: 0")]
        names = [*STRATEGIES, "outside", "equal", "none"]
        it.write("extensions.yaml", "---".join([*documents, *(host(name) for name in names)]))
        shares: dict[str, int] = {}
        for name in names:
            fqdn = f"{name}.many.example"
            await it.answers("/", 200, fqdn)
            first.hosts.clear()
            second.hosts.clear()
            for _ in range(REQUESTS):
                assert await it.status("/", fqdn) == 200
            assert first.hosts[fqdn] + second.hosts[fqdn] == REQUESTS
            shares[name] = first.hosts[fqdn]
    # Even if each check were sent by chance, 150 of 200 would differ by 30 less than once in 100,000 times.
    assert {name: share for name, share in shares.items() if 120 < share < 180} == {
        name: shares[name] for name in (*STRATEGIES, "outside")
    }
    assert 70 < shares["equal"] <= 120
    assert shares["none"] == REQUESTS


ASKED: Final = """
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: mutual}
spec:
  services: [{name: one, port: 80}]
  validation: {caSecret: ca, subjectName: first.example, subjectNames: [first.example, mutual.example]}
"""


@pytest.mark.requirement("ES-13")
@pytest.mark.requirement("ES-14")
@pytest.mark.requirement("ES-18")
@pytest.mark.parametrize("delta", [False, True], ids=["state-of-the-world", "delta"])
async def test_tls_to_the_service_shows_our_certificate_and_verifies_its_own(delta: bool) -> None:
    backend = Counting()
    pair = server("mutual.example")
    tls = ServerTls(certificate=pair.certificate, key=pair.key, client_ca=authority().certificate)
    async with gateway(delta=delta) as it, listening(backend, tls) as port:
        it.write("one.yaml", service("one", port))
        it.write("mutual.yaml", "---".join([ASKED, host("mutual")]))
        # The service asks for a certificate, and there is none to show.
        await it.answers("/", 403, "mutual.many.example")
        it.write("client.yaml", tls_secret("envoy", client("envoy.example"), namespace="certs"))
        settle(it, "envoy: {clientCertificate: {namespace: certs, name: envoy}}")
        await it.answers("/", 200, "mutual.many.example")
        # Its certificate is for another name.
        it.write("mutual.yaml", "---".join([ASKED.replace("mutual.example", "other.example"), host("mutual")]))
        await it.answers("/", 403, "mutual.many.example")
    assert set(backend.hosts) == {"mutual.many.example"}
