"""contour-authserver as Deployments run it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from authplane.core.values import dataclass
from authplane.devkit.scaffold.contour_documents import Document, items, mapping

_PROGRAM: Final = "contour-authserver"
_MODES: Final = ("htpasswd", "testserver", "oidc")
_WORKLOADS: Final = frozenset({"DaemonSet", "Deployment", "Pod", "ReplicaSet", "StatefulSet"})
_DEFAULT_PORT: Final = 9090
KNOWN_FLAGS: Final = frozenset(
    {
        "address",
        "auth-realm",
        "config",
        "metrics-address",
        "selector",
        "tls-ca-path",
        "tls-cert-path",
        "tls-key-path",
        "watch-namespaces",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldServer:
    """A workload that runs contour-authserver."""

    kind: str
    name: str
    namespace: str
    mode: str
    """``htpasswd``, ``testserver`` or ``oidc``."""
    flags: Mapping[str, str]
    labels: Mapping[str, Any]
    """Of its Pods."""
    tls_secret: str = ""
    """The Secret with its certificate; empty if it has none, or if it is not mounted from a Secret."""

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def port(self) -> int:
        """Where it listens."""
        text = self.flags.get("address", "").rpartition(":")[2]
        return int(text) if text.isdecimal() and 0 < int(text) < 65536 else _DEFAULT_PORT

    @property
    def secure(self) -> bool:
        """Whether it serves TLS."""
        return any(self.flags.get(each) for each in ("tls-cert-path", "tls-key-path"))


def find_servers(documents: Iterable[Document]) -> Iterator[OldServer]:
    """Find every container that runs contour-authserver."""
    for document in documents:
        template = _pod_template(document)
        pod = mapping(template.get("spec"))
        for container in items(pod.get("containers")):
            found = _read(document, mapping(container), pod, pod_labels(document))
            if found is not None:
                yield found


def pod_labels(document: Document) -> Mapping[str, Any]:
    """Return the labels of a workload's Pods; none if the document is not a workload."""
    return mapping(mapping(_pod_template(document).get("metadata")).get("labels"))


def _pod_template(document: Document) -> Mapping[str, Any]:
    if document.kind not in _WORKLOADS:
        return {}
    return document.value if document.kind == "Pod" else mapping(document.spec.get("template"))


def plain_name(text: str) -> str:
    """Return a name as Kubernetes allows it: what somebody else wrote becomes part of paths and documents."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-") or "unnamed"


def _read(
    document: Document, container: Mapping[str, Any], pod: Mapping[str, Any], labels: Mapping[str, Any]
) -> OldServer | None:
    words = [str(each) for each in (*items(container.get("command")), *items(container.get("args")))]
    mode = next((each for each in words if each in _MODES), "")
    if not mode or not any(_PROGRAM in each for each in (*words, str(container.get("image") or ""))):
        return None
    flags = dict(_flags(words[words.index(mode) + 1 :]))
    return OldServer(
        kind=document.kind,
        name=plain_name(str(document.metadata.get("name") or mode)),
        namespace=plain_name(document.namespace),
        mode=mode,
        flags=flags,
        labels=labels,
        tls_secret=_mounted_secret(flags.get("tls-cert-path", ""), container, pod),
    )


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Read flags as contour-authserver does: ``--name=value`` or ``--name value``."""
    pending = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            pending = "" if equals else name
            yield name, value
        elif pending:
            yield pending, word
            pending = ""


def _mounted_secret(path: str, container: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """Return the name of the Secret that is mounted where a file is."""
    folder = str(PurePosixPath(path).parent)
    mounts = (mapping(each) for each in items(container.get("volumeMounts")))
    volume = next(
        (each.get("name") for each in mounts if path and str(each.get("mountPath")).rstrip("/") == folder), None
    )
    volumes = (mapping(each) for each in items(pod.get("volumes")))
    found = next((each for each in volumes if volume is not None and each.get("name") == volume), {})
    return str(mapping(found.get("secret")).get("secretName") or "")
