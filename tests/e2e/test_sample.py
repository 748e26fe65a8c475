"""The sample of Contour's design: the folder of the example, and what stood beside it for a cluster."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, run_process

pytestmark = pytest.mark.real

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

FOR_A_CLUSTER: Final = """
apiVersion: cert-manager.io/v1alpha3
kind: ClusterIssuer
metadata: {name: selfsigned}
spec: {selfSigned: {}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ingress-conformance-echo}
---
apiVersion: v1
kind: Service
metadata: {name: ingress-conformance-echo}
---
apiVersion: cert-manager.io/v1alpha2
kind: Certificate
metadata: {name: echo}
spec:
  dnsNames: [echo.projectcontour.io]
  secretName: echo
  issuerRef: {name: selfsigned, kind: ClusterIssuer}
---
apiVersion: v1
kind: Namespace
metadata: {name: contour-auth}
---
apiVersion: cert-manager.io/v1alpha2
kind: Certificate
metadata: {name: testserver, namespace: contour-auth}
spec:
  dnsNames: [testserver.auth.projectcontour.io]
  secretName: testserver
  issuerRef: {name: selfsigned, kind: ClusterIssuer}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: testserver
  namespace: contour-auth
  labels: {app.kubernetes.io/name: contour-testserver}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: contour-testserver}
  replicas: 1
  template:
    metadata:
      labels: {app.kubernetes.io/name: contour-testserver}
    spec:
      containers:
      - name: testserver
        image: contour-authserver:latest
        imagePullPolicy: IfNotPresent
        command: [/contour-authserver]
        args: [testserver, '--address=:9443', --tls-ca-path=/tls/ca.crt, --tls-cert-path=/tls/tls.crt,
               --tls-key-path=/tls/tls.key]
        ports: [{name: auth, containerPort: 9443, protocol: TCP}]
        volumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
      terminationGracePeriodSeconds: 10
      volumes: [{name: tls, secret: testserver}]
"""
"""What the design's sample deploys besides: a folder has no use for it. One Service has no ports, and nobody asks."""

AS_WRITTEN: Final = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: echo}
spec:
  virtualhost:
    fqdn: echo.projectcontour.io
    tls: {secretName: echo}
    authorization:
      extensionRef:
        apiVersion: projectcontour.io/v1alpha1
        kind: ExtensionService
        name: testserver
        namespace: contour-auth
    timeout: 500ms
    authPolicy:
      disabled: false
      context: {key1: value1, key2: value2}
  routes:
  - services: [{name: echo, port: 80}]
"""
"""Two fields stand where the kind has none."""


class Sample:
    """A copy of the example with ports that are free, and its Secrets."""

    def __init__(self, root: Path) -> None:
        self.folder, self.state = root / "sample", root / "state"
        self.http, self.https, self.auth, self.echo = (free_port() for _ in range(4))
        self.lines: list[str] = []
        self.folder.mkdir()
        for source in (EXAMPLES / "contour-sample").glob("*.yaml"):
            if source.name != "secrets.yaml":
                text = source.read_text(encoding="utf-8").replace("9443", str(self.auth))
                (self.folder / source.name).write_text(text.replace("9080", str(self.echo)), encoding="utf-8")
        (self.folder / "cluster.yaml").write_text(FOR_A_CLUSTER, encoding="utf-8")
        (self.folder / "gateway.yaml").write_text(
            f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: sample}}
spec:
  listeners:
    http: {{address: 127.0.0.1, port: {self.http}}}
    https: {{address: 127.0.0.1, port: {self.https}}}
""",
            encoding="utf-8",
        )
        command = [sys.executable, str(EXAMPLES / "make_secrets.py"), str(self.folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=START_LIMIT)

    def authplane(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; returns its status and what it printed."""
        command = [sys.executable, "-m", "authplane", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, timeout=START_LIMIT, text=True)
        return done.returncode, done.stdout

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start both programs as the example says."""

        async def sink(line: Line) -> None:
            self.lines.append(line.text)

        server = ["authserver", "testserver", "--address", f"127.0.0.1:{self.auth}", "--metrics-address", ""]
        server += ["--tls-cert-path", str(self.folder / "authserver.crt"), "--engine", "grpcio"]
        server += ["--tls-key-path", str(self.folder / "authserver.key")]
        gateway = ["run", str(self.folder), "--authserver-address", "", "--echo-address", f"127.0.0.1:{self.echo}"]
        gateway += ["--state-dir", str(self.state)]
        program = [sys.executable, "-m", "authplane"]
        async with run_process([*program, *server], sink=sink), run_process([*program, *gateway], sink=sink):

            async def started() -> bool:
                return all(
                    any(words in line for line in self.lines) for words in ("Ctrl-C to stop", "service listening")
                )

            await eventually(started, limit=START_LIMIT)
            yield

    async def curl(self, path: str = "/") -> str:
        """Ask as the example says."""
        command = ["curl", "-s", "-i", "--max-time", "5", "--cacert", str(self.folder / "ca.crt")]
        command += ["--connect-to", f"echo.projectcontour.io:443:127.0.0.1:{self.https}"]
        process = await asyncio.create_subprocess_exec(
            *command, f"https://echo.projectcontour.io{path}", stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0].decode()


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return Sample(tmp_path)


async def test_the_sample_loads_and_works(sample: Sample) -> None:
    status, told = sample.authplane("validate", str(sample.folder))
    assert status == 0
    ignored = "ignored 6 documents of other kinds: Certificate 2, ClusterIssuer 1, Deployment 2, Namespace 1"
    assert ignored in " ".join(told.split())
    async with sample.running():
        answer = await sample.curl()
        assert answer.split("\r\n")[0].split()[1] == "200"
        for name, value in (("handler", "testserver"), ("context-key1", "value1"), ("context-key2", "value2")):
            assert f'"auth-{name}",\n      "{value}"' in answer


def test_misplaced_fields_are_named_and_nothing_is_served_without_them(sample: Sample) -> None:
    text = (sample.folder / "echo.yaml").read_text(encoding="utf-8")
    documents = [part for part in text.split("---\n") if "kind: HTTPProxy" not in part]
    (sample.folder / "echo.yaml").write_text("---\n".join([*documents, AS_WRITTEN]), encoding="utf-8")
    status, told = sample.authplane("validate", str(sample.folder))
    words = " ".join(told.split())
    assert status == 1
    assert "Unknown field 'timeout'. " in words
    assert "(HTTPProxy/default/echo spec.virtualhost.timeout, FieldUnknown)" in words
    assert "Unknown field 'authPolicy'." in words
    assert "2 errors" in words
    assert sample.authplane("compile", str(sample.folder))[1].startswith(
        "The folder has no virtual host and no gRPC server that authplane can serve. "
    )
