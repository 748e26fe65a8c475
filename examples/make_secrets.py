#!/usr/bin/env python3
"""Make throw-away Secrets for the folder that is named: whatever its resources refer to.

Into the folder go ``secrets.yaml``, ``ca.crt`` for clients, and ``authserver.crt`` and ``authserver.key`` for the
authorization service. All of it lasts 30 days and is made anew with each run.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from authplane.controlplane.graph.tls.tls_secrets import secret_name
from authplane.core.names import ObjectName
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, create_authority, issue
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_policies import NamespacedName, UpstreamValidation
from authplane.resources.kinds.extension_service import ExtensionServiceSpec
from authplane.sources.runtime.read_folder import Folder, FolderError

LIFETIME: Final = timedelta(days=30)


def main() -> int:
    """Write the files."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: make_secrets.py FOLDER\n")
        return 2
    root = Path(sys.argv[1])
    try:
        folder = Folder(root)
        folder.scan()
    except FolderError as error:
        sys.stderr.write(f"make_secrets.py: {error}\n")
        return 2
    for name, content in make_files(folder.library.current().resources, datetime.now(UTC)).items():
        write_private(root / name, content)
        sys.stdout.write(f"{root / name}\n")
    return 0


def make_files(resources: Resources, now: datetime) -> dict[str, bytes]:
    """Return the files by name: one CA signs for every host and for the authorization service."""
    authority = create_authority("throw-away", now=now, lifetime=LIFETIME)
    documents = [
        tls_document(name, signed(authority, now, hosts)) for name, hosts in sorted(certificates(resources).items())
    ]
    documents += [ca_document(name, authority) for name in sorted(ca_names(resources))]
    server = signed(authority, now, sorted(subjects(resources)))
    return {
        "secrets.yaml": "---\n".join(documents).encode(),
        "ca.crt": authority.certificate,
        "authserver.crt": server.certificate,
        "authserver.key": server.key.reveal(),
    }


def certificates(resources: Resources) -> dict[ObjectName, list[str]]:
    """Return the host names of each Secret that an HTTPProxy shows, by itself or as the fallback certificate."""
    found: dict[ObjectName, list[str]] = {}
    fallback = fallback_certificate(resources)
    for name, proxy in resources.proxies.items():
        host = proxy.spec.virtualhost
        if host is None or host.tls is None:
            continue
        if host.tls.secret_name:
            found.setdefault(secret_name(host.tls.secret_name, name.namespace), []).append(host.fqdn)
        if host.tls.enable_fallback_certificate and fallback is not None:
            found.setdefault(ObjectName(fallback.namespace, fallback.name), []).append(host.fqdn)
    return found


def fallback_certificate(resources: Resources) -> NamespacedName | None:
    """Return the Secret that is shown to clients that name no host."""
    ours, theirs = resources.configuration, resources.contour_configuration
    settings = ([ours.spec.contour] if ours else []) + ([theirs.spec] if theirs else [])
    named = (each.httpproxy.fallback_certificate for each in settings)
    return next((each for each in named if each is not None), None)


def ca_names(resources: Resources) -> set[ObjectName]:
    """Return the Secrets that ExtensionServices trust."""
    return {
        secret_name(validation.ca_secret, name.namespace)
        for name, extension in resources.extension_services.items()
        for validation in validations(extension.spec)
    }


def subjects(resources: Resources) -> set[str]:
    """Return the names that the authorization service must show."""
    return {
        validation.subject_name
        for extension in resources.extension_services.values()
        for validation in validations(extension.spec)
    }


def validations(spec: ExtensionServiceSpec) -> Iterator[UpstreamValidation]:
    """Return every validation: it stands in the spec or in each service."""
    return (each for each in (spec.validation, *(service.validation for service in spec.services)) if each)


def signed(authority: KeyPair, now: datetime, names: list[str]) -> KeyPair:
    """Make a certificate for these names."""
    leaf = Leaf(name=names[0] if names else "authserver", dns=tuple(names), ips=("127.0.0.1", "::1"))
    return issue(authority, leaf, now=now, lifetime=LIFETIME)


def tls_document(name: ObjectName, pair: KeyPair) -> str:
    """Write a certificate with its key as a Secret."""
    data = f"  tls.crt: |\n{indented(pair.certificate)}  tls.key: |\n{indented(pair.key.reveal())}"
    return document(name, "kubernetes.io/tls", data)


def ca_document(name: ObjectName, authority: KeyPair) -> str:
    """Write a CA as a Secret."""
    return document(name, "Opaque", f"  ca.crt: |\n{indented(authority.certificate)}")


def document(name: ObjectName, kind: str, data: str) -> str:
    """Write a Secret."""
    head = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name.name}\n  namespace: {name.namespace}\n"
    return f"{head}type: {kind}\nstringData:\n{data}"


def indented(pem: bytes) -> str:
    """Indent a PEM text as the value of a field."""
    return "".join(f"    {line}\n" for line in pem.decode("ascii").splitlines())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
