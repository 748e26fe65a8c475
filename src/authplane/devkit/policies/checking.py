"""Evaluates described requests with the code of the policy server.

`check` creates what the description leaves out, so that the same code can verify it: a certificate for a SPIFFE ID, a
signature for claims. The result lists these assumptions.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, assert_never
from urllib.parse import quote

from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.graph.reached_targets import routed_targets
from authplane.core.problems import printable
from authplane.core.strict_json import NotStrict
from authplane.core.values import dataclass
from authplane.devkit.identities.signing import SigningKey
from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, create_authority, issue
from authplane.devkit.policies.request_files import AskedRequest
from authplane.devkit.strict_files import Text, json_object, located
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.check.request import Peer, Request
from authplane.policy.compile.compile_policies import Compiled, compile_policies
from authplane.policy.decide.decide import EXPLAINING, decide
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Identifier, Token
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.identity.tokens.verify import NotReady, Trust
from authplane.policy.identity.workload_identity.certificate_identity import Svid, parse_svid
from authplane.policy.rules.access_settings import Options
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.verdicts.effects import Ask, Effect, NoAnswer, Outcome
from authplane.policy.verdicts.verdict import Shadowed, Verdict, VerdictFlow, Would
from authplane.resources.documents import Finding
from authplane.resources.loaded_resources import Loaded
from authplane.resources.typed.shapes import Report

Keys: TypeAlias = Mapping[str, KeySet]
"""Key sets by issuer, as policies or tokens name it."""
Answer: TypeAlias = Callable[[Ask], Outcome]
"""Calls an external service."""

NOT_ASKED: Final = "not asked"
_LIFETIME: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """Policies as the policy server enforces them for the same documents."""

    loaded: Loaded
    compiled: Compiled
    routed: tuple[RequestTarget, ...] = ()
    """The targets that routes reach."""

    @property
    def policies(self) -> Policies:
        """The compiled policies."""
        return self.compiled.policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Inputs of a decision besides policies and request."""

    now: datetime
    keys: Keys = field(default_factory=lambda: MappingProxyType({}))
    answer: Answer | None = None
    """Calls external services; without it, decisions that depend on one are unavailable."""
    means: Means = EXPLAINING


class Checked(NamedTuple):
    """The decision about a request."""

    verdict: Verdict
    notes: tuple[str, ...]
    """Assumptions and missing inputs."""


def enforce(loaded: Loaded, options: Options | None = None) -> Enforced:
    """Compile documents, as the policy server does."""
    compiled = compile_policies(loaded.resources, options)
    built = build_graph(loaded.resources, policies=compiled.policies)
    return Enforced(loaded=loaded, compiled=compiled, routed=routed_targets(built))


def parse_keys(text: Text) -> tuple[Keys, tuple[Finding, ...]]:
    """Parse key sets by issuer and collect every problem."""
    report, found = Report(), {}
    if text.root is None:
        return {}, text.findings
    for issuer, value in json_object(text.root, (), report).items():
        keys = parse_key_set(json.dumps(value).encode())
        if isinstance(keys, NotStrict):
            said = f"Cannot read the keys: {keys.why}. Expected a JSON Web Key Set of the form {{keys: [...]}}."
            report.error((issuer,), "FieldInvalid", said)
        else:
            found[issuer] = keys
            for each in keys.ignored:
                report.warn(
                    (issuer, "keys"),
                    "KeyIgnored",
                    f"authplane ignores key {each.key}: {each.why}. Remove the key, or replace it with a"
                    " supported key.",
                )
    return found, located(text, report.problems)


def check(policies: Policies, asked: AskedRequest, given: Circumstances) -> Checked:
    """Evaluate a request as the policy server does for a proxy."""
    now = asked.time or given.now
    request, assumed = _shown(asked, now)
    keyring = _Keyring(policies.issuers, assumed or given.keys)
    evidence = Identifier(TokenInspector(keyring)).evidence(request, policies.trusted, now.timestamp())
    unasked: list[Ask] = []

    def perform(effect: Effect) -> Outcome:
        if not isinstance(effect, Ask):
            return NoAnswer("not available in authplane check")
        if given.answer is not None:
            # External services answer now, whatever time the request has.
            return given.answer(replace(effect, deadline=effect.deadline + (given.now - now).total_seconds()))
        unasked.append(effect)
        return NoAnswer(NOT_ASKED)

    judged = decide(policies, asked.target, request, evidence, now, means=given.means)
    verdict = judged if isinstance(judged, Verdict) else _finish(judged, perform)
    gaps = _gaps(policies, asked, evidence.token(), unasked)
    return Checked(verdict, (*_assumptions(asked), *gaps, *map(shadow_note, verdict.shadows)))


