"""Objects of a cluster, by plain HTTP: what kubectl does, without kubectl and with every answer at hand."""

import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import httpx2
import yaml
from tests.support.eventually import LIMIT

Object: TypeAlias = dict[str, Any]
"""An object as JSON has it."""

_APPLY: Final = "application/apply-patch+yaml"
_KEPT: Final = frozenset({"events", "pods"})
"""What nothing of ours reads, so that cleaning leaves it."""


class RefusedError(AssertionError):
    """The API server refused a request that the test expects to succeed."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        super().__init__(f"{response.request.method} {response.request.url}: {self.status} {response.text}")


def documents(text: str) -> list[Object]:
    """Return the objects of a YAML text; the loader in C reads upstream's definitions in a tenth of the time."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, Loader=loader) if each]


class ApiObjects:
    """The objects of a cluster as one user sees them."""

    def __init__(self, url: str, trust: ssl.SSLContext, token: str = "") -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(base_url=url, verify=trust, headers=headers, timeout=LIMIT, trust_env=False)
        self._resources: dict[str, dict[str, Object]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send a request and return the answer, whatever its status is."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type} if body is not None else {}
        return self._client.request(method, path, content=content, headers=headers, params=dict(query or {}))

    def path(self, document: Mapping[str, Any], *, named: bool = True) -> str:
        """Return the path of an object, or of its collection, from the cluster's list of kinds."""
        metadata = document.get("metadata", {})
        found = self._resource(document["apiVersion"], document["kind"])
        parts = [_root(document["apiVersion"])]
        if found["namespaced"]:
            parts += ["namespaces", metadata.get("namespace", "default")]
        parts += [found["name"], *([metadata["name"]] if named else [])]
        return "/".join(parts)

    def create(self, document: Mapping[str, Any], **query: str) -> Object:
        """Create an object and return it as the API server keeps it."""
        return _taken(self.request("POST", self.path(document, named=False), document, query=query))

    def create_all(self, text: str, **query: str) -> list[Object]:
        """Create every object of a YAML text, in its order."""
        return [self.create(each, **query) for each in documents(text)]

    def apply(self, document: Mapping[str, Any], *, manager: str = "tests", **query: str) -> Object:
        """Create or change an object by server-side apply."""
        wanted = {"fieldManager": manager, "force": "true", **query}
        return _taken(self.request("PATCH", self.path(document), document, content_type=_APPLY, query=wanted))

    def apply_all(self, text: str, *, manager: str = "tests", **query: str) -> list[Object]:
        """Apply every object of a YAML text, in its order."""
        return [self.apply(each, manager=manager, **query) for each in documents(text)]

    def replace(self, document: Mapping[str, Any], *, subresource: str = "") -> Object:
        """Write a whole object, or its subresource; the write carries the version in the document, if it has one."""
        return _taken(self.request("PUT", f"{self.path(document)}{_below(subresource)}", document))

    def patch(self, document: Mapping[str, Any], change: Mapping[str, Any], *, subresource: str = "") -> Object:
        """Merge a change into an object, or into its subresource."""
        path = f"{self.path(document)}{_below(subresource)}"
        return _taken(self.request("PATCH", path, change, content_type="application/merge-patch+json"))

    def read(self, document: Mapping[str, Any]) -> Object:
        """Return the present version of an object that the document names."""
        return _taken(self.request("GET", self.path(document)))

    def get(self, api_version: str, kind: str, name: str, namespace: str = "default") -> Object:
        """Return an object by its name."""
        return self.read(_named(api_version, kind, name, namespace))

    def table(self, document: Mapping[str, Any]) -> Object:
        """Return an object as the table that `kubectl get` prints."""
        accept = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        return _taken(self._client.get(self.path(document), headers=accept))

    def exists(self, document: Mapping[str, Any]) -> bool:
        """Tell whether there is an object of that kind and name."""
        return self.request("GET", self.path(document)).status_code == 200

    def listed(self, api_version: str, kind: str, namespace: str = "") -> Object:
        """Return a list as the API server gives it: of one namespace, or of all."""
        found = self._resource(api_version, kind)
        inside = ["namespaces", namespace] if found["namespaced"] and namespace else []
        answer = _taken(self.request("GET", "/".join([_root(api_version), *inside, found["name"]])))
        # Items of a list do not repeat what they are.
        answer["items"] = [{"apiVersion": api_version, "kind": kind, **each} for each in answer["items"]]
        return answer

    def serves(self, api_version: str, kind: str) -> bool:
        """Tell whether the API server lists a kind, as it does soon after its CRD is established."""
        answer = self.request("GET", _root(api_version))
        return answer.is_success and any(each["kind"] == kind for each in answer.json()["resources"])

    def delete(self, document: Mapping[str, Any]) -> None:
        """Delete an object; one that is not there is fine."""
        answer = self.request("DELETE", self.path(document), {"propagationPolicy": "Background"})
        if answer.status_code != 404:
            _taken(answer)

    def clear(self, namespace: str) -> None:
        """Delete every object in a namespace, which stays: without controllers nothing deletes it."""
        for api_version, resource in self._preferred():
            if resource["namespaced"] and "deletecollection" in resource["verbs"] and resource["name"] not in _KEPT:
                path = f"{_root(api_version)}/namespaces/{namespace}/{resource['name']}"
                _taken(self.request("DELETE", path, {"gracePeriodSeconds": 0}))

    def _preferred(self) -> Iterator[tuple[str, Object]]:
        """Return each resource of the cluster in its preferred version."""
        versions = ["v1", *(each["preferredVersion"]["groupVersion"] for each in self._groups())]
        for version in versions:
            for resource in self._load(version).values():
                yield version, resource

    def _groups(self) -> list[Object]:
        found: list[Object] = _taken(self.request("GET", "/apis"))["groups"]
        return found

    def _resource(self, api_version: str, kind: str) -> Object:
        known = self._resources.get(api_version, {})
        if kind not in known:
            known = self._load(api_version)
        assert kind in known, f"The cluster has no {kind} in {api_version}: install its CRD first."
        return known[kind]

    def _load(self, api_version: str) -> dict[str, Object]:
        listed = _taken(self.request("GET", _root(api_version)))["resources"]
        found = {each["kind"]: each for each in listed if "/" not in each["name"]}
        self._resources[api_version] = found
        return found


def _named(api_version: str, kind: str, name: str, namespace: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _below(subresource: str) -> str:
    return f"/{subresource}" if subresource else ""


def _taken(response: httpx2.Response) -> Object:
    if not response.is_success:
        raise RefusedError(response)
    found: Object = response.json()
    return found
