"""Reads and writes Leases at the API server."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from authplane.controlplane.election.lease_record import LABEL, Lease, lease_body, parse_lease
from authplane.runtime.kubernetes.api_answers import answer_fault
from authplane.runtime.kubernetes.api_client import ApiClient, ApiResponse, ApiUnreachableError

_CONFLICTS: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})


class LeaseApi:
    """The Leases of control planes in one namespace; raises `ApiUnreachableError` where there is no usable answer."""

    def __init__(self, client: ApiClient, namespace: str, purpose: str) -> None:
        self._client = client
        self.namespace: Final = namespace
        self._purpose = purpose
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self, name: str) -> Lease | None:
        """Return a Lease; None if there is none."""
        answer = await self._client.request("GET", f"{self._path}/{name}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return parse_lease(_body(answer, "read"))

    async def write(self, name: str, lease: Lease) -> Lease | None:
        """Create or replace a Lease; None if another client was faster."""
        body = json.dumps(lease_body(lease, self.namespace, name, self._purpose)).encode()
        if lease.resource_version:
            answer = await self._client.request("PUT", f"{self._path}/{name}", body=body)
        else:
            answer = await self._client.request("POST", self._path, body=body)
        conflicts = _CONFLICTS if lease.resource_version else {HTTPStatus.CONFLICT}
        return None if answer.status in conflicts else parse_lease(_body(answer, "write"))

    async def delete(self, name: str, lease: Lease) -> None:
        """Delete a Lease, unless it has changed."""
        conditions = {"uid": lease.uid, "resourceVersion": lease.resource_version}
        await self._client.request(
            "DELETE", f"{self._path}/{name}", body=json.dumps({"preconditions": conditions}).encode()
        )

    async def list(self) -> Mapping[str, Lease]:
        """Return all Leases for the same purpose, by name."""
        answer = await self._client.request("GET", self._path, query={"labelSelector": f"{LABEL}={self._purpose}"})
        items = _body(answer, "list").get("items") or ()
        return {str(each.get("metadata", {}).get("name", "")): parse_lease(each) for each in items}


def _body(answer: ApiResponse, verb: str) -> Mapping[str, Any]:
    if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
        raise ApiUnreachableError(answer_fault(answer, verb, "leases.coordination.k8s.io"))
    found = json.loads(answer.body)
    return found if isinstance(found, dict) else {}
