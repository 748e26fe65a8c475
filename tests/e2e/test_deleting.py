"""Whatever is deleted, nothing opens; what comes back serves again."""

from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import pytest
import pytest_asyncio
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import AUTH_NAME, Gateway, gateway
from tests.support.gateways.status_conditions import conditions

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTS: Final = ("web", "other", "plain")
"""Hosts that are protected by a service of their own, by the global one, and without TLS."""


def delegation(name: str, to: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {{name: {name}, namespace: certs}}
spec: {{delegations: [{{secretName: {name}, targetNamespaces: [{to}]}}]}}
"""


def host(name: str, authorization: str, tls: str = "tls: {secretName: certs/tls}, ") -> str:
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {name}}}
spec:
  virtualhost: {{fqdn: {name}.example, {tls}authorization: {{{authorization}}}}}
  routes: [{{services: [{{name: echo, port: 80}}]}}]
"""


OWN: Final = "extensionRef: {name: auth, namespace: team}"
DOCUMENTS: Final = {
    "tls": tls_secret("tls", server("web.example", "other.example"), namespace="certs"),
    "ca": ca_secret("ca", namespace="certs"),
    "delegated tls": delegation("tls", "default"),
    "delegated ca": delegation("ca", "team"),
    "extension": f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: auth, namespace: team}}
spec:
  services: [{{name: auth, port: 80}}]
  validation: {{caSecret: certs/ca, subjectName: {AUTH_NAME}}}
  timeoutPolicy: {{response: 2s}}
""",
    "grant": """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: proxies, namespace: team}
spec:
  from: [{group: projectcontour.io, kind: HTTPProxy, namespace: default}]
  to: [{group: projectcontour.io, kind: ExtensionService}]
""",
    "global": f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec: {{globalExtAuth: {{{OWN}}}}}
""",
    "web": host("web", OWN),
    "other": host("other", "authPolicy: {disabled: false}"),
    "plain": host("plain", OWN, tls=""),
}


class Found(NamedTuple):
    """The statuses of a request that is allowed and one that is denied, for each host; 0 is no connection."""

    web: tuple[int, int] = (200, 401)
    other: tuple[int, int] = (200, 401)
    plain: tuple[int, int] = (200, 401)


ALL: Final = Found()
NONE: Final = (0, 0)
UNKNOWN: Final = (404, 404)

NOWHERE: Final = Found(NONE, NONE, NONE)
CASES: Final = {
    "tls": Found(web=NONE, other=NONE),
    "delegated tls": Found(web=NONE, other=NONE),
    "ca": NOWHERE,
    "delegated ca": NOWHERE,
    "extension": NOWHERE,
    "auth service": NOWHERE,
    "auth endpoints": Found((403, 403), (403, 403), (403, 403)),
    "grant": Found(web=NONE, plain=UNKNOWN),
    "global": Found(other=NONE),
    "web": Found(web=NONE),
    "other": Found(other=NONE),
    "plain": Found(plain=UNKNOWN),
    "echo service": Found((503, 401), (503, 401), (503, 401)),
    "echo endpoints": Found((503, 401), (503, 401), (503, 401)),
    "settings": Found(plain=UNKNOWN),
}


async def statuses(it: Gateway) -> Found:
    found = {}
    for name in HOSTS:
        ask = it.plain_status if name == "plain" else it.status
        found[name] = (await ask("/allow", f"{name}.example"), await ask("/secret", f"{name}.example"))
    return Found(**found)


async def become(it: Gateway, want: Found) -> None:
    """Wait for these statuses; on the way nothing is served that is denied."""
    last: list[Found] = []

    async def holds() -> bool:
        last[:] = [await statuses(it)]
        assert 200 not in {last[0].web[1], last[0].other[1], last[0].plain[1]}
        return last == [want]

    try:
        await eventually(holds)
    except TimeoutError:
        assert last == [want]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def it() -> AsyncGenerator[Gateway]:
    async with gateway() as running:
        files = {path.name: path.read_text(encoding="utf-8") for path in running.folder.iterdir()}
        for name in ("auth.yaml", "web.yaml", "secrets.yaml", "services.yaml"):
            (running.folder / name).unlink()
        services: list[str] = []
        slices: list[str] = []
        for part in files["services.yaml"].split("---"):
            (services if "kind: Service" in part else slices).append(part)
        for name, (one, other) in zip(("echo", "auth"), zip(services, slices, strict=True), strict=True):
            here = "team" if name == "auth" else "default"
            running.write(f"{name} service.yaml", one.replace("namespace: default", f"namespace: {here}"))
            running.write(f"{name} endpoints.yaml", other.replace("namespace: default", f"namespace: {here}"))
        for name, text in DOCUMENTS.items():
            running.write(f"{name}.yaml", text)
        running.write("settings.yaml", files["gateway.yaml"] + SETTINGS)
        (running.folder / "gateway.yaml").unlink()
        await become(running, ALL)
        yield running


SETTINGS: Final = "  contour: {requireExtensionGrants: true, allowInsecureAuthorization: true}\n"


@pytest.mark.real
@pytest.mark.requirement("ES-24")
@pytest.mark.requirement("X11")
@pytest.mark.parametrize(("name", "want"), CASES.items(), ids=CASES.keys())
async def test_what_is_deleted_opens_nothing_and_serves_again_when_it_is_back(
    it: Gateway, name: str, want: Found
) -> None:
    path = it.folder / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    if name == "settings":
        # Without the whole document Envoy would listen elsewhere.
        it.write(path.name, text.replace(SETTINGS, ""))
    else:
        path.unlink()
    try:
        await become(it, want)
    finally:
        it.write(path.name, text)
    await become(it, ALL)


@pytest.mark.real
async def test_a_service_that_comes_late_makes_its_extension_valid(it: Gateway) -> None:
    path = it.folder / "auth service.yaml"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    await become(it, NOWHERE)
    valid = (await conditions(it.folder, "ExtensionService", "auth"))["Valid"]
    assert (valid["status"], valid["errors"][0]["reason"]) == ("False", "ServiceUnresolvedReference")
    it.write(path.name, text)
    await become(it, ALL)
    assert (await conditions(it.folder, "ExtensionService", "auth"))["Valid"]["status"] == "True"
