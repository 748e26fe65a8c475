"""A whole gateway on this machine: the real programs, the real Envoy, a folder to edit."""

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from tests.support.certificates import authority, ca_secret, server, tls_secret
from tests.support.eventually import LIMIT, START_LIMIT, eventually, listening
from tests.support.ports import free_port

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Child, Line, run_process
from authplane.runtime.envoy_process import Envoy, EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress, UnixAddress

AUTH_NAME = "auth.example"
PATH_MODE = ("testserver", "--mode", "path", "--engine", "grpcio")


def service(name: str, port: int, *, namespace: str = "default") -> str:
    """Return a Service with one local endpoint."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  ports: [{{name: main, port: 80}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: main, port: {port}}}]
"""


EXTENSION = f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: auth}}
spec:
  services: [{{name: auth, port: 80}}]
  validation: {{caSecret: ca, subjectName: {AUTH_NAME}}}
"""


def proxy(fqdn: str = "web.example", *, name: str = "web", authorization: str = "", routes: str = "") -> str:
    """Return an HTTPProxy that is checked everywhere but below /public."""
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {name}}}
spec:
  virtualhost:
    fqdn: {fqdn}
    tls: {{secretName: tls}}
    authorization:
      extensionRef: {{name: auth}}
      responseTimeout: 2s
{authorization}
  routes:
  - services: [{{name: echo, port: 80}}]
  - conditions: [{{prefix: /public}}]
    authPolicy: {{disabled: true}}
    services: [{{name: echo, port: 80}}]
{routes}
"""


