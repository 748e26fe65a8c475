"""Whether a folder trusts the development issuer that listens where its policies expect it."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from authplane.controlplane.serving.generation import Generation
from authplane.devkit.local.needed_parts import url_leads_to
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.runtime.issuers.issuer_client import FetchError, IssuerClient, causes, trusted_by
from authplane.runtime.servers.listen import TcpAddress

_HERE: Final = (
    "Run authplane in the directory where 'authplane init' created the folder, or set --state-dir to the"
    " folder .authplane in that directory."
)


def distrust_of_ours(generation: Generation, address: TcpAddress, ca: Path) -> str:
    """Say that the folder does not trust the CA of this program's issuer; empty if it does."""
    ours = ssl.PEM_cert_to_DER_cert(ca.read_text(encoding="ascii"))
    for issuer in _issuers(generation, address):
        try:
            trusted = trusted_by(issuer.reach, os.environ).get_ca_certs(binary_form=True)
        except FetchError:
            # A CA that cannot be read is reported where keys are fetched.
            continue
        if ours not in trusted:
            return (
                f"The folder trusts the CA of another development issuer for {issuer.url.url}, not the CA in"
                f" {ca}. {_HERE}"
            )
    return ""


async def distrust_of_another(generation: Generation, address: TcpAddress, who: str) -> str:
    """Say that the folder does not trust the certificate of a program that has the issuer's address; empty if it does.

    ``who`` is the program and the fact that it listens.
    """
    for issuer in _issuers(generation, address):
        reach = replace(issuer.reach, allow_private_network=True)
        try:
            await IssuerClient(reach=reach).fetch(f"{issuer.url.url}/.well-known/openid-configuration")
        except FetchError as error:
            if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes(error)):
                return (
                    f"Cannot use the development issuer on {address}: {who}, and the folder does not trust the"
                    " certificate of that process. Stop the process, then run 'authplane run' again."
                )
    return ""


def _issuers(generation: Generation, address: TcpAddress) -> Iterator[Issuer]:
    for issuer in generation.compiled.policies.issuers:
        if url_leads_to(issuer.url.url, address):
            yield issuer
