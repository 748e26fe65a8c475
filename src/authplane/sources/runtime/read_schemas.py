"""Reads the schemas that an API server publishes; every client with credentials may."""

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog

from authplane.runtime.kubernetes.api_answers import answer_fault
from authplane.runtime.kubernetes.api_client import ApiClient, ApiError
from authplane.sources.kubernetes.installed_kinds import InstalledKind, group_versions, installed_kinds

log: Final = structlog.stdlib.get_logger()

_AGAIN: Final = 20.0
"""Seconds until the index of the schemas is read again: somebody may have installed newer ones."""


class SchemasUnreadableError(ApiError):
    """The API server publishes no schemas that we can read."""


async def read_installed_kinds(client: ApiClient) -> tuple[InstalledKind, ...]:
    """Return the kinds of a cluster, with the fields that it drops; raises `ApiError`."""
    return await _read_kinds(client, await _read(client, "/openapi/v3"))


async def follow_installed_kinds(client: ApiClient, tell: Callable[[tuple[InstalledKind, ...]], None]) -> None:
    """Tell which kinds the cluster has, now and after each change, for ever."""
    known: tuple[InstalledKind, ...] = ()
    seen: Mapping[str, Any] = {}
    while True:
        try:
            # The index has a hash of each schema; an API server publishes a schema some time after it serves the kind.
            index = await _read(client, "/openapi/v3")
            if index != seen:
                found = await _read_kinds(client, index)
                seen = index
                if found != known:
                    known = found
                    tell(found)
        except ApiError as error:
            log.warning("cannot read the schemas of the cluster; trying again", why=str(error))
        await asyncio.sleep(_AGAIN)


async def _read_kinds(client: ApiClient, index: Mapping[str, Any]) -> tuple[InstalledKind, ...]:
    published = {(group, version): await _read(client, path) for group, version, path in group_versions(index)}
    return installed_kinds(published)


async def _read(client: ApiClient, path: str) -> dict[str, Any]:
    answer = await client.request("GET", path)
    if answer.status != HTTPStatus.OK:
        raise SchemasUnreadableError(answer_fault(answer, "get", path))
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        said = f"The answer of the API server to {path} is not a JSON object. Check the log of the API server."
        raise SchemasUnreadableError(said)
    return found
