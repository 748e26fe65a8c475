"""Builds the parts of a plan: backends that run, and observers of their decisions."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple, assert_never

from authplane.authserver.backends.htpasswd.htpasswd import Htpasswd, HtpasswdSettings
from authplane.authserver.backends.htpasswd.label_selectors import Selector, parse_selector
from authplane.authserver.backends.htpasswd.user_secrets import SecretFilter
from authplane.authserver.backends.runtime.hashing import HashPool
from authplane.authserver.backends.runtime.htpasswd_files import (
    PasswordFile,
    PasswordFiles,
    UserSources,
    UserState,
    keep_users,
)
from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import NOBODY, Branch, Choice
from authplane.authserver.fronts.runtime.answer_checks import Perform, no_room
from authplane.authserver.fronts.runtime.pyvoy.worker import Serving
from authplane.authserver.plan.server_plan import BranchPlan, HtpasswdPlan, PolicyPlan, ServerPlan, TestServerPlan
from authplane.authserver.records.runtime.decision_log import LogTarget, ToFile, ToStandardOutput, open_decision_log
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer, Observers, RecordVerdict
from authplane.authserver.records.runtime.traces import open_traces
from authplane.core.secret import Secret
from authplane.policy.check.basic import fit_realm
from authplane.policy.identity.workload_identity.reviewing import ReviewToken
from authplane.policy.verdicts.effects import Ask, Effect, Outcome, Work
from authplane.runtime.child_processes import owned_tasks
from authplane.runtime.servers.admin import Obstacle, admin_pages
from authplane.sources.runtime.last_good_store import LastGood
from authplane.sources.runtime.listing import list_files
from authplane.sources.runtime.read_folder import Folder


class PlanError(Exception):
    """A plan cannot be served; the message is a sentence for the user."""


class _Made(NamedTuple):
    """A backend that runs."""

    backend: Backend
    obstacle: Callable[[], str]
    """Says what keeps it from being ready; empty if it is ready."""
    perform: Perform = no_room
    """Performs the effects of its flows, such as calls to other services."""
    verdicts: tuple[RecordVerdict, ...] = ()
    """Who counts what its decisions rest on."""


@asynccontextmanager
async def serving(plan: ServerPlan) -> AsyncGenerator[Serving]:
    """Make what the fronts of a server serve with; everything that it needs runs while the block does."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        made = {each.name: await stack.enter_async_context(_backend(each, metrics)) for each in plan.branches}
        traces = await stack.enter_async_context(open_traces())
        target = _target(plan.decision_log)
        lines = stack.enter_context(open_decision_log(target, lost=metrics.lines_lost)) if target else None
        pool = stack.enter_context(HashPool())

        def observer(name: str) -> Observer:
            verdicts = made[name].verdicts if name in made else ()
            return Observer(name, metrics.checks(name), lines=lines, traces=traces, verdicts=verdicts)

        def ready() -> bool:
            return not any(each.obstacle() for each in made.values())

        parts: dict[str, Obstacle] = {name: each.obstacle for name, each in made.items()}
        choice = Choice([Branch(each.name, each.when, made[each.name].backend) for each in plan.branches])
        yield Serving(
            backend=choice,
            observer=_observing(choice, observer),
            perform=_performing(pool, made.values()),
            ready=ready,
            pages=admin_pages(metrics, parts),
            reopen=lines.reopen if lines else lambda: None,
        )


def _performing(pool: HashPool, made: Iterable[_Made]) -> Perform:
    asking = next((each.perform for each in made if each.perform is not no_room), no_room)

    async def perform(effect: Effect) -> Outcome:
        match effect:
            case Work():
                return await pool.perform(effect)
            case Ask() | ReviewToken():
                return await asking(effect)
            case _:
                assert_never(effect)

    return perform


def _observing(choice: Choice, observer: Callable[[str], Observer]) -> Observer | Observers:
    """Return the observer of checks; a single backend gets every check."""
    if choice.only is not None:
        return observer(choice.only.name)
    return Observers({branch.name: observer(branch.name) for branch in choice.branches}, observer(NOBODY))


def _target(text: str) -> LogTarget | None:
    if not text:
        return None
    return ToStandardOutput() if text == "-" else ToFile(path=Path(text))


