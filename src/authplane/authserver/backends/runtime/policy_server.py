"""The policies of a folder or a cluster as a backend, kept up to date, with the keys of their issuers."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

import structlog

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.authserver.backends.runtime.cel_watch import WatchedExpressions
from authplane.authserver.backends.runtime.external_endpoints import asked_endpoints
from authplane.authserver.backends.runtime.external_services import ExternalServices, external_services
from authplane.authserver.backends.runtime.policy_documents import opened_documents
from authplane.authserver.backends.runtime.token_reviewer import ApiTokenReviewer
from authplane.authserver.plan.server_plan import PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics, ReloadMetrics
from authplane.authserver.records.runtime.verdict_metrics import AccessMetrics, VerdictCounts
from authplane.cel.evaluate.remembered_results import RememberedExpressions
from authplane.core.problems import Severity
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.request_target import NOWHERE, parse_target
from authplane.policy.compile.compile_policies import Compiled, PolicyCompiler
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.policy.identity.workload_identity.reviewing import ReviewToken, TokenReviewer
from authplane.policy.rules.access_settings import Options
from authplane.policy.verdicts.effects import Ask, Busy, Effect, Outcome
from authplane.resources.catalogue import POLICIES, TLS_POLICY
from authplane.resources.documents import Finding
from authplane.resources.loaded_resources import Held, Loaded
from authplane.runtime.background import beside
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.clock import stopwatch
from authplane.runtime.issuers.issuers import IssuerOptions, Issuers, follow_issuers
from authplane.sources.runtime.document_source import DocumentSource

__all__ = ["NOWHERE", "KeptPolicies", "keep_policies", "unnamed_target"]

log: Final = structlog.stdlib.get_logger()

_FIRST_KEYS: Final = 10.0
"""Seconds that issuers have before we are ready without them."""

_RELEVANT: Final = POLICIES | {
    "AuthplaneConfiguration",
    "Backend",
    "XBackend",
    "Gateway",
    "ReferenceGrant",
    "Service",
    TLS_POLICY,
}


def unnamed_target(plan: PolicyPlan) -> RequestTarget:
    """Return the target of a check whose route names none; without a target, nothing is allowed."""
    return parse_target(plan.target or None, plan.gateway or None)


class Others(NamedTuple):
    """Whom decisions may need."""

    issuers: Issuers
    services: ExternalServices
    reviewer: TokenReviewer | None = None


class KeptPolicies:
    """The policies that are in force, and all that decisions by them take."""

    def __init__(self, plan: PolicyPlan, others: Others, *, quiet: bool) -> None:
        self._quiet = quiet
        self.counts = VerdictCounts()
        """For the observer of the checks: verdicts are counted where answers are recorded."""
        self.issuers, self.services, self._reviewer = others
        inspector = TokenInspector(self.issuers)
        self.tokens = inspector.cache.counts
        self._unnamed = unnamed_target(plan)
        self.backend = AccessPolicies(
            Identifier(inspector),
            means=Means(evaluate=RememberedExpressions(WatchedExpressions())),
            unnamed=self._unnamed,
        )
        self._compiler = PolicyCompiler(Options(token_reviews=self._reviewer is not None))
        self._findings: frozenset[Finding] = frozenset()
        self._held: tuple[Held, ...] = ()
        self._compiled: Compiled | None = None
        self._tried = False

    async def rebuild(self, loaded: Loaded) -> None:
        """Put into force what the documents say now.

        Meanwhile the old policies decide, and checks that have begun end by what they began with.
        """
        elapsed = stopwatch()
        compiled = await beside(lambda: self._compiler.compile(loaded.resources))
        self.issuers.configure(compiled.policies.issuers)
        self.services.publish(asked_endpoints(compiled.policies, loaded.resources))
        self.backend.publish(compiled.policies)
        self._compiled = compiled
        if not self._quiet:
            self._tell(_findings(compiled, loaded))
            for held in (each for each in loaded.held if each not in self._held):
                log.warning(
                    "delayed a change that removes protection until its file stays unchanged",
                    file=held.file,
                    why=held.why,
                )
            self._held = loaded.held
            if self._unnamed != NOWHERE and not compiled.policies.closed and not compiled.policies.chain(self._unnamed):
                log.warning(
                    "found no resource for --target or --gateway, so checks that name no target get 503",
                    target=str(self._unnamed.backend or self._unnamed.gateway),
                )
            log.info(
                "applied policies",
                policies=len(compiled.standings),
                not_applied=sum(each.problem.severity is Severity.ERROR for each in self._findings),
                delayed=len(loaded.held),
                targets=self.targets(),
                issuers=len(compiled.policies.issuers),
                ms=round(elapsed() * 1000, 1),
            )

    async def perform(self, effect: Effect) -> Outcome:
        """Perform an effect that a decision requires."""
        match effect:
            case Ask():
                return await self.services.ask(effect)
            case ReviewToken() if self._reviewer is not None:
                return await self._reviewer.review(effect)
            case _:
                return Busy()

    def targets(self) -> int:
        """Return how many targets have a policy."""
        attachments = self._compiled.policies.attachments if self._compiled else {}
        return sum(bool(attachment.policies) for attachment in attachments.values())

    def obstacle(self) -> str:
        """Say what keeps the server from deciding; empty if nothing does."""
        if self._compiled is None:
            return "the policies are not loaded yet"
        if self._compiled.policies.closed:
            return f"the policy server cannot allow any request: {self._compiled.policies.closed}"
        return "" if self._tried else "the policy server has not fetched the keys of the issuers yet"

    async def try_issuers(self) -> None:
        """Wait for the first keys; an issuer without keys affects only its own policies."""
        await self.issuers.tried(_FIRST_KEYS)
        self._tried = True

    def _tell(self, findings: frozenset[Finding]) -> None:
        before, self._findings = self._findings, findings
        for each in sorted(findings - before, key=lambda finding: finding.place):
            say = log.error if each.problem.severity is Severity.ERROR else log.warning
            say(
                "found a problem with policies",
                place=str(each.place),
                resource=str(each.ref),
                problem=str(each.problem),
            )


@asynccontextmanager
async def keep_policies(  # noqa: PLR0913 (most have a default)
    name: str,
    plan: PolicyPlan,
    metrics: Metrics,
    *,
    reviewer: TokenReviewer | None = None,
    quiet: bool = False,
    schedule: Schedule | None = None,
) -> AsyncGenerator[KeptPolicies]:
    """Keep the policies of a folder or a cluster in force while the block runs.

    Raises `FolderError` if there is no folder, and `CredentialsError` if there is no cluster. ``reviewer`` sends
    TokenReviews to a cluster; without one, the cluster that is read reviews tokens. With ``quiet``, the caller reports
    the problems of documents itself. ``schedule`` sets when issuer keys are fetched.
    """
    options = IssuerOptions(allow_private_networks=plan.allow_private_issuers, schedule=schedule or Schedule())
    reloads = metrics.reloads(name)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_documents(plan))
        if source.client is not None and reviewer is None:
            reviewer = ApiTokenReviewer(source.client)
        issuers = await stack.enter_async_context(follow_issuers((), options))
        services = await stack.enter_async_context(external_services())
        kept = KeptPolicies(plan, Others(issuers, services, reviewer), quiet=quiet)
        await kept.rebuild(source.documents.library.current())
        metrics.cache(name, kept.tokens)
        metrics.include(AccessMetrics(name, kept.counts, issuers, kept.targets))
        tasks = await stack.enter_async_context(owned_tasks())
        running = [
            tasks.create_task(_follow(kept, source.documents, reloads, poll=plan.poll)),
            tasks.create_task(kept.try_issuers()),
        ]
        try:
            yield kept
        finally:
            for task in running:
                task.cancel()


async def _follow(kept: KeptPolicies, documents: DocumentSource, reloads: ReloadMetrics, *, poll: bool) -> None:
    """Rebuild after each burst of changes, for ever."""
    async for _ in documents.changes(poll=poll):
        try:
            await kept.rebuild(documents.library.current())
        except Exception as error:  # noqa: BLE001 (a fault of ours must not end what serves)
            place = place_of(error)
            log.error("failed to compile policies; the last good version stays in force", error=place)  # noqa: TRY400 (the message may quote a document)
            reloads.reloaded(ok=False)
        else:
            reloads.reloaded(ok=True)


def _findings(compiled: Compiled, loaded: Loaded) -> frozenset[Finding]:
    made = (loaded.finding(ref, problem) for ref, problems in compiled.problems.items() for problem in problems)
    read = (each for each in loaded.findings if each.ref is None or each.ref.kind in _RELEVANT)
    return frozenset((*read, *made))
