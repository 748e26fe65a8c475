"""Backends from their descriptions: what a command line says, in a form that another process can read too."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from authplane.base.secret import Secret
from authplane.io.admin import serve_admin
from authplane.io.decision_log import LogTarget, ToFile, ToStandardOutput, open_decision_log
from authplane.io.folder import Folder
from authplane.io.hashing import HashPool
from authplane.io.htpasswd_files import PasswordFile, PasswordFiles, UserSources, UserState, keep_users
from authplane.io.listen import parse_address
from authplane.io.metrics import Metrics
from authplane.io.observer import Observer
from authplane.io.process import owned_tasks
from authplane.io.randomness import random_bytes
from authplane.io.traces import open_traces
from authplane.io.workers import Serving
from authplane.policy.basic import fit_realm
from authplane.policy.htpasswd import Htpasswd, HtpasswdSettings
from authplane.policy.selectors import Selector, parse_selector
from authplane.policy.testserver import Mode, TestServer
from authplane.policy.user_secrets import SecretFilter


class DescriptionError(Exception):
    """A backend cannot be made; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestServerPlan:
    """The test backend."""

    mode: str = Mode.ALL.value


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpasswdPlan:
    """Users in password files, and in the Secrets of a folder."""

    realm: str = "default"
    files: tuple[str, ...] = ()
    """Each ``path``, or ``realm=path``; a path alone holds users of every realm."""
    folder: str = ""
    selector: str = ""
    namespaces: tuple[str, ...] = ()
    strict: bool = False
    forward_credentials: bool = False
    poll: bool = False


BackendChoice: TypeAlias = TestServerPlan | HtpasswdPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """A backend and who is told of its decisions."""

    backend: BackendChoice
    decision_log: str = "-"
    """A file; ``-`` is standard output, empty is none."""
    admin: str = ""
    """Where health, readiness and metrics are served; empty is nowhere."""
    admin_public: bool = False

    def described(self) -> dict[str, Any]:
        """Return it in a form that JSON can carry."""
        return asdict(self) | {"kind": type(self.backend).__name__}


def read_plan(described: dict[str, Any]) -> ServingPlan:
    """Read what `ServingPlan.described` returned."""
    kinds: dict[str, Callable[..., BackendChoice]] = {kind.__name__: kind for kind in (TestServerPlan, HtpasswdPlan)}
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in described["backend"].items()}
    rest = {key: value for key, value in described.items() if key not in {"backend", "kind"}}
    return ServingPlan(backend=kinds[described["kind"]](**fields), **rest)


@asynccontextmanager
async def serving(described: dict[str, Any]) -> AsyncGenerator[Serving]:
    """Make what a front serves with; everything that it needs runs while the block does."""
    plan = read_plan(described)
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(_backend(plan.backend, metrics))
        traces = await stack.enter_async_context(open_traces())
        target = _target(plan.decision_log)
        lines = stack.enter_context(open_decision_log(target, lost=metrics.lines_lost)) if target else None
        if plan.admin:
            parts = {made.backend.name: lambda: "" if made.ready() else "users are missing"}
            await stack.enter_async_context(
                serve_admin(parse_address(plan.admin), metrics, parts, public=plan.admin_public)
            )
        observer = Observer(made.backend.name, metrics.checks(made.backend.name), lines=lines, traces=traces)
        yield Serving(backend=made.backend, observer=observer, perform=made.perform, ready=made.ready)


def _target(text: str) -> LogTarget | None:
    if not text:
        return None
    return ToStandardOutput() if text == "-" else ToFile(path=Path(text))


@asynccontextmanager
async def _backend(choice: BackendChoice, metrics: Metrics) -> AsyncGenerator[Serving]:
    match choice:
        case TestServerPlan(mode=mode):
            backend = TestServer(mode=Mode(mode))
            yield Serving(backend=backend, observer=Observer(backend.name, metrics.checks(backend.name)))
        case HtpasswdPlan():
            async with _htpasswd(choice, metrics) as made:
                yield made


@asynccontextmanager
async def _htpasswd(plan: HtpasswdPlan, metrics: Metrics) -> AsyncGenerator[Serving]:
    sources = _sources(plan)
    settings = HtpasswdSettings(default_realm=plan.realm, forward_credentials=plan.forward_credentials)
    backend = Htpasswd(Secret(random_bytes(32)), settings)
    reloads = metrics.reloads("users")
    latest: list[UserState] = []

    def told(state: UserState) -> None:
        latest[:] = [state]
        reloads.reloaded(ok=not state.stale)

    def ready() -> bool:
        return bool(latest) and not latest[0].realms.pending

    with HashPool() as pool:
        async with owned_tasks() as tasks:
            keeper = tasks.create_task(keep_users(backend, sources, told, poll=plan.poll))
            try:
                observer = Observer(backend.name, metrics.checks(backend.name))
                yield Serving(backend=backend, observer=observer, perform=pool.perform, ready=ready)
            finally:
                keeper.cancel()


def require_usable(choice: BackendChoice) -> None:
    """Raise `DescriptionError` for what cannot be served, so that it is said before a worker starts."""
    if isinstance(choice, HtpasswdPlan):
        _selector(choice)


def _selector(plan: HtpasswdPlan) -> Selector:
    if not fit_realm(plan.realm):
        raise DescriptionError(f"{plan.realm!r} cannot be the name of a realm: use printable ASCII")
    selector = parse_selector(plan.selector)
    if selector is None:
        raise DescriptionError(f"{plan.selector!r} is not a label selector such as 'team=shop,tier in (a, b)'")
    if not plan.files and not plan.folder:
        raise DescriptionError("there are no users: give a password file, or a folder with Secrets")
    return selector


def _sources(plan: HtpasswdPlan) -> UserSources:
    selector = _selector(plan)
    folder = None
    if plan.folder:
        folder = Folder(Path(plan.folder))
        folder.scan()
    return UserSources(
        default_realm=plan.realm,
        files=PasswordFiles([_file(text) for text in plan.files], strict=plan.strict),
        folder=folder,
        wanted=SecretFilter(selector=selector, namespaces=frozenset(plan.namespaces), strict=plan.strict),
    )


def _file(text: str) -> PasswordFile:
    realm, equals, path = text.partition("=")
    return PasswordFile(path=Path(path), realm=realm) if equals else PasswordFile(path=Path(text))
