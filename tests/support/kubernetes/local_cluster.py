"""A cluster on this machine: etcd and kube-apiserver with RBAC, tokens and an issuer for ServiceAccounts."""

import json
import os
import secrets
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2
from cryptography.hazmat.primitives import serialization
from tests.support.eventually import LIMIT, START_LIMIT
from tests.support.kubernetes.api_objects import ApiObjects, Object, documents
from tests.support.kubernetes.programs import Program
from tests.support.ports import free_port

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
"""Who signs the tokens of ServiceAccounts, and their audience if none is asked for."""
_LIFETIME: Final = timedelta(days=1)
_CONTROLLERS: Final = (
    "serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,"
    "namespace-controller,garbage-collector-controller,endpointslice-controller"
)


class Cluster:
    """A running cluster, its files and its administrator."""

    def __init__(self, folder: Path, programs: Mapping[str, Path], more: Sequence[str] = ()) -> None:
        self._folder = folder
        self._programs = programs
        self._etcd_port, self._peer_port, self._port = free_port(), free_port(), free_port()
        self.authority: Final = create_authority("cluster", now=datetime.now(UTC), lifetime=_LIFETIME)
        """Signs the API server's certificate, and certificates of clients that the API server accepts."""
        self.ca_file: Final = folder / "ca.crt"
        self.token: Final = secrets.token_hex(24)
        """Of the administrator, who may do everything."""
        _write_files(self)
        self.kubeconfig: Final = self.kubeconfig_for(self.token)
        self._trust = ssl.create_default_context(cafile=str(self.ca_file))
        self.objects: Final = self.as_user(self.token)
        """What the administrator sees and does."""
        self._etcd = Program(self._etcd_argv(), folder / "etcd.log")
        self._api_server = Program([*self._api_server_argv(), *more], folder / "kube-apiserver.log")
        self._controllers: Program | None = None

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        """Where its files are; they go with the cluster."""
        return self._folder

    def start(self) -> None:
        """Start etcd, then the API server, and wait until it is ready."""
        self._etcd.start()
        self.start_api_server()

    def stop(self) -> None:
        """Kill everything; etcd is last, because the API server hangs without it."""
        self.objects.close()
        if self._controllers is not None:
            self._controllers.kill()
        self._api_server.kill()
        self._etcd.kill()

    def start_api_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._api_server.start()

        def is_ready() -> bool:
            self._etcd.check_running()
            self._api_server.check_running()
            try:
                return self.objects.request("GET", "/readyz").text == "ok"
            except httpx2.HTTPError:
                return False

        _wait(is_ready, self._api_server.last_words, limit=START_LIMIT)

    def stop_api_server(self) -> None:
        """Kill the API server: connections break, and new ones are refused until it is started again."""
        self._api_server.kill()

    def restart_api_server(self) -> None:
        """Kill the API server and start it again with the same data and address."""
        self.stop_api_server()
        self.start_api_server()

    def compact(self) -> int:
        """Have etcd forget its history, and return the revision from which it still knows it.

        Clients that come with an older version get 410 after `restart_api_server`: until then the API server answers
        from memory what it has seen itself.
        """
        with httpx2.Client(base_url=f"http://127.0.0.1:{self._etcd_port}", timeout=LIMIT, trust_env=False) as etcd:
            answer = etcd.post("/v3/kv/range", json={"key": "AA==", "limit": 1}).raise_for_status()
            revision = int(answer.json()["header"]["revision"])
            etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()
        return revision

    def start_controllers(self) -> None:
        """Start the controller manager, unless it runs: it deletes garbage and namespaces, and adds ServiceAccounts."""
        if self._controllers is None:
            manager = str(self._programs["kube-controller-manager"])
            argv = [
                manager, f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", f"--controllers={_CONTROLLERS}",
                f"--root-ca-file={self.ca_file}", f"--service-account-private-key-file={self._folder}/sa.key",
                "--bind-address=127.0.0.1", f"--secure-port={free_port()}", f"--cert-dir={self._folder}/controllers",
            ]  # fmt: skip
            self._controllers = Program(argv, self._folder / "kube-controller-manager.log")
            self._controllers.start()

    def as_user(self, token: str = "") -> ApiObjects:
        """Return the objects as the user of a token sees them; without a token, as an anonymous user does."""
        return ApiObjects(self.url, self._trust, token)

    def kubeconfig_for(self, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig for the user of a token, with the namespace of objects that name none."""
        path = self._folder / f"kubeconfig-{next(_NUMBERS)}"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "current-context": "c",
        }
        _private(path, json.dumps(content).encode())
        return path

    def service_account_token(self, namespace: str, name: str, *audiences: str, seconds: int = 3600) -> str:
        """Return a new token of a ServiceAccount, as the kubelet projects it into Pods."""
        asked: Object = {"spec": {"audiences": list(audiences), "expirationSeconds": seconds}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.objects.request("POST", path, asked)
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["status"]["token"]
        return found

    def client_certificate(self, user: str) -> KeyPair:
        """Return a certificate that the API server accepts for a user."""
        leaf = Leaf(name=user, usage=Usage.CLIENT)
        return issue(self.authority, leaf, now=datetime.now(UTC), lifetime=_LIFETIME)

    def install_crds(self, files: Iterable[Path]) -> None:
        """Install the CRDs of some files, and wait until the API server serves them."""
        text = [each for path in files for each in documents(path.read_text(encoding="utf-8"))]
        wanted = [each for each in text if each["kind"] == "CustomResourceDefinition"]
        for each in wanted:
            self.objects.apply(each)
        for each in wanted:
            _wait(partial(self._is_served, each), self._api_server.last_words, limit=LIMIT)

    def kubectl(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator."""
        return subprocess.run(
            [str(self._programs["kubectl"]), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=given,
            env={**os.environ, "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )

    def _is_served(self, definition: Object) -> bool:
        conditions: list[Any] = self.objects.read(definition).get("status", {}).get("conditions") or []
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        spec = definition["spec"]
        served = (each["name"] for each in spec["versions"] if each["served"])
        return all(self.objects.serves(f"{spec['group']}/{version}", spec["names"]["kind"]) for version in served)

    def _etcd_argv(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            str(self._programs["etcd"]), f"--data-dir={self._folder}/etcd", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        ]  # fmt: skip

    def _api_server_argv(self) -> list[str]:
        folder = self._folder
        return [
            str(self._programs["kube-apiserver"]),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self._port}",
            # The Service "kubernetes" would have an endpoint in 127/8, which the API server itself refuses.
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key",
            f"--cert-dir={folder}/certificates", f"--client-ca-file={folder}/ca.crt",
            "--authorization-mode=RBAC", f"--token-auth-file={folder}/tokens.csv",
            f"--service-account-issuer={ISSUER}", f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            # Without controllers, no namespace has the ServiceAccount that this plugin gives to Pods.
            "--disable-admission-plugins=ServiceAccount",
        ]  # fmt: skip


@contextmanager
def running_cluster(folder: Path, programs: Mapping[str, Path], *more: str) -> Iterator[Cluster]:
    """Run a cluster while the block runs; ``more`` are options of the API server."""
    cluster = Cluster(folder, programs, more)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


_NUMBERS: Final = count(1)


def _write_files(cluster: Cluster) -> None:
    """Write the certificate of the API server, the key of the issuer, and the administrator's token."""
    folder, now = cluster.folder, datetime.now(UTC)
    names = ("localhost", "kubernetes.default.svc")
    leaf = Leaf(name="kube-apiserver", dns=names, ips=("127.0.0.1",))
    server = issue(cluster.authority, leaf, now=now, lifetime=_LIFETIME)
    signer = issue(cluster.authority, Leaf(name="issuer"), now=now, lifetime=_LIFETIME).key.reveal()
    public = serialization.load_pem_private_key(signer, password=None).public_key()
    _private(folder / "ca.crt", cluster.authority.certificate)
    _private(folder / "server.crt", server.certificate)
    _private(folder / "server.key", server.key.reveal())
    _private(folder / "sa.key", signer)
    _private(
        folder / "sa.pub",
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )
    _private(folder / "tokens.csv", f'{cluster.token},admin,admin,"system:masters"\n'.encode())


def _private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _wait(holds: Callable[[], bool], last_words: Callable[[], str], *, limit: float) -> None:
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, f"the cluster is not ready: {last_words()}"
        time.sleep(0.05)
