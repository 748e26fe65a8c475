"""The parts of an installation, started with the command lines, names and permissions of the manifests.

What a Pod gives them is given here: Secrets as folders, tokens of their ServiceAccounts, addresses of their Services.
"""

import base64
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from tests.deploy.installed_objects import one, plain_objects
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tests.support.policies.documents import BACKEND
from tests.support.ports import free_port
from tools.kubernetes.manifests import NAMESPACE, PLAIN

from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import envoy_binary

PORTS: Final = (18000, 9095, 9443, 9091, 8002, 8080, 8090)
HELLO: Final = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web, namespace: default}
spec:
  virtualhost: {fqdn: web.example}
  routes: [{directResponsePolicy: {statusCode: 200, body: hello}}]
"""
SHOP: Final = """
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: default}
spec: {ports: [{port: 80}]}
"""
POLICY: Final = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: shop, namespace: default}
spec:
  targetRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}]
  rules:
  - name: agent
    source: {type: SPIFFE, spiffe: ["spiffe://cluster.local/ns/default/sa/agent"]}
    authorization: [{type: InlineTools, tools: [add]}]
"""
JSON_TYPES: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class Site:
    """A cluster with the manifests, and a folder in place of the file systems of Pods."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self._objects = plain_objects()
        self.ports = {port: free_port() for port in PORTS}
        self.lines: list[str] = []

    def pod(self, kind: str, component: str) -> Mapping[str, Any]:
        spec = one(self._objects, kind, f"authplane-{component}")["spec"]
        template = spec["jobTemplate"]["spec"]["template"] if kind == "CronJob" else spec["template"]
        found: Mapping[str, Any] = template["spec"]
        return found

    def argv(self, component: str, container: Object) -> list[str]:
        """Return the command line of a container, with the paths and ports of this machine."""
        return [self._here(component, word) for word in (*container["command"], *container["args"])]

    def _here(self, component: str, word: str) -> str:
        home = self._folder / component
        for inside, outside in (("/etc/authplane/tls", "tls"), ("/var/lib/authplane", "state"), ("/run/envoy", "run")):
            word = word.replace(inside, str(home / outside))
        word = word.replace("$(POD_NAME)", f"{component}-1")
        word = word.replace("authplane-control.authplane-system.svc:", "127.0.0.1:")
        for port, here in self.ports.items():
            word = word.replace(f":{port}", f":{here}")
        return word

    def environment(self, component: str) -> dict[str, str]:
        """Return what a Pod has: a token of its account, and folders of its own."""
        home = self._folder / component
        for name in ("tls", "state", "run", "tmp"):
            (home / name).mkdir(parents=True, exist_ok=True)
        found = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(home / "tmp"),
            "TMPDIR": str(home / "tmp"),
        }
        if component != "envoy":
            token = self.cluster.service_account_token(NAMESPACE, f"authplane-{component}")
            found["KUBECONFIG"] = str(self.cluster.kubeconfig_for(token, NAMESPACE))
        return found | {"POD_NAME": f"{component}-1", "POD_NAMESPACE": NAMESPACE}

    def mount(self, component: str) -> None:
        """Write the Secret that the Pod mounts."""
        [name] = [
            each["secret"]["secretName"] for each in self.pod("Deployment", component)["volumes"] if "secret" in each
        ]
        data = self.cluster.objects.get("v1", "Secret", name, NAMESPACE)["data"]
        for key, value in data.items():
            path = self._folder / component / "tls" / key
            path.touch(mode=0o600)
            path.write_bytes(base64.b64decode(value))

    def run_to_end(self, component: str, container: Object, *more: str) -> None:
        """Run a container that ends by itself."""
        done = subprocess.run(
            [*self.argv(component, container), *more],
            env=self.environment(component),
            capture_output=True,
            text=True,
            check=False,
            timeout=START_LIMIT,
        )
        assert done.returncode == 0, done.stderr

    @asynccontextmanager
    async def running(self, component: str) -> AsyncIterator[None]:
        """Run the container of a Deployment."""
        environment = self.environment(component)
        self.mount(component)
        [container] = self.pod("Deployment", component)["containers"]
        argv = self.argv(component, container)

        async def keep(line: Line) -> None:
            self.lines.append(f"{component}: {line.text}")

        program = str(envoy_binary()) if argv[0] == "envoy" else str(Path(sys.executable).parent / argv[0])
        more = ["--use-dynamic-base-id"] if argv[0] == "envoy" else []
        async with run_process([program, *argv[1:], *more], sink=keep, environment=environment):
            yield

    async def answers(self, port: int, path: str, status: int = 200) -> None:
        """Wait until a page has a status."""

        async def holds() -> bool:
            try:
                return (await self.page(port, path)).status_code == status
            except httpx2.HTTPError:
                return False

        await self.soon(holds)

    async def soon(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it holds; fail with what the parts wrote."""
        try:
            await eventually(holds, limit=START_LIMIT)
        except TimeoutError:
            raise AssertionError("\n".join(self.lines[-60:])) from None

    async def page(self, port: int, path: str, **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.ports[port]}") as client:
            return await client.get(path, headers=headers)


