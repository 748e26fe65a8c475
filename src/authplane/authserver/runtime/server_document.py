"""Reads the AuthorizationService document of `authplane authserver serve`."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from authplane.authserver.backends.htpasswd.label_selectors import parse_selector
from authplane.authserver.engine.backend_choice import ByContext, ByHost, ByPath, Condition
from authplane.authserver.plan.server_plan import BackendPlan, BranchPlan, FilePlan, HtpasswdPlan, TestServerPlan
from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity
from authplane.core.text import shorten
from authplane.resources.documents import Finding, Place
from authplane.resources.kinds.authorization_service_kind import (
    AuthorizationService,
    ContextCondition,
    HtpasswdBackend,
    ServedBackend,
    TestServerBackend,
)
from authplane.resources.kinds.authorization_service_kind import Condition as Written
from authplane.resources.loaded_resources import Loaded
from authplane.sources.runtime.read_folder import Folder


class ServedDocument(NamedTuple):
    """The backends of an AuthorizationService, and the warnings about its document."""

    branches: tuple[BranchPlan, ...]
    warnings: tuple[Finding, ...]


class DocumentError(Exception):
    """The document is invalid; ``findings`` name every problem."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("The document is invalid. Correct the reported problems.")
        self.findings = findings


def read_document(file: Path, *, poll: bool = False, state_dir: Path | None = None) -> ServedDocument:
    """Read the only AuthorizationService of a file; raises `DocumentError`, or `FolderError` if there is no file.

    Paths in the document are relative to its folder.
    """
    folder = Folder(file)
    folder.scan()
    loaded = folder.library.current()
    server = _only_server(loaded, file)
    findings = (*loaded.findings, *_selectors(server, loaded))
    if server is None or any(finding.problem.severity is Severity.ERROR for finding in findings):
        raise DocumentError(findings or (_none(file),))
    watched = _Watched(poll=poll, state_dir=str(state_dir) if state_dir else "")
    return ServedDocument(
        branches=tuple(_branch(backend, file.parent, watched) for backend in server.spec.backends), warnings=findings
    )


class _Watched(NamedTuple):
    """How the server watches folders."""

    poll: bool
    state_dir: str


def _only_server(loaded: Loaded, file: Path) -> AuthorizationService | None:
    servers = list(loaded.resources.authorization_services.values())
    if len(servers) > 1:
        refs = [_ref(server) for server in servers]
        raise DocumentError(
            tuple(Finding(loaded.place(ref), ref, Problem((), "AtMostOne", _several(file, ref))) for ref in refs)
        )
    return servers[0] if servers else None


def _several(file: Path, ref: Ref) -> str:
    return f"{file.name} has more than one {ref.kind}. Remove all but one."


def _none(file: Path) -> Finding:
    message = "The file has no AuthorizationService of authplane.dev/v1alpha1. Add one."
    return Finding(Place(str(file), 0, 0), None, Problem((), "NotAResource", message))


def _selectors(server: AuthorizationService | None, loaded: Loaded) -> Iterator[Finding]:
    """Report invalid label selectors, whose grammar the decoder does not know."""
    for index, backend in enumerate(server.spec.backends if server is not None else ()):
        text = backend.htpasswd.selector if backend.htpasswd is not None else ""
        if server is not None and parse_selector(text) is None:
            path = ("spec", "backends", index, "htpasswd", "selector")
            said = f"{shorten(text, 60)!r} is not a label selector."
            message = f"{said} Use a selector such as 'team=shop,tier in (a, b)'."
            yield Finding(loaded.place(_ref(server), path), _ref(server), Problem(path, "FieldInvalid", message))


def _ref(server: AuthorizationService) -> Ref:
    return Ref("AuthorizationService", server.metadata.namespace, server.metadata.name)


def _branch(backend: ServedBackend, root: Path, watched: _Watched) -> BranchPlan:
    return BranchPlan(
        name=backend.name,
        when=tuple(_condition(each) for each in backend.when),
        backend=_backend(backend, root, watched),
    )


def _condition(written: Written) -> Condition:
    match written:
        case Written(context=ContextCondition(key=key, value=value)):
            return ByContext(key, value)
        case Written(host=str(host)):
            return ByHost(host)
        case Written(path_prefix=str(prefix)):
            return ByPath(prefix)
        case _:
            raise ValueError("a condition that was decoded has one of its fields")


def _backend(backend: ServedBackend, root: Path, watched: _Watched) -> BackendPlan:
    match backend:
        case ServedBackend(testserver=TestServerBackend(mode=mode)):
            return TestServerPlan(mode=mode)
        case ServedBackend(htpasswd=HtpasswdBackend() as users):
            return _users(users, root, watched)
        case _:
            raise ValueError("a backend that was decoded is of one kind")


def _users(users: HtpasswdBackend, root: Path, watched: _Watched) -> HtpasswdPlan:
    return HtpasswdPlan(
        realm=users.realm,
        files=tuple(FilePlan(path=str(root / file.path), realm=file.realm) for file in users.files),
        folder=str(root / users.folder) if users.folder else "",
        selector=users.selector,
        namespaces=users.namespaces,
        strict=users.strict,
        forward_credentials=users.forward_credentials,
        trusted_hops=users.trusted_hops,
        poll=watched.poll,
        state_dir=watched.state_dir,
    )
