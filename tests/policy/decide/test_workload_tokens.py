"""Tokens of workloads, from documents to decisions: real signatures and certificates, keys that are at hand."""

from typing import Any, Final, NamedTuple

import pytest
from tests.support.issuers import svids
from tests.support.issuers.keyrings import Ring, keys
from tests.support.issuers.minting import NOW, claims, signer
from tests.support.policies.compiled import compiled, errors, policies
from tests.support.policies.documents import ADD, BACKEND, OIDC, policy, settings
from tests.support.policies.mcp_requests import call

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.policy.attached.attachments import Policies
from authplane.policy.check.check_context import TARGET
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.verify import NotReady, Trust
from authplane.policy.identity.workload_identity.reviewing import Reviewed, ReviewFailed, ReviewOutcome, ReviewToken
from authplane.policy.rules.access_settings import Options
from authplane.policy.verdicts.verdict import Verdict

SPIRE: Final = "https://spire.example"
CLUSTER: Final = "https://kubernetes.default.svc.cluster.local"
AGENT: Final = "spiffe://example.org/agent"
OURS: Final = svids.AGENT
USER: Final = "system:serviceaccount:default:agent"
STATED: Final[dict[str, Any]] = {"namespace": "default", "serviceaccount": {"name": "agent", "uid": "1"}}

SVIDS: Final = f"{{url: '{SPIRE}', jwtSvids: {{trustDomain: example.org, audiences: [shop, shop-2]}}}}"
ACCOUNTS: Final = f"{{url: '{CLUSTER}', serviceAccounts: {{audiences: [shop], verification: Keys}}}}"
REVIEWED: Final = f"{{url: '{CLUSTER}', serviceAccounts: {{audiences: [shop]}}}}"

BY_ID: Final = (
    f"{{name: id, source: {{type: SPIFFE, spiffe: '{AGENT}'}}, authorization: [{{type: InlineTools, tools: [add]}}]}}"
)
BY_ACCOUNT: Final = (
    "{name: account, source: {type: ServiceAccount, serviceAccount: {name: agent}},"
    " authorization: [{type: InlineTools, tools: [add]}]}"
)
RULES: Final = f"[{BY_ID}, {BY_ACCOUNT}]"


def world(rules: str = RULES, issuers: str = f"{SVIDS}, {ACCOUNTS}", *, options: Options | None = None) -> Policies:
    return policies(BACKEND, policy(rules), settings(f"{{issuers: [{issuers}]}}"), options=options)


def ring(made: Policies, *, ready: bool = True) -> Ring:
    """Have the keys of those issuers that the policies follow, each its own."""
    found: dict[str, Trust | NotReady] = {}
    for each in made.issuers:
        url = each.url.url
        own = keys(signer("ES256", url).jwk())
        found[url] = Trust(issuer=url, demands=each.demands, keys=own) if ready else NotReady(issuer=url)
    return Ring(found)


def token(issuer: str, subject: str, *, signed_by: str = "", header: dict[str, Any] | None = None, **more: Any) -> str:
    by = signer("ES256", signed_by or issuer)
    whole = claims(**{"iss": issuer, "sub": subject, "aud": ["shop"], **more})
    return by.token(whole, header=by.header(**(header or {})))


def svid(subject: str = AGENT, **more: Any) -> str:
    return token(SPIRE, subject, **more)


def projected(subject: str = USER, stated: dict[str, Any] = STATED, **more: Any) -> str:
    return token(CLUSTER, subject, **{"kubernetes.io": stated, **more})


def asked(shown: str = "", spiffe_id: str = "", **more: Any) -> Request:
    headers = (("authorization", f"Bearer {shown}"),) if shown else ()
    peer = Peer(address="10.0.0.1")
    if spiffe_id:
        made = svids.shown(svids.certificate(svids.uri(spiffe_id)))
        peer = Peer(address="10.0.0.1", principal=spiffe_id, certificate=made)
    return call(context={TARGET: "Backend/default/shop"}, headers=headers, source=peer, **more)


