"""The AccessPolicy backend of the authorization service: the route names the target of a request."""

from datetime import datetime
from typing import ClassVar

from authplane.policy.attached.attachments import NO_POLICIES, Policies, RequestTarget
from authplane.policy.attached.request_target import GATEWAY, NOWHERE, parse_target
from authplane.policy.check.check_context import TARGET
from authplane.policy.check.request import Request
from authplane.policy.decide.decide import MEANS, decide
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Identifier, RequestEvidence
from authplane.policy.identity.workload_identity.reviewing import Reviewed, ReviewFailed, ReviewToken
from authplane.policy.verdicts.verdict import Verdict, VerdictFlow


class AccessPolicies:
    """Decides by the policies that were published last; it is unavailable before the first `publish`.

    ``unnamed`` is what those checks are about that name neither a backend nor a Gateway.
    """

    name: ClassVar = "policy"

    def __init__(self, identifier: Identifier, *, means: Means = MEANS, unnamed: RequestTarget = NOWHERE) -> None:
        self._identifier = identifier
        self._unnamed = unnamed
        self._means = means
        self._policies = NO_POLICIES

    def publish(self, policies: Policies) -> None:
        """Decide by these from now on; a request that is being judged keeps those it began with."""
        self._policies = policies

    def decide(self, request: Request, now: datetime) -> Verdict | VerdictFlow:
        """Judge a request by the policies of the target that its route names."""
        policies = self._policies
        evidence = RequestEvidence(self._identifier, request, policies.trusted, now.timestamp())
        backend, gateway = request.context.get(TARGET), request.context.get(GATEWAY)
        target = self._unnamed if backend is None and gateway is None else parse_target(backend, gateway)
        if policies.settings.workloads.reviewed and policies.reviews(target):
            review = evidence.review()
            if review is not None:
                return self._review(review, policies, target, request, evidence, now)
        return decide(policies, target, request, evidence, now, means=self._means)

    def _review(  # noqa: PLR0913, PLR0917 (all that a decision takes)
        self,
        review: ReviewToken,
        policies: Policies,
        target: RequestTarget,
        request: Request,
        evidence: RequestEvidence,
        now: datetime,
    ) -> VerdictFlow:
        """Let the cluster review the token first."""
        outcome = yield review
        # Nothing else that comes back is a word of the cluster.
        said = (
            outcome if isinstance(outcome, Reviewed | ReviewFailed) else ReviewFailed("no token reviewer is configured")
        )
        evidence.reviewed(review, said)
        judged = decide(policies, target, request, evidence, now, means=self._means)
        return judged if isinstance(judged, Verdict) else (yield from judged)