def install(site: Site) -> None:
    """Apply everything as an operator does, with the addresses of this machine."""
    definitions = subprocess.run(
        [sys.executable, "-m", "authplane", "crds", "--all"], capture_output=True, check=True, timeout=START_LIMIT
    ).stdout
    (site.cluster.folder / "crds.yaml").write_bytes(definitions)
    site.cluster.install_crds([site.cluster.folder / "crds.yaml"])
    site.cluster.objects.apply_all((PLAIN / "namespace.yaml").read_text(encoding="utf-8"))
    for each in plain_objects():
        if each["kind"] == "AuthplaneConfiguration":
            server = each["spec"]["policyServer"]
            server["address"] = f"127.0.0.1:{site.ports[9443]}"
            each["spec"] |= {
                "listeners": {"http": {"address": "127.0.0.1", "port": site.ports[8080]}},
                "gateway": {"address": "127.0.0.1", "port": site.ports[8090]},
                "placement": "CallOut",
            }
        site.cluster.objects.apply(each)


@pytest.mark.requirement("KI-5")
@pytest.mark.real
@pytest.mark.slow
async def test_the_parts_work_together_with_their_own_permissions(
    cluster_programs: Mapping[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", cluster_programs) as cluster:
        site = Site(cluster, tmp_path)
        install(site)
        [container] = site.pod("CronJob", "certificates")["containers"]
        site.run_to_end("certificates", container)
        for text in (HELLO, SHOP, BACKEND, POLICY):
            cluster.objects.apply_all(text)
        async with AsyncExitStack() as stack:
            for component, port in (("control", 9095), ("policy", 9091)):
                await stack.enter_async_context(site.running(component))
                await site.answers(port, "/readyz")
            site.environment("envoy")
            site.mount("envoy")
            [init] = site.pod("Deployment", "envoy")["initContainers"]
            site.run_to_end("envoy", init, "--tls-server-name=authplane-control.authplane-system.svc")
            await stack.enter_async_context(site.running("envoy"))
            await site.answers(8002, "/ready")
            await check(site)
        assert [line for line in site.lines if "forbidden" in line.lower()] == []


async def check(site: Site) -> None:
    async def is_served() -> bool:
        try:
            return (await site.page(8080, "/", host="web.example")).text == "hello"
        except httpx2.HTTPError:
            return False

    async def is_written() -> bool:
        found = site.cluster.objects.get("projectcontour.io/v1", "HTTPProxy", "web")
        return bool(found.get("status", {}).get("currentStatus") == "valid")

    await site.soon(is_served)
    await site.soon(is_written)
    assert site.cluster.objects.listed("coordination.k8s.io/v1", "Lease", NAMESPACE)["items"]

    async def is_decided() -> bool:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{site.ports[8090]}") as client:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
            answer = await client.post("/default/shop", json=call, headers=JSON_TYPES)
        # The policy server denies; without it, Envoy answers 503.
        return answer.status_code == 403

    await site.soon(is_decided)
    assert "authplane_policy_decisions_total{" in (await site.page(9091, "/metrics")).text