class Server:
    """A backend with policies, and the verdicts that it has returned."""

    def __init__(self, made: Policies, keyring: Ring | None = None) -> None:
        self.told: list[Verdict] = []
        self.inspector = TokenInspector(keyring or ring(made))
        self.backend = AccessPolicies(Identifier(self.inspector))
        self.backend.publish(made)
        self.reviews: list[ReviewToken] = []

    def decide(self, request: Request, *reviews: ReviewOutcome, later: float = 0) -> str:
        """Return the rule that grants, or the reason why none does, with the status that a client gets."""
        now = svids.NOW.fromtimestamp(NOW + later, tz=svids.NOW.tzinfo)
        verdict = self.backend.decide(request, now)
        if not isinstance(verdict, Verdict):
            verdict = self._finish(verdict, list(reviews))
        else:
            assert not reviews
        self.told.append(verdict)
        grounds = verdict.grounds
        match verdict.decision:
            case Allow():
                return grounds.rule
            case Deny(http_status=status):
                return f"{status} {grounds.reason}"
            case Unavailable():
                return f"503 {grounds.reason}"

    def _finish(self, flow: Any, reviews: list[ReviewOutcome]) -> Verdict:
        try:
            effect = next(flow)
            while True:
                assert isinstance(effect, ReviewToken)
                self.reviews.append(effect)
                effect = flow.send(reviews.pop(0))
        except StopIteration as finished:
            assert not reviews
            verdict: Verdict = finished.value
            return verdict


class Case(NamedTuple):
    shown: str = ""
    spiffe_id: str = ""
    want: str = ""


CASES: Final[dict[str, Case]] = {
    # JWT-SVIDs
    "a JWT-SVID": Case(svid(), want="id"),
    "one for another of our audiences": Case(svid(aud="shop-2"), want="id"),
    "one of another workload": Case(svid("spiffe://example.org/agent-2"), want="401 peer_not_listed"),
    "one of another trust domain": Case(
        svid("spiffe://example.org.evil/agent"), want="401 bad_workload_token:trust_domain_not_allowed"
    ),
    "one of our own trust domain by an issuer of another": Case(
        svid(OURS), want="401 bad_workload_token:trust_domain_not_allowed"
    ),
    "one for another audience": Case(svid(aud=["other"]), want="401 bad_workload_token:audience_missing"),
    "one for nobody": Case(svid(aud=None), want="401 bad_workload_token:audience_missing"),
    "one whose subject is a ServiceAccount": Case(svid(USER), want="401 bad_workload_token:not_a_spiffe_id"),
    "one that has expired": Case(svid(exp=NOW - 31), want="401 bad_token:token_expired"),
    "one of the future": Case(svid(nbf=NOW + 31), want="401 bad_token:token_not_yet_valid"),
    "one without exp": Case(svid(exp=None), want="401 bad_token:claims_malformed"),
    "one that the cluster has signed": Case(svid(signed_by=CLUSTER), want="401 bad_token:key_unknown"),
    "one of the type that the specification has too": Case(svid(header={"typ": "JOSE"}), want="id"),
    "one of no type": Case(svid(header={"typ": None}), want="id"),
    "an access token": Case(svid(header={"typ": "at+jwt"}), want="401 bad_token:typ_not_allowed"),
    "one of an issuer that nobody has set": Case(
        token("https://other.example", AGENT), want="401 bad_token:issuer_unknown"
    ),
    "no token at all": Case("x", want="401 bad_token:token_malformed"),
    # Projected tokens
    "a projected token": Case(projected(), want="account"),
    "one of another namespace": Case(
        projected("system:serviceaccount:other:agent", stated={**STATED, "namespace": "other"}),
        want="401 peer_not_listed",
    ),
    "one of another account": Case(
        projected("system:serviceaccount:default:x", stated={**STATED, "serviceaccount": {"name": "x"}}),
        want="401 peer_not_listed",
    ),
    "one whose parts do not agree": Case(
        projected(stated={**STATED, "namespace": "other"}),
        want="401 bad_workload_token:claims_malformed",
    ),
    "one for the API server": Case(projected(aud=[CLUSTER]), want="401 bad_workload_token:audience_missing"),
    "one for an audience of the other issuer": Case(
        projected(aud=["shop-2"]), want="401 bad_workload_token:audience_missing"
    ),
    "a projected token that has expired": Case(projected(exp=NOW - 31), want="401 bad_token:token_expired"),
    "one of a user": Case(projected("alice"), want="401 bad_workload_token:subject_malformed"),
    "one whose subject is a SPIFFE id": Case(projected(AGENT), want="401 bad_workload_token:subject_malformed"),
    # Both, and neither
    "nothing": Case(want="401 no_peer_identity"),
    "the same workload by both": Case(svid(), AGENT, "id"),
    "the same ServiceAccount by both": Case(projected(), OURS, "account"),
    "a certificate alone": Case("", OURS, "account"),
    "a certificate of another workload than the JWT-SVID": Case(
        svid(), OURS, "401 bad_workload_token:workloads_differ"
    ),
    "a certificate of another workload than the projected token": Case(
        projected(), AGENT, "401 bad_workload_token:workloads_differ"
    ),
    "a certificate of a trust domain that nobody has set": Case(
        svid(), "spiffe://elsewhere.example/agent", "401 bad_workload_token:trust_domain_not_allowed"
    ),
    "a certificate that names no workload": Case(svid(), "https://agent.example", "id"),
    "a certificate, and a token that proves nobody": Case(svid(aud="other"), OURS, "account"),
    "a certificate, and a token that is over": Case(svid(exp=NOW - 31), OURS, "account"),
    "a certificate, and a token of somebody else's": Case(token("https://other.example", "ann"), OURS, "account"),
}


