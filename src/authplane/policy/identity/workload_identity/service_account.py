"""Kubernetes ServiceAccounts: how policies, SPIFFE ids and tokens name them."""

import re
from typing import Final

from authplane.core.values import dataclass
from authplane.policy.identity.workload_identity.spiffe import SpiffeId

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_USER: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, order=True)
class ServiceAccount:
    """A ServiceAccount of the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_account(name: str, namespace: str, policy_namespace: str) -> ServiceAccount | None:
    """Read how a policy names a ServiceAccount; None if no ServiceAccount can be called so.

    Without a namespace it is of the policy's own, whatever a request says. ``namespace/name`` in one text is how an
    earlier version writes it, and then nothing else may give a namespace.
    """
    before, slash, after = name.partition("/")
    if slash:
        return None if namespace else _account(before, after)
    return _account(namespace or policy_namespace, name)


def spiffe_id_of(account: ServiceAccount, trust_domain: str) -> SpiffeId:
    """Return the SPIFFE id of a ServiceAccount in a trust domain."""
    return SpiffeId(trust_domain, f"/ns/{account.namespace}/sa/{account.name}")


def account_of_user(user: str) -> ServiceAccount | None:
    """Return the ServiceAccount that the subject of a token, or the user of a review, names; None if it is no such."""
    if not user.startswith(_USER):
        return None
    namespace, colon, name = user.removeprefix(_USER).partition(":")
    return _account(namespace, name) if colon else None


def _account(namespace: str, name: str) -> ServiceAccount | None:
    if _NAMESPACE.fullmatch(namespace) is None or _NAME.fullmatch(name) is None:
        return None
    return ServiceAccount(namespace, name)
