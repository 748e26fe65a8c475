"""Probes of a cluster: the API server, the installed kinds, permissions, and the replica that writes statuses."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from authplane.controlplane.election.lease_record import Lease
from authplane.controlplane.publishing.runtime.leadership import LEASE
from authplane.controlplane.publishing.runtime.lease_api import LeaseApi
from authplane.controlplane.status.schema_status import pruned_words
from authplane.core.text import name_some
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.attempts import try_all
from authplane.devkit.diagnosis.cluster_permissions import Component, Permission, needed_permissions
from authplane.devkit.diagnosis.examination import Outcome, Row
from authplane.runtime.clock import now
from authplane.runtime.kubernetes.api_client import ApiClient, ApiError, ApiUnreachableError
from authplane.sources.kubernetes.api_kinds import api_kinds
from authplane.sources.kubernetes.installed_kinds import InstalledKind
from authplane.sources.runtime.read_schemas import read_installed_kinds

OLDEST: Final = (1, 30)
"""Older API servers do not know every function of the rules in our definitions."""
_OWN_GROUP: Final = ".authplane.dev"
_MOST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedCluster:
    """A cluster, and how authplane is to use it."""

    client: ApiClient
    lease_namespace: str
    namespaces: tuple[str, ...]
    """Those that authplane reads; empty for all."""
    accounts: Mapping[Component, str]
    """The user names of ServiceAccounts whose permissions are checked; without any, those of this program."""


async def probe_cluster(cluster: ExaminedCluster) -> tuple[Row, ...]:
    """Run all probes; if the API server does not answer, that is the only row."""
    try:
        version = await _server_row(cluster.client)
        kinds = await read_installed_kinds(cluster.client)
    except ApiError as error:
        return (_unanswered(cluster.client.server, error),)
    permissions = [row for component in _components(cluster) for row in await _permissions(cluster, component, kinds)]
    return (version, *_kind_rows(kinds), *permissions, await _leader_row(cluster))


def _unanswered(server: str, error: ApiError) -> Row:
    message, _, remedy = str(error).rpartition(". ")
    return Row(
        probe="api-server",
        subject=server,
        outcome=Outcome.FINDING,
        message=f"{message or error}.".replace("..", "."),
        remedy=remedy or "Correct the address of the API server.",
    )


# --- API server


async def _server_row(client: ApiClient) -> Row:
    found = _mapping((await client.request("GET", "/version")).body)
    name = str(found.get("gitVersion") or "")
    outcome, message, remedy = version_outcome(str(found.get("major", "")), str(found.get("minor", "")), name)
    return Row(probe="api-server", subject=client.server, outcome=outcome, message=message, remedy=remedy)


def version_outcome(major: str, minor: str, name: str) -> tuple[Outcome, str, str]:
    """Say whether a version of Kubernetes is new enough: outcome, message and remedy."""
    digits = "".join(each for each in minor if each.isdigit())  # some providers write "30+"
    oldest = ".".join(map(str, OLDEST))
    if not major.isdigit() or not digits:
        return (
            Outcome.UNKNOWN,
            "The API server does not say which version it has.",
            "Check that the server is a Kubernetes API server.",
        )
    if (int(major), int(digits)) < OLDEST:
        message = f"Kubernetes {name} is older than {oldest}, the oldest supported version."
        return Outcome.FINDING, message, f"Upgrade the cluster to {oldest} or later."
    return Outcome.OK, f"Kubernetes {name} is supported.", ""


# --- Kinds


def _kind_rows(kinds: Sequence[InstalledKind]) -> Iterator[Row]:
    """Return a row for each kind that the cluster has, and one for those that it does not have."""
    for kind in kinds:
        if kind.pruned:
            yield _kind_row(kind.resource, f"{pruned_words(kind)}.", _PRUNED)
        elif kind.version:
            message = f"Version {kind.version} has every field that authplane reads."
            yield Row(probe="definition", subject=kind.resource, outcome=Outcome.OK, message=message)
        elif kind.resource.endswith(_OWN_GROUP):
            yield _kind_row(kind.resource, "The cluster does not have this kind.", _ADD_OWN)
    absent = [each.resource for each in kinds if not each.version and not each.resource.endswith(_OWN_GROUP)]
    if absent:
        message = f"The cluster does not have {name_some(absent, _MOST)}."
        yield _kind_row("other kinds", message, _ADD_OTHER)


_PRUNED: Final = "Remove these fields from your objects, or install newer CustomResourceDefinitions."
_ADD_OWN: Final = "Run 'authplane crds | kubectl apply --server-side -f -'."
_ADD_OTHER: Final = "Install the CustomResourceDefinitions of the kinds that you need. Ignore this if intended."


def _kind_row(subject: str, message: str, remedy: str) -> Row:
    return Row(probe="definition", subject=subject, outcome=Outcome.WARNING, message=message, remedy=remedy)


# --- Permissions


def _components(cluster: ExaminedCluster) -> tuple[Component, ...]:
    return tuple(cluster.accounts) or tuple(Component)


async def _permissions(
    cluster: ExaminedCluster, component: Component, kinds: Sequence[InstalledKind]
) -> tuple[Row, ...]:
    """Ask for each permission; one row says which are missing."""
    built_in = {each.resource for each in api_kinds()} - {each.resource for each in kinds}
    there = built_in | {each.resource for each in kinds if each.version}
    needed = needed_permissions(component, there, cluster.namespaces, cluster.lease_namespace)
    account = cluster.accounts.get(component, "")
    answers = await try_all([partial(_allowed, cluster.client, each, account) for each in needed])
    missing = [str(each) for each, allowed in zip(needed, answers, strict=True) if allowed is False]
    unknown = [str(each) for each, allowed in zip(needed, answers, strict=True) if allowed is None]
    who = account or "this user"
    subject = f"{component.value} as {who}"
    outcome, remedy = Outcome.OK, ""
    message = f"The API server grants all {len(needed)} permissions that the {component.value} needs."
    if unknown:
        outcome, remedy = Outcome.UNKNOWN, "Run 'authplane doctor' as a user who may create access reviews."
        message = f"The API server does not say whether it grants: {name_some(unknown, _MOST)}."
    if missing:
        outcome, remedy = Outcome.FINDING, "Add the permissions to the role of this account."
        message = f"The API server does not grant: {name_some(missing, _MOST)}."
    return (Row(probe="permissions", subject=subject, outcome=outcome, message=message, remedy=remedy),)


async def _allowed(client: ApiClient, permission: Permission, account: str) -> bool | None:
    """Ask whether a permission is granted: to an account, or to this program; None if there is no answer."""
    name, _, sub = permission.resource.partition("/")
    asked: dict[str, Any] = {
        "resourceAttributes": {
            "verb": permission.verb,
            "group": permission.group,
            "resource": name,
            "subresource": sub,
            "namespace": permission.namespace,
        }
    }
    kind = "SelfSubjectAccessReview"
    if account:
        kind = "SubjectAccessReview"
        asked |= {"user": account, "groups": _groups(account)}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": asked}
    path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
    try:
        answer = await client.request("POST", path, body=json.dumps(body).encode())
    except ApiUnreachableError:
        return None
    if answer.status != HTTPStatus.CREATED:
        return None
    allowed = _mapping(json.dumps(_mapping(answer.body).get("status")).encode()).get("allowed")
    return allowed if isinstance(allowed, bool) else None


def account_user(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"


def _groups(account: str) -> list[str]:
    namespace = account.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


# --- Leader


async def _leader_row(cluster: ExaminedCluster) -> Row:
    subject = f"Lease/{cluster.lease_namespace}/{LEASE}"
    try:
        lease = await LeaseApi(cluster.client, cluster.lease_namespace, "leader").read(LEASE)
    except ApiError as error:
        message, _, remedy = str(error).rpartition(". ")
        return Row(probe="leader", subject=subject, outcome=Outcome.UNKNOWN, message=f"{message}.", remedy=remedy)
    outcome, message, remedy = leader_outcome(lease, now())
    return Row(probe="leader", subject=subject, outcome=outcome, message=message, remedy=remedy)


def leader_outcome(lease: Lease | None, moment: datetime) -> tuple[Outcome, str, str]:
    """Say whether a control plane writes statuses: outcome, message and remedy."""
    if lease is None or not lease.holder:
        return Outcome.WARNING, "No control plane writes statuses.", _START
    try:
        age = (moment - datetime.fromisoformat(lease.renewed)).total_seconds()
    except (ValueError, TypeError):
        return Outcome.UNKNOWN, f"The Lease of {lease.holder} has no readable time.", "Delete the Lease."
    # The two clocks may differ by some seconds; the replicas themselves never compare them.
    if age > lease.duration + _MOST_SKEW:
        return Outcome.WARNING, f"{lease.holder} last renewed its Lease {age:.0f} s ago.", _START
    return Outcome.OK, f"{lease.holder} writes statuses.", ""


_MOST_SKEW: Final = 30.0
_START: Final = "Start 'authplane control --kubernetes', or pass --lease-namespace if it runs in another namespace."


def _mapping(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