@pytest.mark.requirement("R15")
@pytest.mark.requirement("R16")
@pytest.mark.requirement("threat:S11")
@pytest.mark.requirement("threat:S12")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_workload_is_known_by_its_token_or_its_certificate(case: Case) -> None:
    made = world()
    assert Server(made).decide(asked(case.shown, case.spiffe_id)) == case.want
    # With many rules those for other workloads are left out; that must not make a difference.
    stranger = (
        f"{{source: {{type: SPIFFE, spiffe: '{AGENT}-x'}}, authorization: [{{type: InlineTools, tools: [add]}}]}}"
    )
    assert Server(world(f"[{BY_ID}, {BY_ACCOUNT}, {stranger}]")).decide(asked(case.shown, case.spiffe_id)) == case.want


def test_a_service_account_is_known_by_a_jwt_svid_of_its_own_id() -> None:
    own = f"{{url: '{SPIRE}', jwtSvids: {{trustDomain: cluster.local, audiences: [shop]}}}}"
    server = Server(world(issuers=own))
    assert server.decide(asked(svid(OURS))) == "account"
    assert server.told[-1].grounds.identity == "ServiceAccount default/agent"
    assert server.decide(asked(svid(f"{OURS}-2"))) == "401 peer_not_listed"


def test_without_settings_no_token_identifies_a_workload() -> None:
    plain = f"{{url: '{SPIRE}'}}, {{url: '{CLUSTER}'}}"
    for issuers in ("", plain):
        made = world(issuers=issuers)
        assert (made.issuers, made.settings.workloads.authorities) == ((), ())
        for shown in (svid(), projected()):
            assert Server(made).decide(asked(shown)) == "403 no_peer_identity"


def test_keys_are_fetched_only_for_issuers_whose_tokens_a_rule_could_accept() -> None:
    other = SVIDS.replace(SPIRE, "https://other.example").replace("example.org", "other.org")
    followed = {
        rules: [each.url.url for each in world(f"[{rules}]", f"{SVIDS}, {ACCOUNTS}, {other}").issuers]
        for rules in (BY_ID, BY_ACCOUNT)
    }
    assert followed == {BY_ID: [SPIRE], BY_ACCOUNT: [CLUSTER]}


def test_a_workload_token_is_stripped_and_an_unused_token_is_forwarded() -> None:
    def removed(made: Policies, request: Request) -> bool:
        verdict = Server(made).backend.decide(request, svids.NOW)
        assert isinstance(verdict, Verdict)
        assert isinstance(verdict.decision, Allow)
        return "authorization" in verdict.decision.edits.remove

    assert removed(world(), asked(svid()))
    assert not removed(world(issuers=""), asked(svid(), OURS))