class Gateway:
    """The folder, the programs, and a client in front of them."""

    def __init__(self, private: Path, folder: Path, *, delta: bool, backend: tuple[str, ...]) -> None:
        self.folder = folder
        self.lines: list[tuple[str, str]] = []
        self._private = private
        self._delta = delta
        self._backend = backend
        self._http, self._https = free_port(), free_port()
        self._echo = 0
        self._begun = 0
        self._auth = TcpAddress(host="127.0.0.1", port=free_port())
        self._xds = UnixAddress(path=str(private / "xds.sock"))
        # A client for each host: one client would send a second host down the first one's connection.
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._tls = ssl.create_default_context(cadata=authority().certificate.decode())
        self.envoy: Envoy
        self.control: Child
        self.authserver: Child

    @property
    def ports(self) -> tuple[int, int]:
        """Where Envoy listens: for HTTP, and for HTTPS."""
        return self._http, self._https

    def _client(self, host: str) -> httpx2.AsyncClient:
        return self._clients.setdefault(host, httpx2.AsyncClient(verify=self._tls, timeout=5))

    async def get(self, path: str, host: str = "web.example", **headers: str) -> httpx2.Response:
        """Send a request as a client that knows ``host`` would."""
        return await self._client(host).get(
            f"https://127.0.0.1:{self._https}{path}",
            headers={"host": host} | headers,
            extensions={"sni_hostname": host},
        )

    async def get_plain(self, path: str, host: str = "web.example") -> httpx2.Response:
        """Send a request over HTTP."""
        return await self._client(host).get(f"http://127.0.0.1:{self._http}{path}", headers={"host": host})

    async def status(self, path: str, host: str = "web.example") -> int:
        """Return the status of a request; 0 means that no connection could be made."""
        try:
            return (await self.get(path, host)).status_code
        except (httpx2.TransportError, ssl.SSLError):
            return 0

    async def plain_status(self, path: str, host: str = "web.example") -> int:
        """Return the status of a request over HTTP; 0 means that no connection could be made."""
        try:
            return (await self.get_plain(path, host)).status_code
        except httpx2.TransportError:
            return 0

    async def raw_status(self, target: str, *, sni: str = "web.example", host: str = "web.example") -> int:
        """Send a request byte for byte, which clients that tidy up a path do not."""
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._https, ssl=self._tls, server_hostname=sni)
            writer.write(f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
        return int(line.split()[1])

    def count(self, program: str, words: str) -> int:
        """Return how many lines of a program have these words."""
        return sum(name == program and words in text for name, text in self.lines)

    async def says(self, program: str, words: str) -> None:
        """Wait until a program has written these words."""

        async def holds() -> bool:
            return any(name == program and words in text for name, text in self.lines)

        await eventually(holds)

    async def answers(self, path: str, want: int, host: str = "web.example", *, limit: float = LIMIT) -> None:
        """Wait until a path is answered with this status."""

        async def holds() -> bool:
            return await self.status(path, host) == want

        await eventually(holds, limit=limit)

    def write(self, name: str, text: str) -> None:
        """Write a file as careful programs do: whole, then in place."""
        draft = self.folder / f".{name}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.folder / name)

    @asynccontextmanager
    async def running_control(self) -> AsyncGenerator[Child]:
        options = ["--address", str(self._xds), "--metrics-address", "", "--loosen-after", "0"]
        options += ["--state-dir", str(self._private / "state")]
        async with self._program("control", "control", str(self.folder), *options) as child:
            self.control = child
            await listening(self._xds)
            yield child

    @asynccontextmanager
    async def running_authserver(self) -> AsyncGenerator[Child]:
        pair = server(AUTH_NAME)
        certificate, key = self._private / "auth.crt", self._private / "auth.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key.reveal())
        arguments = ["authserver", *self._backend, "--address", str(self._auth), "--metrics-address", ""]
        arguments += ["--tls-cert-path", str(certificate), "--tls-key-path", str(key)]
        async with self._program("authserver", *arguments) as child:
            self.authserver = child
            await listening(self._auth)
            yield child

    @asynccontextmanager
    async def running_envoy(self) -> AsyncGenerator[Envoy]:
        control = ControlPlane(where=UnixSocket(self._xds.path), delta=self._delta)
        bootstrap = json_text(ads_bootstrap(control, node="test"))
        settings = EnvoySettings(concurrency=1, log_level="warning", flush_seconds=0.05)

        async def sink(line: Line) -> None:
            self.lines.append(("envoy", line.text))

        async with run_envoy(bootstrap, sink=sink, settings=settings) as envoy:
            await envoy.ready(limit=START_LIMIT)
            self.envoy = envoy
            yield envoy

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start everything with the default folder."""
        async with AsyncExitStack() as stack:
            echo = await stack.enter_async_context(serve_echo(TcpAddress(host="127.0.0.1", port=0)))
            assert isinstance(echo, TcpAddress)
            self._echo = echo.port
            self._write_defaults()
            async with asyncio.TaskGroup() as starting:  # both take a second, which they can share
                starting.create_task(stack.enter_async_context(self.running_authserver()))
                starting.create_task(stack.enter_async_context(self.running_control()))
            await stack.enter_async_context(self.running_envoy())
            stack.push_async_callback(self._close_clients)
            await listening(TcpAddress(host="127.0.0.1", port=self._https))
            yield

    async def start_over(self) -> None:
        """Bring back the default folder and wait until Envoy obeys it, as if everything were started again."""
        self._begun += 1
        known = self._write_defaults()
        for path in self.folder.glob("*.yaml"):
            if path.name not in known:
                path.unlink()
        # Open connections may still be served by what was there before.
        await self._close_clients()
        await self.answers(f"/begun/{self._begun}", 200)
        self.lines.clear()

    async def _close_clients(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def _write_defaults(self) -> set[str]:
        """Write the default folder, and return the names of its files."""
        listeners = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: test}}
spec:
  listeners:
    http: {{address: 127.0.0.1, port: {self._http}}}
    https: {{address: 127.0.0.1, port: {self._https}}}
"""
        secrets = [tls_secret("tls", server("web.example", "other.example", "*.many.example")), ca_secret("ca")]
        begun = f"""
  - conditions: [{{exact: /begun/{self._begun}}}]
    authPolicy: {{disabled: true}}
    services: [{{name: echo, port: 80}}]"""
        files = {
            "gateway.yaml": listeners,
            "secrets.yaml": "---".join(secrets),
            "services.yaml": "---".join([service("echo", self._echo), service("auth", self._auth.port)]),
            "auth.yaml": EXTENSION,
            "web.yaml": proxy(routes=begun if self._begun else ""),
        }
        for name, text in files.items():
            self.write(name, text)
        return set(files)

    @asynccontextmanager
    async def _program(self, name: str, *arguments: str) -> AsyncGenerator[Child]:
        async def sink(line: Line) -> None:
            self.lines.append((name, line.text))

        argv = [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"]
        async with run_process(argv, sink=sink) as child:
            yield child


async def kill(child: Child) -> None:
    """End a program as a crash would."""
    os.kill(child.pid, signal.SIGKILL)
    await child.ended()


@asynccontextmanager
async def gateway(*, delta: bool = False, backend: tuple[str, ...] = PATH_MODE) -> AsyncGenerator[Gateway]:
    """Run a whole gateway with an authorization service that is started with these arguments."""
    with TemporaryDirectory(prefix="ap-") as private:
        folder = Path(private) / "resources"
        folder.mkdir()
        made = Gateway(Path(private), folder, delta=delta, backend=backend)
        async with made.running():
            yield made
