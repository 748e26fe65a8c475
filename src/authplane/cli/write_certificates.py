"""`authplane certificates`."""

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

from authplane.cli.shared.output import fail, print_line
from authplane.cli.shared.parameters import Argument, Option
from authplane.devkit.identities.certificate_secrets import CertificateSecrets, SecretRefusedError
from authplane.devkit.identities.installation_certificates import AuthorityError, Part
from authplane.runtime.kubernetes.api_client import ApiClient, ApiError
from authplane.runtime.kubernetes.api_credentials import Credentials, CredentialsError
from authplane.runtime.kubernetes.kubeconfig import find_login

_PART: Final = re.compile(
    r"(?P<secret>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)=(?P<host>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)"
)


def certificates(
    parts: Annotated[
        list[str], Argument(metavar="SECRET=NAME...", help="Secret to create, and the DNS name in its certificate.")
    ],
    ca: Annotated[str, Option(help="Secret with the CA. authplane creates it if it is missing.")] = "authplane-ca",
    namespace: Annotated[
        str, Option(help="Namespace of the Secrets. Default: the namespace of the Pod or of the context.")
    ] = "",
    days: Annotated[int, Option(min=1, max=825, help="Lifetime of certificates, in days.")] = 90,
    kubeconfig: Annotated[
        Path | None,
        Option(
            help="Path of the kubeconfig file. Default: $KUBECONFIG, the ServiceAccount of the Pod, or ~/.kube/config."
        ),
    ] = None,
    context: Annotated[str, Option(help="Context in the kubeconfig. Default: the current context.")] = "",
) -> None:
    """Create a CA and certificates for the parts of an installation, as Secrets of a cluster, and renew them.

    Each certificate is valid for a server and for a client. authplane renews a certificate when a third of its lifetime
    is left, when its name changes, and when the CA changes. Each Secret contains ca.crt, tls.crt and tls.key.

    Example: authplane certificates control-tls=control.internal policy-tls=policy.internal envoy-tls=envoy.internal
    """
    wanted = [_part(text) for text in parts]
    try:
        login = find_login(kubeconfig, context, os.environ)
        asyncio.run(_renew(Credentials(login), wanted, namespace, ca, timedelta(days=days)))
    except (ApiError, AuthorityError, CredentialsError, SecretRefusedError) as error:
        fail(str(error))


async def _renew(credentials: Credentials, parts: list[Part], namespace: str, ca: str, lifetime: timedelta) -> None:
    within = namespace or credentials.namespace
    async with ApiClient(credentials) as client:
        secrets = CertificateSecrets(client=client, namespace=within, ca=ca, lifetime=lifetime)
        async for each in secrets.renew(parts, datetime.now(UTC)):
            print_line(f"{'wrote' if each.written else 'kept '}  Secret {within}/{each.secret}")


def _part(text: str) -> Part:
    found = _PART.fullmatch(text)
    if found is None:
        fail(
            f'"{text}" is not a Secret and a DNS name. Use SECRET=NAME, such as'
            " authplane-control-tls=authplane-control.authplane-system.svc.",
            status=2,
        )
    return Part(secret=found["secret"], host=found["host"])