def test_a_sender_without_identity_learns_of_no_authorization_server() -> None:
    def challenge(request: Request) -> str:
        verdict = Server(world()).backend.decide(request, svids.NOW)
        assert isinstance(verdict, Verdict)
        assert isinstance(verdict.decision, Deny)
        return dict(verdict.decision.headers)["www-authenticate"]

    assert challenge(asked()) == 'Bearer realm="default/shop"'
    ended = challenge(asked(svid(exp=NOW - 60)))
    assert ended.startswith(
        'Bearer realm="default/shop", error="invalid_token", error_description="The token expired at '
    )
    assert "resource_metadata" not in ended


def test_without_the_keys_of_its_issuer_nothing_is_known_of_a_token() -> None:
    made = world()
    server = Server(made, ring(made, ready=False))
    for shown in (svid(), projected()):
        assert server.decide(asked(shown)) == "503 issuer_not_ready"
    assert server.decide(asked(svid(), OURS)) == "account"
    assert server.decide(asked()) == "401 no_peer_identity"


@pytest.mark.requirement("J39")
def test_a_token_is_verified_once_and_believed_until_it_ends() -> None:
    server = Server(world())
    request = asked(svid(exp=NOW + 100))
    assert [server.decide(request, later=at) for at in (0, 50, 99)] == ["id"] * 3
    assert (server.inspector.cache.counts.hits, len(server.inspector.cache)) == (2, 1)
    assert server.decide(request, later=131) == "401 bad_token:token_expired"
    # Other settings, other demands: what is remembered of a token is not who it was taken for.
    server.backend.publish(world(issuers=SVIDS.replace("example.org", "other.org")))
    assert server.decide(request) == "403 bad_workload_token:trust_domain_not_allowed"


def test_a_client_is_not_blamed_for_a_token_that_is_none_of_ours() -> None:
    server = Server(world())
    foreign = asked(token("https://other.example", "ann"), OURS)
    assert {server.decide(foreign) for _ in range(300)} == {"account"}
    assert server.decide(asked(svid())) == "id"


def test_a_rule_for_tokens_takes_the_same_token_as_it_is() -> None:
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{SPIRE}', audiences: [shop]}}}}"
    oidc = f"{{name: oidc, source: {source}, authorization: [{{type: CEL, cel: 'identity.sub == \"{AGENT}\"'}}]}}"
    made = world(f"[{oidc}]", SVIDS)
    assert Server(made).decide(asked(svid())) == "oidc"
    # Each rule takes the identity from its own kind of source.
    assert Server(made).decide(asked(svid(), OURS)) == "oidc"


# --- Reviews

REVIEWS: Final = Options(token_reviews=True)
GOOD: Final = Reviewed(authenticated=True, user=USER, audiences=("shop",))


@pytest.mark.requirement("K10")
def test_the_cluster_reviews_tokens_unless_the_settings_say_that_its_keys_suffice() -> None:
    made = world(issuers=REVIEWED, options=REVIEWS)
    assert made.issuers == ()
    server, request = Server(made), asked(projected())
    assert server.decide(request, GOOD) == "account"
    assert [(each.audiences, each.expires_at, each.source) for each in server.reviews] == [
        (("shop",), NOW + 600, "10.0.0.1")
    ]
    # It is believed for a while, and never longer than the token.
    assert server.decide(request, later=59) == "account"
    assert server.decide(request, GOOD, later=61) == "account"
    assert server.decide(request, later=601) == "401 bad_workload_token:token_not_acceptable"


OUTCOMES: Final[dict[str, tuple[ReviewOutcome, str]]] = {
    "denied": (Reviewed(authenticated=False), "401 bad_workload_token:token_review_denied"),
    "without an audience": (
        Reviewed(authenticated=True, user=USER),
        "401 bad_workload_token:token_review_without_audience",
    ),
    "somebody else": (
        Reviewed(authenticated=True, user="system:serviceaccount:other:agent", audiences=("shop",)),
        "401 peer_not_listed",
    ),
    "no answer": (ReviewFailed("timed out"), "503 token_not_reviewed"),
}


