"""Keeps the certificates of an installation as Secrets of a cluster."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.devkit.identities.installation_certificates import (
    CA_TYPE,
    Data,
    Part,
    new_authority,
    read_authority,
    renewed,
)
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.runtime.kubernetes.api_client import ApiClient, ApiResponse

_TLS_TYPE: Final = "kubernetes.io/tls"
_ATTEMPTS: Final = 3
"""Two programs may write at a time, such as a Job and a CronJob: the second reads what the first wrote."""
_SHOWN: Final = 300


class SecretRefusedError(Exception):
    """The API server refused a request. The message says which one, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened to a Secret."""

    secret: str
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSecrets:
    """The Secrets of one installation."""

    client: ApiClient
    namespace: str
    ca: str
    """The name of the Secret with the CA."""
    lifetime: timedelta

    async def renew(self, parts: Sequence[Part], now: datetime) -> AsyncIterator[Outcome]:
        """Create what is missing and renew what ends soon.

        Raises `SecretRefusedError`, `AuthorityError` and `ApiError`.
        """
        data, is_new = await self._authority(now)
        yield Outcome(secret=self.ca, written=is_new)
        authority = read_authority(self.ca, data, now, self.lifetime)
        for part in parts:
            yield Outcome(secret=part.secret, written=await self._renew(authority, part, now))

    async def _authority(self, now: datetime) -> tuple[Data, bool]:
        found = await self._read(self.ca)
        if found is not None:
            return _data(found), False
        made = new_authority(self.namespace, now)
        if await self._write(_secret(self.ca, CA_TYPE, made), None):
            return made, True
        return await self._authority(now)  # another program was first, and its CA counts

    async def _renew(self, authority: KeyPair, part: Part, now: datetime) -> bool:
        for _ in range(_ATTEMPTS):
            found = await self._read(part.secret)
            data = renewed(authority, part, _data(found) if found else None, now=now, lifetime=self.lifetime)
            if data is None:
                return False
            if await self._write(_secret(part.secret, _TLS_TYPE, data), found):
                return True
        raise SecretRefusedError(f"Other programs keep changing the Secret {part.secret}. Stop these programs.")

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        response = await self.client.request("GET", self._path(name))
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        return _taken(response, "get", name)

    async def _write(self, secret: dict[str, Any], found: Mapping[str, Any] | None) -> bool:
        """Tell whether the Secret is written; it is not if another program wrote it in the meantime."""
        name = secret["metadata"]["name"]
        verb, method, path = ("create", "POST", self._path()) if found is None else ("update", "PUT", self._path(name))
        if found is not None:
            kept = {key: found["metadata"][key] for key in ("labels", "annotations") if key in found["metadata"]}
            secret["metadata"] |= kept | {"resourceVersion": found["metadata"]["resourceVersion"]}
        response = await self.client.request(method, path, body=json.dumps(secret).encode())
        if response.status == HTTPStatus.CONFLICT:
            return False
        _taken(response, verb, name)
        return True

    def _path(self, name: str = "") -> str:
        below = f"/{name}" if name else ""
        return f"/api/v1/namespaces/{self.namespace}/secrets{below}"


def _secret(name: str, kind: str, data: Data) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": encoded}


def _data(secret: Mapping[str, Any]) -> Data:
    return {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}


def _taken(response: ApiResponse, verb: str, name: str) -> Mapping[str, Any]:
    if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
        said = shorten(printable(response.body.decode("utf-8", "replace")), _SHOWN)
        raise SecretRefusedError(
            f'The API server answered {response.status} to {verb} of the Secret {name}: "{said}". '
            f"Add the verb {verb} for this Secret to the Role of this program."
        )
    found: Mapping[str, Any] = json.loads(response.body)
    return found
