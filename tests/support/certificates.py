"""Certificates for tests, made once."""

from datetime import UTC, datetime, timedelta
from functools import cache

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue

_NOW = datetime.now(UTC)
_DAY = timedelta(days=1)


@cache
def authority() -> KeyPair:
    return create_authority("tests", now=_NOW, lifetime=_DAY)


@cache
def server(*names: str) -> KeyPair:
    return issue(authority(), Leaf(name=names[0], dns=names, ips=("127.0.0.1",)), now=_NOW, lifetime=_DAY)


@cache
def client(name: str) -> KeyPair:
    return issue(authority(), Leaf(name=name, usage=Usage.CLIENT, dns=(name,)), now=_NOW, lifetime=_DAY)


def indented(pem: bytes, spaces: int = 4) -> str:
    return "\n".join(" " * spaces + line for line in pem.decode().splitlines())


def tls_secret(name: str, pair: KeyPair, namespace: str = "default") -> str:
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: {namespace}}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{indented(pair.certificate)}
  tls.key: |
{indented(pair.key.reveal())}
"""


def ca_secret(name: str, pair: KeyPair | None = None, namespace: str = "default") -> str:
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: {namespace}}}
stringData:
  ca.crt: |
{indented((pair or authority()).certificate)}
"""
