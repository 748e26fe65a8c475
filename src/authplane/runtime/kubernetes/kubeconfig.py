"""Reads kubeconfig files and the ServiceAccount of a Pod: where the API server is, and what to show it.

Files that a kubeconfig names are not read here, because they may be rotated.
"""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from authplane.core.problems import printable
from authplane.core.secret import Secret
from authplane.core.text import name_some, shorten
from authplane.core.values import dataclass
from authplane.resources.yaml.nodes import parse_nodes, plain

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_LARGEST: Final = 4 * 2**20
_SHOWN: Final = 80
_REFUSED_USER: Final = {
    "username": "Basic authentication is not supported. Use a token or a client certificate.",
    "password": "Basic authentication is not supported. Use a token or a client certificate.",
    "auth-provider": "Auth providers are not supported. Use a token, a client certificate or exec.",
    "as": "Impersonation is not supported. Use the credentials of that user.",
    "as-uid": "Impersonation is not supported. Use the credentials of that user.",
    "as-groups": "Impersonation is not supported. Use the credentials of that user.",
    "as-user-extra": "Impersonation is not supported. Use the credentials of that user.",
}
_REFUSED_CLUSTER: Final = {
    "proxy-url": "Proxies to the API server are not supported. Use an address that this machine can reach directly.",
    "insecure-skip-tls-verify": "The certificate of the API server is always verified. Set certificate-authority.",
}


class CredentialsError(Exception):
    """There are no usable credentials; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """Certificates or a key: in a file, which may be rotated, or as they are."""

    path: str = ""
    content: Secret[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that returns credentials."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = _EXEC_VERSIONS[0]
    hint: str = ""
    """How to install the program."""
    cluster: Mapping[str, Any] | None = None
    """What the program is told about the cluster, if it wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An API server, and how to authenticate there."""

    server: str
    namespace: str = "default"
    """Where objects are that name no namespace."""
    ca: Pem | None = None
    """Without one, the CAs of the system."""
    tls_server_name: str = ""
    certificate: Pem | None = None
    key: Pem | None = None
    token: Secret[str] | None = None
    token_file: str = ""
    exec_plugin: ExecPlugin | None = None


def find_login(kubeconfig: Path | None, context: str, environment: Mapping[str, str]) -> Login:
    """Choose as kubectl does: the file that is given, ``KUBECONFIG``, the Pod's ServiceAccount, ``~/.kube/config``.

    Raises `CredentialsError`.
    """
    listed = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    if kubeconfig is not None or listed:
        return read_kubeconfig([kubeconfig] if kubeconfig is not None else listed, context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(environment)
    home = Path(environment.get("HOME") or "/") / ".kube" / "config"
    if not home.exists():
        raise CredentialsError(
            f"Cannot find a cluster: this is not a Pod, KUBECONFIG is not set, and {home} does not exist. "
            "Use --kubeconfig."
        )
    return read_kubeconfig([home], context)


def in_cluster(environment: Mapping[str, str], folder: Path = _SERVICE_ACCOUNT) -> Login:
    """Return the login of the Pod in which this program runs."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = folder / "token", folder / "ca.crt"
    if not token.exists() or not ca.exists():
        raise CredentialsError(
            f"{folder} has no token and ca.crt. "
            "Set automountServiceAccountToken: true for the Pod, or use --kubeconfig."
        )
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        namespace = "default"
    shown = f"[{host}]" if ":" in host else host
    return Login(
        server=_server(f"https://{shown}:{port}", "KUBERNETES_SERVICE_HOST"),
        namespace=namespace or "default",
        ca=Pem(path=str(ca)),
        token_file=str(token),
    )


def read_kubeconfig(files: list[Path], context: str) -> Login:
    """Return the login of a context, by default the current one, of files that are merged: the first one wins."""
    documents = [(file, document) for file in files if (document := _document(file, alone=len(files) == 1)) is not None]
    if not documents:
        raise CredentialsError(f"{name_some(files, 3)}: no such file. Correct KUBECONFIG.")
    names = (document.get("current-context") for _, document in documents)
    chosen = context or next((str(name) for name in names if name), "")
    if not chosen:
        raise CredentialsError(f"{documents[0][0]} has no current-context. Use --context.")
    around = _Entry.find(documents, "contexts", "context", chosen)
    cluster = _Entry.find(documents, "clusters", "cluster", around.text("cluster"))
    user = _Entry.find(documents, "users", "user", around.text("user")) if around.text("user") else around.empty()
    cluster.refuse(_REFUSED_CLUSTER)
    user.refuse(_REFUSED_USER)
    login = Login(
        server=_server(cluster.text("server"), f"{cluster.where}.server"),
        namespace=around.text("namespace") or "default",
        ca=cluster.pem("certificate-authority"),
        tls_server_name=cluster.text("tls-server-name"),
        certificate=user.pem("client-certificate"),
        key=user.pem("client-key"),
        token=Secret(user.text("token")) if user.text("token") else None,
        token_file=user.path("tokenFile"),
        exec_plugin=_exec_plugin(user, cluster),
    )
    if (login.certificate is None) != (login.key is None):
        raise CredentialsError(f"{user.where} has only one of client-certificate and client-key. Set both.")
    return login