@asynccontextmanager
async def _backend(branch: BranchPlan, metrics: Metrics) -> AsyncGenerator[_Made]:
    match branch.backend:
        case TestServerPlan(mode=mode):
            yield _Made(TestServer(mode=Mode(mode)), lambda: "")
        case HtpasswdPlan():
            async with _htpasswd(branch.name, branch.backend, metrics) as made:
                yield made
        case PolicyPlan():
            # Loaded late: half of what the other backends need to start, and of no use to them.
            from authplane.authserver.backends.runtime.policy_server import keep_policies  # noqa: PLC0415

            async with keep_policies(branch.name, branch.backend, metrics) as kept:
                yield _Made(kept.backend, kept.obstacle, kept.perform, (kept.counts.record,))
        case _:
            assert_never(branch.backend)


@asynccontextmanager
async def _htpasswd(name: str, plan: HtpasswdPlan, metrics: Metrics) -> AsyncGenerator[_Made]:
    sources = _sources(plan)
    settings = HtpasswdSettings(
        default_realm=plan.realm, forward_credentials=plan.forward_credentials, trusted_hops=plan.trusted_hops
    )
    backend = Htpasswd(Secret(token_bytes(32)), settings)
    reloads = metrics.reloads(name)
    metrics.cache(name, backend.cache)
    latest: list[UserState] = []

    def told(state: UserState) -> None:
        # The first reading is none again.
        if latest:
            reloads.reloaded(ok=not state.stale)
        latest[:] = [state]

    def obstacle() -> str:
        return "" if latest and not latest[0].realms.pending else "users are not loaded yet"

    async with owned_tasks() as tasks:
        keeper = tasks.create_task(keep_users(backend, sources, told, poll=plan.poll))
        try:
            yield _Made(backend, obstacle)
        finally:
            keeper.cancel()


def require_usable(plan: ServerPlan) -> None:
    """Raise `PlanError` or `LogUnusableError` for what cannot be served, before a worker starts."""
    target = _target(plan.decision_log)
    if target is not None:
        with open_decision_log(target):
            pass
    for branch in plan.branches:
        match branch.backend:
            case HtpasswdPlan():
                _selector(branch.backend)
            case PolicyPlan():
                _require_policies(branch.backend)
            case TestServerPlan():
                pass
            case _:
                assert_never(branch.backend)
    if sum(isinstance(branch.backend, PolicyPlan) for branch in plan.branches) > 1:
        raise PlanError("A server can read policies from only one folder. Pass only one folder.")


def _require_policies(plan: PolicyPlan) -> None:
    from authplane.authserver.backends.runtime.policy_server import NOWHERE, unnamed_target  # noqa: PLC0415 (as above)

    list_files(Path(plan.folder))
    if (plan.target or plan.gateway) and unnamed_target(plan) == NOWHERE:
        raise PlanError(
            "--target or --gateway is not valid. "
            "Use --target Backend/NAMESPACE/NAME, or --gateway Gateway/NAMESPACE/NAME[/LISTENER]."
        )


def _selector(plan: HtpasswdPlan) -> Selector:
    for realm in (plan.realm, *(file.realm for file in plan.files if file.realm is not None)):
        if not fit_realm(realm):
            raise PlanError(f"{realm!r} is not a realm. Use 1 to 128 printable ASCII characters.")
    selector = parse_selector(plan.selector)
    if selector is None:
        said = f"{plan.selector!r} is not a label selector. Use a selector such as 'team=shop,tier in (a, b)'."
        raise PlanError(said)
    if not plan.files and not plan.folder:
        raise PlanError(
            "No users are configured. Pass --file or --folder, or set files or folder of htpasswd in the "
            "AuthorizationService."
        )
    return selector


def _sources(plan: HtpasswdPlan) -> UserSources:
    selector = _selector(plan)
    folder = None
    if plan.folder:
        root = Path(plan.folder)
        folder = Folder(root, last_good=LastGood(Path(plan.state_dir), root) if plan.state_dir else None)
        folder.scan()
    return UserSources(
        default_realm=plan.realm,
        files=PasswordFiles(
            [PasswordFile(path=Path(file.path), realm=file.realm) for file in plan.files], strict=plan.strict
        ),
        folder=folder,
        wanted=SecretFilter(selector=selector, namespaces=frozenset(plan.namespaces), strict=plan.strict),
    )
