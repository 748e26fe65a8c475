"""Runs the program that a kubeconfig names, and reads the credentials that it prints."""

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from authplane.core.problems import printable
from authplane.core.secret import Secret
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.runtime.kubernetes.kubeconfig import CredentialsError, ExecPlugin

_LIMIT: Final = 30.0
"""Seconds that the program has."""
_LARGEST: Final = 2**20
_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """What a program printed."""

    token: Secret[str] | None = None
    certificate: Secret[bytes] | None = None
    """A client certificate and its key, as one PEM text."""
    expires_at: float | None = None


async def run_plugin(plugin: ExecPlugin, limit: float = _LIMIT) -> Issued:
    """Run the program; raises `CredentialsError` if it gives no credentials. Its messages go to our standard error."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = dict(plugin.cluster)
    info = json.dumps({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": info}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        hint = f" ({printable(plugin.hint.strip())})" if plugin.hint else ""
        raise CredentialsError(
            f"Cannot run {plugin.command} for credentials: {error.strerror}{hint}. Correct exec.command in the"
            " kubeconfig, or install the program."
        ) from None
    try:
        async with asyncio.timeout(limit):
            output, _ = await process.communicate()
    except TimeoutError:
        raise CredentialsError(
            f"{plugin.command} gave no credentials within {limit:g} s. Run it by hand to see what it waits for."
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CredentialsError(
            f"{plugin.command} ended with status {process.returncode} and gave no credentials. "
            "Run it by hand to see why."
        )
    return parse_credential(output, plugin)


def parse_credential(output: bytes, plugin: ExecPlugin) -> Issued:
    """Read an ExecCredential; nothing of it is quoted, since it is secret."""
    value = parse_json(output.strip(), Limits(most_bytes=_LARGEST))
    if isinstance(value, NotStrict) or not isinstance(value, dict) or value.get("kind") != "ExecCredential":
        raise _unusable(plugin, "no ExecCredential")
    if value.get("apiVersion") != plugin.api_version:
        said = shorten(printable(str(value.get("apiVersion"))), _SHOWN)
        raise _unusable(plugin, f"an ExecCredential of version {said!r} instead of {plugin.api_version!r}")
    status = value.get("status")
    if not isinstance(status, dict):
        raise _unusable(plugin, "an ExecCredential without status")
    token, certificate, key = (_text(status, each) for each in ("token", "clientCertificateData", "clientKeyData"))
    if bool(certificate) != bool(key) or not (token or certificate):
        raise _unusable(plugin, "neither a token nor a client certificate with its key")
    return Issued(
        token=Secret(token) if token else None,
        certificate=Secret(f"{certificate}\n{key}\n".encode()) if certificate else None,
        expires_at=_expiry(status.get("expirationTimestamp"), plugin),
    )


def _text(status: Mapping[str, Any], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _expiry(value: object, plugin: ExecPlugin) -> float | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        raise _unusable(plugin, "an expirationTimestamp that is no time") from None


def _unusable(plugin: ExecPlugin, what: str) -> CredentialsError:
    return CredentialsError(f"{plugin.command} printed {what}. Correct exec in the kubeconfig, or update the program.")
