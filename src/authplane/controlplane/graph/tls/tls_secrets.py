"""Which Secrets can be used for TLS, and what is wrong with the others."""

from typing import Final, TypeAlias

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.core.names import ObjectName, Ref
from authplane.core.secret import Secret as Hidden
from authplane.resources.documents import Resources
from authplane.resources.similar_names import similar_name

Unusable: TypeAlias = str
"""Why a Secret cannot be used, as the tail of a sentence."""

_NOT_FOUND: Final = "Secret not found"


def secret_name(written: str, namespace: str) -> ObjectName:
    """Read ``name`` or ``namespace/name``."""
    other, slash, name = written.partition("/")
    return ObjectName(other, name) if slash else ObjectName(namespace, written)


def server_certificate(resources: Resources, name: ObjectName) -> Certificate | Unusable:
    """Return the certificate and key of a ``kubernetes.io/tls`` Secret, checked to belong together."""
    secret = resources.secrets.get(name)
    if secret is None:
        return _absent(resources, name)
    if secret.type != "kubernetes.io/tls":
        return 'Secret type is not "kubernetes.io/tls"'
    chain, key = secret.value("tls.crt"), secret.value("tls.key")
    if chain is None or not chain.reveal():
        return 'empty "tls.crt" key'
    if key is None or not key.reveal():
        return 'empty "tls.key" key'
    from authplane.controlplane.graph.tls import certificates  # noqa: PLC0415 (only certificates need cryptography: 0.06 s)

    read = certificates.read_pair(chain, key)
    return read if isinstance(read, Unusable) else Certificate(name=name, chain=read.pem, key=key)


def ca_bundle(resources: Resources, name: ObjectName) -> bytes | Unusable:
    """Return the certificates under ``ca.crt``, without any other content of that key."""
    bundle = _bundle(resources, name, "ca.crt")
    if isinstance(bundle, Unusable):
        return bundle
    from authplane.controlplane.graph.tls import certificates  # noqa: PLC0415 (as above)

    read = certificates.read_certificates(bundle)
    return "invalid CA certificate bundle: it has no readable certificates" if read is None else read.pem


def ca_bundle_in_config_map(resources: Resources, name: ObjectName) -> bytes | Unusable:
    """Return the certificates under ``ca.crt`` of a ConfigMap."""
    config_map = resources.config_maps.get(name)
    if config_map is None:
        return "it does not exist, or authplane cannot read it"
    from authplane.controlplane.graph.tls import certificates  # noqa: PLC0415 (as above)

    read = certificates.read_certificates(Hidden(config_map.data.get("ca.crt", "").encode()))
    return "invalid CA certificate bundle: it has no readable certificates" if read is None else read.pem


def revocation_lists(resources: Resources, name: ObjectName) -> bytes | Unusable:
    """Return the certificate revocation lists under ``crl.pem``, without any other content of that key."""
    bundle = _bundle(resources, name, "crl.pem")
    if isinstance(bundle, Unusable):
        return bundle
    from authplane.controlplane.graph.tls import certificates  # noqa: PLC0415 (as above)

    return certificates.read_lists(bundle) or "invalid CRL: it has no readable certificate revocation lists"


def remedy(why: Unusable) -> str:
    """Say what to do about a Secret that cannot be used."""
    return "Add the Secret." if why.startswith(_NOT_FOUND) else "Correct the Secret."


def _bundle(resources: Resources, name: ObjectName, key: str) -> Hidden[bytes] | Unusable:
    secret = resources.secrets.get(name)
    if secret is None:
        return _absent(resources, name)
    if secret.type not in {"kubernetes.io/tls", "Opaque"}:
        return 'secret type is not "kubernetes.io/tls" or "Opaque"'
    bundle = secret.value(key)
    return bundle if bundle is not None and bundle.reveal() else f'empty "{key}" key'


def _absent(resources: Resources, name: ObjectName) -> Unusable:
    broken = Ref("Secret", name.namespace, name.name) in resources.broken
    if broken:
        return "Secret cannot be read"
    similar = similar_name(name, resources.secrets)
    return f"{_NOT_FOUND} (did you mean {similar!r}?)" if similar else _NOT_FOUND
