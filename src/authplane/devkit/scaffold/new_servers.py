"""`authplane authserver` in the place of contour-authserver."""

import base64
import binascii
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from authplane.core.values import dataclass
from authplane.devkit.scaffold.contour_documents import Document, items, mapping
from authplane.devkit.scaffold.old_servers import KNOWN_FLAGS, OldServer, find_servers, plain_name
from authplane.resources.kinds.core import SERVICE_LABEL
from authplane.runtime.servers.admin import ADMIN_ADDRESS

_HOST: Final = "127.0.0.1"
_RUN_PORTS: Final = frozenset({9080, 9082, 9443, 9445})
_FIRST_OPEN: Final = 1024
"""Lower ports need root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """What to start: files are relative to the new folder."""

    document: str
    port: int
    certificate: str = ""
    key: str = ""
    secure: bool = False
    """Whether it needs a certificate, even if there is none here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedServers:
    """What becomes of the servers, and what to tell about it."""

    files: Mapping[str, str]
    private: frozenset[str]
    replaced: frozenset[str]
    """``namespace/name`` of EndpointSlices that the new ones replace."""
    changed: tuple[str, ...]
    left: tuple[str, ...]
    started: tuple[NewServer, ...]
    workloads: frozenset[str]
    """Kind and name of the Deployments that were read."""
    certificates: frozenset[str]
    """``namespace/name`` of Secrets whose certificates are files now."""
    password_services: frozenset[str]
    """``namespace/name`` of Services that lead to servers that check passwords."""


def move_servers(documents: Sequence[Document]) -> MovedServers:
    """Write an AuthorizationService for each contour-authserver to replace, and its address for Envoy."""
    move = _Move(documents)
    found = tuple(find_servers(documents))
    for server in found:
        move.add(server)
    return MovedServers(
        files=move.files,
        private=frozenset(move.private),
        replaced=frozenset(move.replaced),
        changed=tuple(move.changed),
        left=tuple(move.left),
        started=tuple(move.started),
        workloads=frozenset(each.title for each in found),
        certificates=frozenset(move.certificates),
        password_services=frozenset(move.password_services),
    )


