"""Writes certificates as Secrets, in the form of Kubernetes."""

from authplane.devkit.identities.throwaway_certificates import KeyPair


def tls_secret(name: str, pair: KeyPair) -> str:
    """Return a Secret with a certificate and its key."""
    data = f"  tls.crt: |\n{_indented(pair.certificate)}\n  tls.key: |\n{_indented(pair.key.reveal())}\n"
    return _secret(name, "kubernetes.io/tls", data)


def ca_secret(name: str, certificate: bytes) -> str:
    """Return a Secret with a CA."""
    return _secret(name, "Opaque", f"  ca.crt: |\n{_indented(certificate)}\n")


def _secret(name: str, kind: str, data: str) -> str:
    return f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\ntype: {kind}\nstringData:\n{data}"


def _indented(pem: bytes) -> str:
    return "\n".join(f"    {line}" for line in pem.decode("ascii").splitlines())
