"""Users in Secrets, annotated as contour-authserver reads them."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from authplane.authserver.backends.htpasswd.label_selectors import EVERYTHING, Selector
from authplane.authserver.backends.htpasswd.user_realms import Declared
from authplane.authserver.backends.htpasswd.users import parse_users
from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.policy.check.basic import fit_realm
from authplane.resources.kinds.core import AUTH_TYPE, Secret

AUTH_REALM: Final = "projectcontour.io/auth-realm"
KEY: Final = "auth"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFilter:
    """Selects the Secrets that contain users."""

    selector: Selector = EVERYTHING
    namespaces: Collection[str] = frozenset()
    """Empty means all."""
    strict: bool = False
    """Weak hashes are errors."""

    def accepts(self, secret: Secret) -> bool:
        """Tell whether a Secret contains users."""
        meta = secret.metadata
        return (
            meta.annotations.get(AUTH_TYPE) == "basic"
            and (not self.namespaces or meta.namespace in self.namespaces)
            and self.selector.selects(meta.labels)
        )


ALL_SECRETS: Final = SecretFilter()


class SecretProblem(NamedTuple):
    """A problem of a Secret."""

    ref: Ref
    problem: Problem


def parse_user_secrets(
    secrets: Iterable[Secret], wanted: SecretFilter
) -> tuple[tuple[Declared, ...], tuple[SecretProblem, ...]]:
    """Read the users of every selected Secret, sorted by name; an invalid line is skipped with a problem.

    A Secret that has a user twice, or too many users, grants access to no user.

    The realm of a Secret is its annotation; without one, or with ``*``, its users belong to every realm.
    """
    declared: list[Declared] = []
    problems: list[SecretProblem] = []
    for secret in sorted(secrets, key=lambda each: each.metadata.object_name):
        if not wanted.accepts(secret):
            continue
        meta = secret.metadata
        ref = Ref("Secret", meta.namespace, meta.name)
        realm = meta.annotations.get(AUTH_REALM, "")
        content = secret.value(KEY)
        if realm not in {"", "*"} and not fit_realm(realm):
            message = (
                "The realm is longer than 128 characters or contains a character that is not printable ASCII, so the "
                "server ignores the Secret. Correct this annotation."
            )
            problems.append(
                SecretProblem(ref, Problem(("metadata", "annotations", AUTH_REALM), "RealmInvalid", message))
            )
            continue
        if content is None:
            message = f"The Secret has no key {KEY!r}, so the server ignores the Secret. Add the key."
            problems.append(SecretProblem(ref, Problem(("data",), "KeyMissing", message)))
            continue
        path = ("stringData" if KEY in secret.string_data else "data", KEY)
        parsed = parse_users(content.reveal(), strict=wanted.strict)
        problems.extend(
            SecretProblem(ref, Problem(path, found.reason, f"Line {line}: {found.message}", found.severity))
            for found, line, _ in parsed.problems
        )
        declared.append(
            Declared(
                origin=str(ref),
                owner=meta.namespace,
                realm=None if realm in {"", "*"} else realm,
                users={} if parsed.refused else parsed.users,
            )
        )
    return tuple(declared), tuple(problems)