def would_words(would: Would) -> str:
    """Describe the outcome of a policy in shadow mode if it were enforced."""
    match would:
        case Would.ALLOW:
            return "would allow"
        case Would.DENY:
            return "would deny"
        case Would.UNKNOWN:
            return "has no outcome without external services"
        case _:
            assert_never(would)


def shadow_note(shadow: Shadowed) -> str:
    """Describe the outcome of a policy in shadow mode for a request, with the reason."""
    because = " ".join(filter(None, (shadow.policy, shadow.rule, shadow.entry)))
    return f"shadow mode: {because} {would_words(shadow.would)} ({shadow.reason})"


def _finish(flow: VerdictFlow, perform: Callable[[Effect], Outcome]) -> Verdict:
    try:
        effect = next(flow)
        while True:
            effect = flow.send(perform(effect))
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict


class _Keyring:
    """The issuers of the policies with their available keys."""

    def __init__(self, issuers: Iterable[Issuer], keys: Keys) -> None:
        self._issuers = {name: issuer for issuer in issuers for name in issuer.url.names()}
        self._keys = keys

    def keys_of(self, name: str) -> Trust | NotReady | None:
        issuer = self._issuers.get(name)
        if issuer is None:
            return None
        for known in (issuer.url.url, issuer.url.literal):
            if known in self._keys:
                return Trust(issuer=issuer.url.url, demands=issuer.demands, keys=self._keys[known])
        return NotReady(issuer=issuer.url.url)

    def wanted(self, issuer: str, kid: str) -> None:
        """Do nothing: keys are not fetched during a check."""


def _shown(asked: AskedRequest, now: datetime) -> tuple[Request, Keys]:
    """Return the request with all that proves who sends it, and the keys that what is assumed is signed with."""
    request = replace(asked.request, source=_peer(asked, now), time=asked.request.time or now)
    if asked.token is None:
        return request, {}
    key = SigningKey.generate()
    keys = parse_key_set(key.key_set())
    if isinstance(keys, NotStrict):
        raise TypeError("a new key is readable")
    defaults = {"exp": int((now + _LIFETIME).timestamp())}
    token = key.sign({**defaults, **asked.token.claims, "iss": asked.token.issuer})
    bearer = ("authorization", f"Bearer {token}")
    return replace(request, headers=(*request.headers, bearer)), {asked.token.issuer: keys}


def _peer(asked: AskedRequest, now: datetime) -> Peer:
    """Return the peer as a proxy describes it after verifying its certificate."""
    if asked.certificate:
        shown = quote(asked.certificate)
        svid = parse_svid(shown)
        return Peer(principal=str(svid.id) if isinstance(svid, Svid) else "", certificate=shown)
    if not asked.spiffe_id:
        return Peer()
    authority = create_authority("assumed", now=now, lifetime=_LIFETIME)
    leaf = Leaf(name="assumed", usage=Usage.CLIENT, uris=(asked.spiffe_id,))
    made = issue(authority, leaf, now=now, lifetime=_LIFETIME)
    return Peer(principal=asked.spiffe_id, certificate=quote(made.certificate))


def _assumptions(asked: AskedRequest) -> Iterator[str]:
    yield from asked.remarks
    if asked.spiffe_id:
        yield f"assumed: the peer's certificate has the SPIFFE ID {asked.spiffe_id}"
    if asked.certificate:
        yield "assumed: the proxy verified the peer's certificate"
    if asked.token is not None:
        yield f"assumed: {printable(asked.token.issuer)} signed the claims; no signature was verified"


def _gaps(policies: Policies, asked: AskedRequest, token: Token, unasked: Iterable[Ask]) -> Iterator[str]:
    """Describe missing inputs."""
    if isinstance(token, Refused) and token.reason is Reason.ISSUER_NOT_READY:
        yield f"missing: keys of issuer {token.issuer}. Use --keys or --fetch."
    for service in dict.fromkeys(each.service for each in unasked):
        yield f"not called: external service {service.service}:{service.port}. Use --ask to call it."
    guarded = any(
        attachment.policies or attachment.shadows
        for aim, attachment in policies.attachments.items()
        if aim.ref.kind == "Gateway"
    )
    backend = asked.target.backend
    known = policies.attachments.get(PolicyTarget(backend)) if backend is not None else None
    if guarded and asked.target.gateway is None and known is not None and known.mcp:
        yield f"not evaluated: policies of Gateways, because no Gateway routes to {backend}. Set target.gateway."