class _Move:
    """Collects what the servers become."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents
        self.files: dict[str, str] = {}
        self.private: list[str] = []
        self.replaced: list[str] = []
        self.changed: list[str] = []
        self.left: list[str] = []
        self.started: list[NewServer] = []
        self.certificates: list[str] = []
        self.password_services: list[str] = []

    def add(self, server: OldServer) -> None:
        """Move one server."""
        if server.mode == "oidc":
            self.left.append(
                f"{server.title} runs contour-authserver oidc, which signs users in with a browser. "
                "authplane does not support this. Keep this server; its ExtensionService works as before."
            )
            return
        port = self._free_port(server.port)
        document = self._name(f"authserver-{server.name}")
        self.files[document] = _document(server)
        self.changed.append(f"{server.title}: {document} replaces contour-authserver {server.mode}.")
        certificate, key = self._certificate(server)
        self.started.append(
            NewServer(document=document, port=port, certificate=certificate, key=key, secure=server.secure)
        )
        self._flags(server)
        for service in self._services(server):
            self._endpoints(service, port, server.port)
            if server.mode == "htpasswd":
                self.password_services.append(service.name)

    def _free_port(self, wanted: int) -> int:
        """Return the port of a server here; not one on which `authplane run` starts a program of its own."""
        taken = {each.port for each in self.started} | _RUN_PORTS
        offered = itertools.chain(range(max(wanted, _FIRST_OPEN), 65536), range(_FIRST_OPEN, 65536))
        return next(port for port in offered if port not in taken)

    def _name(self, stem: str) -> str:
        taken = {*self.files, *(each.file for each in self._documents)}
        names = (f"{stem}.yaml", *(f"{stem}-{number}.yaml" for number in range(2, 1000)))
        return next(each for each in names if each not in taken)

    def _flags(self, server: OldServer) -> None:
        if server.flags.get("tls-ca-path"):
            self.changed.append(
                f"{server.title}: authplane left out --tls-ca-path. contour-authserver never requests"
                " client certificates, but authplane requires them if you set this option. Add the"
                " option if Envoy has a client certificate."
            )
        if "metrics-address" in server.flags:
            self.changed.append(
                f"{server.title}: authplane left out --metrics-address {server.flags['metrics-address']}."
                f" authplane authserver serves metrics on {ADMIN_ADDRESS}. Set --metrics-address to"
                " use another address."
            )
        if server.mode == "htpasswd":
            self.changed.append(
                f"{server.title}: Envoy no longer sends the Authorization header with the password to"
                " origins. Set forwardCredentials: true if origins need it."
            )
        unknown = sorted(set(server.flags) - KNOWN_FLAGS)
        if unknown:
            flags = ", ".join(f"--{each}" for each in unknown)
            self.left.append(
                f"{server.title}: authplane does not know {flags}. Run 'authplane authserver {server.mode}"
                " --help' to list the options."
            )

    def _certificate(self, server: OldServer) -> tuple[str, str]:
        """Write the certificate of a server into files that it can open."""
        if not server.secure:
            return "", ""
        name = f"{server.namespace}/{server.tls_secret}"
        secret = next((each for each in self._documents if each.kind == "Secret" and each.name == name), None)
        pair = [_secret_text(secret, field) for field in ("tls.crt", "tls.key")] if secret and server.tls_secret else []
        if not all(pair) or not pair:
            what = f"the Secret {name}" if server.tls_secret else "its certificate"
            remedy = "Export the Secret, or pass other files with --tls-cert-path and --tls-key-path."
            self.left.append(f"{server.title}: {what} is not in the folder. {remedy}")
            return "", ""
        paths = [f".tls/{server.namespace}-{server.name}/{field}" for field in ("tls.crt", "tls.key")]
        for path, text in zip(paths, pair, strict=True):
            self.files[path] = text
            self.private.append(path)
        self.certificates.append(name)
        self.changed.append(f"Secret {name}: the authorization service reads it from {paths[0]} and {paths[1]}.")
        return paths[0], paths[1]

    def _services(self, server: OldServer) -> Iterable[Document]:
        """Find the Services that select the Pods of a server."""
        for each in self._documents:
            selector = mapping(each.spec.get("selector"))
            same = each.kind == "Service" and each.namespace == server.namespace and selector
            if same and selector.items() <= server.labels.items():
                yield each

    def _endpoints(self, service: Document, port: int, before: int) -> None:
        """Lead a Service to this machine, where the new server listens."""
        old = [each for each in self._documents if each.kind == "EndpointSlice" and _is_of(each, service)]
        self.replaced += [each.name for each in old]
        ports = [mapping(each) for each in items(service.spec.get("ports"))]
        name = plain_name(str(service.metadata.get("name") or ""))
        file = self._name(f"endpoints-{name}")
        self.files[file] = _slice(
            plain_name(service.namespace), name, [str(each.get("name") or "") for each in ports], port
        )
        instead = f", instead of the addresses in {', '.join(each.name for each in old)}" if old else ""
        self.changed.append(
            f"Service {service.name}: with {file}, Envoy sends requests to"
            f" {_HOST}:{port}{instead}.{_other_port(before, port)}"
        )


def _other_port(before: int, port: int) -> str:
    if port == before:
        return ""
    if before in _RUN_PORTS:
        return f" The port is not {before}, because authplane run uses that port."
    return (
        f" The port is not {before}, because only root can use that port."
        if before < _FIRST_OPEN
        else f" The port is not {before}, because another of these servers uses that port."
    )


def _is_of(slice_: Document, service: Document) -> bool:
    owner = mapping(slice_.metadata.get("labels")).get(SERVICE_LABEL)
    return slice_.namespace == service.namespace and owner == service.metadata.get("name")


def _secret_text(secret: Document, field: str) -> str:
    written = mapping(secret.value.get("stringData")).get(field)
    if isinstance(written, str):
        return written
    encoded = mapping(secret.value.get("data")).get(field)
    try:
        return base64.b64decode(str(encoded or ""), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _document(server: OldServer) -> str:
    backend = "    testserver:\n      mode: path # as contour-authserver: paths that contain allow\n"
    if server.mode == "htpasswd":
        backend = _htpasswd(server)
    return f"""\
# This replaces {server.title}, which runs contour-authserver.
# Start the authorization service with 'authplane authserver serve' and this file.
apiVersion: authplane.dev/v1alpha1
kind: AuthorizationService
metadata:
  name: {_text(server.name)}
  namespace: {_text(server.namespace)}
spec:
  backends:
  - name: {server.mode}
{backend}"""


def _htpasswd(server: OldServer) -> str:
    lines = ["    htpasswd:", "      folder: . # Secrets with the annotation projectcontour.io/auth-type: basic"]
    lines.append(f"      realm: {_text(server.flags.get('auth-realm') or 'default')}")
    if server.flags.get("selector"):
        lines.append(f"      selector: {_text(server.flags['selector'])}")
    namespaces = [each.strip() for each in server.flags.get("watch-namespaces", "").split(",") if each.strip()]
    if namespaces:
        lines.append(f"      namespaces: {json.dumps(namespaces)}")
    return "".join(f"{line}\n" for line in lines)


def _slice(namespace: str, service: str, names: list[str], port: int) -> str:
    ports = "".join(f"- name: {_text(name)}\n  port: {port}\n" for name in names)
    return f"""\
# Envoy connects to the authorization service at this address, on this machine.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {_text(f"{service}-authplane")}
  namespace: {_text(namespace)}
  labels:
    {SERVICE_LABEL}: {_text(service)}
addressType: IPv4
endpoints:
- addresses:
  - {_HOST}
ports:
{ports}"""


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
