"""The kind AuthorizationService: the backends of `authplane authserver serve`."""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from authplane.core.problems import Path, Problem
from authplane.core.values import dataclass
from authplane.resources.kinds.meta import LABEL, Meta
from authplane.resources.typed.schema import Filled, Length, Matches, OneOf, Range

_HOST: Final = Matches(
    re.compile(r"(\*\.)?[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]"),
    "shop.example or *.shop.example",
)
_SEGMENT: Final = r"(\.?[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\.\.[A-Za-z0-9._~-]+)"
"""Neither ``.`` nor ``..``; without a lookahead, which the API server of a cluster does not have."""
_PREFIX: Final = Matches(re.compile(rf"(/{_SEGMENT})+/?|/"), "/admin")
"""Only characters that need no encoding, so that a prefix has one spelling."""
_REALM: Final = Matches(re.compile(r"[!-~]([ -~]*[!-~])?"), "shop")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCondition:
    """An entry of the context that the route sends with its checks."""

    key: Annotated[str, Length(1)]
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on the request. Set exactly one of the fields."""

    context: Annotated[ContextCondition | None, Filled()] = None
    host: Annotated[str | None, Filled(), Length(1, 255), _HOST] = None
    path_prefix: Annotated[str | None, Filled(), Length(1), _PREFIX] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestServerBackend:
    """Authorizes requests without credentials, for tests."""

    __test__ = False

    mode: Annotated[str, OneOf(("all", "path"))] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFile:
    """A password file."""

    path: Annotated[str, Length(1)]
    realm: Annotated[str | None, Filled(), Length(1, 128), _REALM] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpasswdBackend:
    """Authorizes users with a password."""

    files: Annotated[tuple[UserFile, ...], Filled()] = ()
    folder: Annotated[str, Filled(), Length(1)] = ""
    realm: Annotated[str, Filled(), Length(1, 128), _REALM] = "default"
    selector: Annotated[str, Filled()] = ""
    namespaces: Annotated[tuple[Annotated[str, Length(1, 63), LABEL], ...], Filled()] = ()
    strict: Annotated[bool, Filled()] = False
    forward_credentials: bool = False
    trusted_hops: Annotated[int, Range(0, 100)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBackend:
    """A backend and the requests that it decides. Set exactly one of ``testserver`` and ``htpasswd``."""

    name: Annotated[str, Length(1, 63), LABEL]
    when: Annotated[tuple[Condition, ...], Filled(), Length(1)] = ()
    """All conditions must match; without conditions the backend decides every request."""
    testserver: Annotated[TestServerBackend | None, Filled()] = None
    htpasswd: Annotated[HtpasswdBackend | None, Filled()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServiceSpec:
    """``spec`` of an AuthorizationService."""

    backends: Annotated[tuple[ServedBackend, ...], Length(1)]
    """The first backend that matches a request decides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationService:
    """The backends of an authorization service."""

    metadata: Meta
    spec: AuthorizationServiceSpec


def server_problems(server: AuthorizationService) -> Iterator[Problem]:
    """Report fields that are valid on their own but not together."""
    seen: dict[str, int] = {}
    backends = server.spec.backends
    for index, backend in enumerate(backends):
        path: Path = ("spec", "backends", index)
        if seen.setdefault(backend.name, index) != index:
            message = f"spec.backends[{seen[backend.name]}] also has the name {backend.name!r}. Use another name."
            yield Problem((*path, "name"), "FieldConflict", message)
        yield from _exactly_one(path, testserver=backend.testserver, htpasswd=backend.htpasswd)
        yield from _without_users(path, backend)
        yield from _conditions(path, backend.when)
        earlier = next((each for each in range(index) if _covers(backends[each].when, backend.when)), None)
        if earlier is not None:
            message = (
                f"spec.backends[{earlier}] comes first and matches every request that this backend matches. "
                "Move this backend before it, or remove this backend."
            )
            yield Problem(path, "FieldConflict", message)


def _exactly_one(path: Path, **fields: object) -> Iterator[Problem]:
    given = [name for name, value in fields.items() if value is not None]
    if len(given) != 1:
        names = " and ".join(filter(None, [", ".join(map(repr, list(fields)[:-1])), repr(list(fields)[-1])]))
        found = f"{' and '.join(map(repr, given))} are set" if given else f"None of {names} is set"
        yield Problem(path, "FieldInvalid", f"{found}. Set exactly one of {names}.")


def _without_users(path: Path, backend: ServedBackend) -> Iterator[Problem]:
    if backend.htpasswd is not None and not backend.htpasswd.files and not backend.htpasswd.folder:
        yield Problem(
            (*path, "htpasswd"),
            "FieldInvalid",
            "The backend has no users. Set 'files', or 'folder' with a folder of Secrets.",
        )


def _conditions(path: Path, conditions: tuple[Condition, ...]) -> Iterator[Problem]:
    about: set[str] = set()
    for index, condition in enumerate(conditions):
        here = (*path, "when", index)
        yield from _exactly_one(here, context=condition.context, host=condition.host, pathPrefix=condition.path_prefix)
        subject = "path" if condition.path_prefix else "host" if condition.host else ""
        if condition.context is not None:
            subject = f"entry {condition.context.key!r} in its context"
        if subject in about:
            message = (
                f"A request must match all conditions, but it has only one {subject}. Add another backend instead."
            )
            yield Problem(here, "FieldConflict", message)
        about.add(subject)


def _covers(earlier: tuple[Condition, ...], later: tuple[Condition, ...]) -> bool:
    """Tell whether the earlier conditions match whenever the later ones do."""
    return all(any(_implies(each, wanted) for each in later) for wanted in earlier)


def _implies(given: Condition, wanted: Condition) -> bool:
    if wanted.context is not None:
        return given.context == wanted.context
    if wanted.host is not None:
        host, pattern = (given.host or "").lower(), wanted.host.lower()
        return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
    prefix, below = given.path_prefix or "", wanted.path_prefix or ""
    return prefix == below or prefix.startswith(below if below.endswith("/") else f"{below}/")