@pytest.mark.parametrize(("outcome", "want"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_what_a_review_comes_to(outcome: ReviewOutcome, want: str) -> None:
    server = Server(world(issuers=REVIEWED, options=REVIEWS))
    assert server.decide(asked(projected()), outcome) == want
    assert server.decide(asked(projected("x"), OURS), outcome) == (
        "401 bad_workload_token:workloads_differ" if want == "401 peer_not_listed" else "account"
    )


def test_a_token_of_another_issuer_or_without_use_is_not_reviewed() -> None:
    made = world(issuers=f"{SVIDS}, {REVIEWED}", options=REVIEWS)
    server = Server(made)
    assert server.decide(asked(svid())) == "id"
    assert server.decide(asked()) == "401 no_peer_identity"
    assert server.decide(asked("x")) == "401 bad_token:token_malformed"
    server.backend.publish(world(f"[{BY_ID}]", f"{SVIDS}, {REVIEWED}", options=REVIEWS))
    assert server.decide(asked(projected(), AGENT)) == "id"


def test_a_token_that_the_cluster_accepts_uses_no_budget_for_unknown_keys() -> None:
    oidc = f"{{source: {OIDC}, authorization: {ADD}}}"
    server = Server(world(f"[{oidc}, {BY_ACCOUNT}, {BY_ID}]", f"{SVIDS}, {REVIEWED}", options=REVIEWS))
    request = asked(projected())
    assert server.decide(request, GOOD) == "account"
    assert {server.decide(request) for _ in range(300)} == {"account"}
    assert server.decide(asked(svid())) == "id"


def test_an_outcome_of_another_kind_is_no_word_of_the_cluster() -> None:
    server = Server(world(issuers=REVIEWED, options=REVIEWS))
    outcome: Any = True
    assert server.decide(asked(projected()), outcome) == "503 token_not_reviewed"


# --- Settings

WRONG: Final[dict[str, tuple[str, list[str]]]] = {
    "nobody to review": (
        REVIEWED,
        [
            "spec.issuers[0].serviceAccounts.verification: No Kubernetes API server is available to review "
            "tokens. Use --kubernetes, or 'Keys', which does not detect revoked tokens. [FieldInvalid]"
        ],
    ),
    "a review for too long": (
        REVIEWED.replace("audiences: [shop]", "audiences: [shop], reviewLifetime: 61s"),
        [
            "spec.issuers[0].serviceAccounts.verification: No Kubernetes API server is available to review "
            "tokens. Use --kubernetes, or 'Keys', which does not detect revoked tokens. [FieldInvalid]",
            "spec.issuers[0].serviceAccounts.reviewLifetime: '61s' is not a duration of at most 60s. Use a value such "
            "as '30s'. [FieldInvalid]",
        ],
    ),
    "both, and more mistakes": (
        "{url: 'http://x', clockSkew: 5h, jwtSvids: {trustDomain: a, audiences: [b]},"
        " serviceAccounts: {audiences: [b]}}, " + REVIEWED,
        [
            "spec.issuers[0].url: 'http://x' is not an issuer URL: "
            "it does not start with https://. Use an https:// URL without user, query and fragment. [InvalidIssuer]",
            (
                "spec.issuers[0].clockSkew: '5h' is not a duration of at most 120s. Use a value such as "
                "'30s'. [FieldInvalid]"
            ),
            (
                "spec.issuers[0].serviceAccounts: 'jwtSvids' and 'serviceAccounts' are both set. Remove "
                "one of them. [Conflicted]"
            ),
            "spec.issuers[0].serviceAccounts.verification: No Kubernetes API server is available to review "
            "tokens. Use --kubernetes, or 'Keys', which does not detect revoked tokens. [FieldInvalid]",
            "spec.issuers[1].serviceAccounts.verification: No Kubernetes API server is available to review "
            "tokens. Use --kubernetes, or 'Keys', which does not detect revoked tokens. [FieldInvalid]",
        ],
    ),
}


@pytest.mark.parametrize(("issuers", "want"), WRONG.values(), ids=WRONG.keys())
def test_settings_that_cannot_be_kept_are_named_and_close_everything(issuers: str, want: list[str]) -> None:
    made = compiled(BACKEND, policy(RULES), settings(f"{{issuers: [{issuers}]}}"))
    assert [each.partition(".")[2] for each in errors(made)] == [each.partition(".")[2] for each in want]
    assert made.policies.closed
    assert Server(made.policies, Ring({})).decide(asked(projected())).startswith("503")