@dataclass(frozen=True, slots=True)
class _Entry:
    """A part of a kubeconfig, and the file that it is in."""

    file: Path
    where: str
    fields: Mapping[str, Any]

    @classmethod
    def find(cls, documents: list[tuple[Path, Mapping[str, Any]]], table: str, field_name: str, name: str) -> "_Entry":
        known: list[str] = []
        for file, document in documents:
            for each in _list(document.get(table)):
                known.append(str(each.get("name", "")))
                if each.get("name") == name:
                    fields = each.get(field_name) or {}
                    if isinstance(fields, Mapping):
                        return cls(file, f"{file}: {table}[{name}].{field_name}", fields)
        raise CredentialsError(
            f"{documents[0][0]} has no {field_name} {_cut(name)!r}. Supported: {name_some(known, 10) or 'none'}."
        )

    def empty(self) -> "_Entry":
        return _Entry(self.file, f"{self.file}: user", {})

    def refuse(self, why: Mapping[str, str]) -> None:
        for name, message in why.items():
            if self.fields.get(name):
                raise CredentialsError(f"{self.where}.{name}: {message}")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise CredentialsError(f"{self.where}.{name} is not a string. Put it in quotes.")
        return value

    def path(self, name: str) -> str:
        """Return a path, which is relative to the file that names it."""
        value = self.text(name)
        return str(self.file.absolute().parent / value) if value else ""

    def pem(self, name: str) -> Pem | None:
        data = self.text(f"{name}-data")
        if data:
            try:
                return Pem(content=Secret(base64.b64decode(data, validate=True)))
            except binascii.Error:
                raise CredentialsError(f"{self.where}.{name}-data is not base64. Encode it again.") from None
        path = self.path(name)
        return Pem(path=path) if path else None


def _exec_plugin(user: _Entry, cluster: _Entry) -> ExecPlugin | None:
    given = user.fields.get("exec")
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise CredentialsError(f"{user.where}.exec is not a mapping. Add 'command'.")
    entry = _Entry(user.file, f"{user.where}.exec", given)
    command, version = entry.text("command"), entry.text("apiVersion")
    if not command:
        raise CredentialsError(f"{entry.where}.command is missing. Add it.")
    if version not in _EXEC_VERSIONS:
        raise CredentialsError(
            f"{entry.where}.apiVersion: {_cut(version)!r} is not known. Supported: {', '.join(_EXEC_VERSIONS)}."
        )
    if entry.text("interactiveMode") == "Always":
        raise CredentialsError(
            f"{entry.where}.interactiveMode: A program that asks its user questions is not supported. "
            "Use credentials that need no terminal."
        )
    return ExecPlugin(
        # As client-go does: a name without a slash is looked for in PATH, other relative paths begin at the file.
        command=entry.path("command") if os.sep in command else command,
        args=tuple(str(each) for each in given.get("args") or ()),
        env={str(each.get("name", "")): str(each.get("value", "")) for each in _list(given.get("env"))},
        api_version=version,
        hint=entry.text("installHint"),
        cluster=_cluster_info(cluster) if given.get("provideClusterInfo") is True else None,
    )


def _cluster_info(cluster: _Entry) -> Mapping[str, Any]:
    found = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "certificate-authority-data": cluster.text("certificate-authority-data"),
    }
    return {name: value for name, value in found.items() if value}


def _document(file: Path, *, alone: bool) -> Mapping[str, Any] | None:
    try:
        if file.stat().st_size > _LARGEST:
            raise CredentialsError(
                f"{file} is larger than {_LARGEST} bytes, so it is not a kubeconfig. Correct its path."
            )
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if alone:
            raise CredentialsError(f"{file} does not exist. Correct --kubeconfig or KUBECONFIG.") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CredentialsError(f"Cannot read {file}: {why}. Check the path and the permissions.") from None
    parsed = parse_nodes(text)
    for problem, line, _ in parsed.spots:
        raise CredentialsError(f"{file}:{line}: {problem.message}")
    document = plain(parsed.root) if parsed.root is not None else {}
    if not isinstance(document, Mapping):
        raise CredentialsError(f"{file} is not a kubeconfig. Use a file with clusters, users and contexts.")
    return document


def _list(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _server(text: str, where: str) -> str:
    """Check an address; without TLS only this machine is reached, as by ``kubectl proxy``."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in {"https", "http"} or parts.query or parts.fragment or parts.username:
        raise CredentialsError(f"{where}: {_cut(text)!r} is not the address of an API server. Use https://host:port.")
    if parts.scheme == "http" and not _is_loopback(host):
        raise CredentialsError(f"{where}: {_cut(text)!r} has no TLS. Use https://.")
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cut(text: str) -> str:
    return shorten(printable(text), _SHOWN)
