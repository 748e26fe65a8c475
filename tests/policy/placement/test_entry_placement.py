"""Where each kind of entry is enforced, for each kind of source."""

from datetime import timedelta
from itertools import product
from typing import Final

import pytest
from tests.support.cel.expressions import program

from authplane.cel.envoy.envoy_attributes import ID, MESSAGE, METHOD, SUBJECT, VERSION
from authplane.cel.envoy.plain_paths import CANONICAL_CHECK
from authplane.cel.envoy.request_checks import (
    ALWAYS,
    PRESENT,
    Begins,
    Between,
    Check,
    Contains,
    Equals,
    Every,
    Fits,
    Header,
    Lists,
    Metadata,
    Not,
    Number,
    Path,
    Port,
    Some,
    every,
)
from authplane.cel.envoy.translate import NOBODY, Certified, Claims, Condition, Members
from authplane.cel.syntax.source_text import render_text
from authplane.core.envoy_releases import Release
from authplane.core.names import ObjectName
from authplane.policy.identity.tokens.check_claims import Times
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.verify import Demands
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.identity.workload_identity.workload_authorities import SvidAuthority, WorkloadTokens
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.placement.entry_placement import (
    ASKS,
    CHOSEN,
    COMMA,
    LARGE_HOST,
    MANY_HYPHENS,
    NO_MCP,
    place_base,
    place_entry,
)
from authplane.policy.placement.placement_model import CallOut, Native, Sender, Terms
from authplane.policy.placement.source_placement import (
    AGE,
    NO_KEYS,
    SCOPE,
    SKEW,
    TWO_NAMES,
    UNUSABLE,
    WORKLOAD_TOKENS,
    header_key,
    place_source,
)
from authplane.policy.rules.access_settings import IssuerSettings, Placement, Settings
from authplane.policy.rules.external_service import ExternalService, OverGrpc
from authplane.policy.rules.rule_model import (
    Account,
    AllTools,
    AnySource,
    Asked,
    Entry,
    Everything,
    Expression,
    Family,
    Inline,
    McpGrant,
    Method,
    Oidc,
    Source,
    Spiffe,
    Tools,
)

TERMS: Final = Terms()
SERVICE: Final = ExternalService(service=ObjectName("default", "authz"), port=9000, protocol=OverGrpc())
URL: Final = "https://issuer.example"
ISSUER: Final = IssuerUrl(url=URL, literal=URL)
AGENT: Final = "spiffe://cluster.local/ns/default/sa/agent"
OTHER: Final = "spiffe://cluster.local/ns/default/sa/other"

CONDITIONS: Final[dict[str, tuple[Entry, Check, str]]] = {
    "everything": (Everything(), ALWAYS, "true"),
    "tools in order": (
        Tools(frozenset({"b", "a"})),
        Every((Metadata(METHOD, (Equals("tools/call"),)), Metadata(SUBJECT, (Equals("a"), Equals("b"))))),
        "true",
    ),
    "no tools": (Tools(frozenset()), Every((Metadata(METHOD, (Equals("tools/call"),)), Some())), "true"),
    "all tools": (AllTools(), Metadata(METHOD, (Equals("tools/call"),)), "true"),
    "methods": (
        Inline(methods=frozenset({"PUT", "GET"})),
        Some((Header(":method", Equals("GET")), Header(":method", Equals("PUT")))),
        "true",
    ),
    "ports": (Inline(ports=frozenset({81, 80})), Some((Port(80), Port(81))), "true"),
    "a host": (
        Inline(hosts=("a.example",)),
        Header(":authority", Fits(r"(?i:a\.example)\.?(?::[0-9]+)?")),
        "true",
    ),
    "hosts below one": (
        Inline(hosts=("*.example",)),
        Header(":authority", Fits(r"(?i:(?:[a-z0-9_-]+\.)+example)\.?(?::[0-9]+)?")),
        "true",
    ),
    "paths": (
        Inline(paths=("/a", "/b/*")),
        every((CANONICAL_CHECK, Some((Path(Equals("/a")), Path(Begins("/b/")))))),
        "true",
    ),
    "every path": (Inline(paths=("*",)), CANONICAL_CHECK, "true"),
    # A check would be content with one of several values.
    "a header": (
        Inline(headers=(("x-a", "b"),)),
        ALWAYS,
        'request.headers["x-a"] == "b" && !("x_a" in request.headers)',
    ),
    "an expression": (
        Expression(program=program('request.method == "GET" && size(request.host) == 3')),
        Header(":method", Equals("GET")),
        "size(request.host) == 3",
    ),
    "a method about something": (
        Inline(mcp=McpGrant(methods=(Method("resources/read", frozenset({"a"})),))),
        Every((Metadata(METHOD, (Equals("resources/read"),)), Metadata(SUBJECT, (Equals("a"),)))),
        "true",
    ),
    "a task": (
        Inline(mcp=McpGrant(methods=(Method("tasks/get", frozenset({"a"})),))),
        Every((Metadata(METHOD, (Equals("tasks/get"),)), Metadata(SUBJECT, (Equals("a"),)))),
        "true",
    ),
    "an argument": (
        Expression(program=program('request.mcp.params.a == "b"')),
        Metadata((*MESSAGE, "params", "a"), (Equals("b"),)),
        "true",
    ),
    "whether there is an argument": (
        Expression(program=program("has(request.mcp.params.a) && request.mcp.params.b < 5.0")),
        Some(
            (
                Metadata((*MESSAGE, "params", "a"), (PRESENT,)),
                Metadata((*MESSAGE, "params"), (Lists("a"),)),
            )
        ),
        'metadata.filter_metadata["authplane.mcp"]["message"]["params"]["b"] < 5.0',
    ),
    "methods of a kind": (
        Inline(mcp=McpGrant(methods=(Family("tools/"), Method("ping")))),
        Some((Metadata(METHOD, (Begins("tools/"),)), Metadata(METHOD, (Equals("ping"),)))),
        "true",
    ),
}
CALL_OUTS: Final[dict[str, tuple[Entry, str]]] = {
    "an external service": (Asked(SERVICE), ASKS),
    "all arguments": (
        Expression(program=program("size(request.mcp.params) == 1")),
        "reads all tool arguments instead of one by name",
    ),
    "loops and a member of an argument": (
        Expression(program=program("[1].exists(x, x == 1) && request.mcp.params.a.b == 1")),
        "uses exists(), reads request.mcp.params.a.b, which is a member of an argument",
    ),
    "an argument with an odd name": (
        Expression(program=program("request.mcp.params['é'] == 1")),
        "reads the argument 'é', whose name is not plain ASCII",
    ),
    "a long host": (Inline(hosts=(".".join(["shop"] * 24),)), LARGE_HOST),
    "a very long host": (Inline(hosts=("a" * 250,)), LARGE_HOST),
    "a header with many hyphens": (Inline(headers=(("a-b-c-d-e", "a"),)), MANY_HYPHENS),
    "values with commas": (Inline(headers=(("a", "b,c"),)), COMMA),
    "the token": (
        Inline(headers=(("authorization", "a"),)),
        "reads the header authorization, which Envoy's filters see differently",
    ),
}
READERS: Final[dict[str, Entry]] = {
    "tools": Tools(frozenset({"a"})),
    "all tools": AllTools(),
    "MCP methods": Inline(mcp=McpGrant(methods=(Family("tools/"),))),
    "expressions about tools": Expression(program=program('request.mcp.tool_name == "a"')),
}


@pytest.mark.parametrize(("entry", "check", "text"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_an_entry_is_a_condition(entry: Entry, check: Check, text: str) -> None:
    place = place_entry(entry, NOBODY, TERMS, is_mcp=True)
    assert isinstance(place, Native), place
    assert (place.condition.check, render_text(place.condition.tree)) == (check, text)


@pytest.mark.parametrize(("entry", "reason"), CALL_OUTS.values(), ids=CALL_OUTS.keys())
def test_an_entry_is_left_to_the_policy_server(entry: Entry, reason: str) -> None:
    assert place_entry(entry, NOBODY, TERMS, is_mcp=True) == CallOut(reason)


@pytest.mark.parametrize("entry", READERS.values(), ids=READERS.keys())
def test_entries_about_mcp_are_native_before_mcp_servers_alone(entry: Entry) -> None:
    assert isinstance(place_entry(entry, NOBODY, TERMS, is_mcp=True), Native)
    assert place_entry(entry, NOBODY, TERMS, is_mcp=False) == CallOut(NO_MCP)


def test_the_base_protocol_is_that_of_the_version_that_a_message_speaks() -> None:
    assert place_base(TERMS, is_mcp=False) == CallOut(NO_MCP)
    place = place_base(TERMS, is_mcp=True)
    assert isinstance(place, Native)
    assert isinstance(place.condition.check, Some)
    sessions, newest = place.condition.check.checks
    assert isinstance(sessions, Every)
    assert isinstance(newest, Every)
    *others, last = (each.value for each in ProtocolVersion)
    assert sessions.checks[0] == Metadata(VERSION, tuple(map(Equals, others)))
    assert newest.checks[0] == Metadata(VERSION, (Equals(last),))
    unanswered = Not(Metadata(ID, (PRESENT,)))
    assert newest.checks[1] == Some(
        (
            Metadata(METHOD, (Equals("server/discover"), Equals("tools/list"))),
            Every((Metadata(METHOD, (Equals("notifications/cancelled"),)), unanswered)),
        )
    )


def test_the_choice_of_call_out_leaves_nothing_to_envoy() -> None:
    chosen = Terms(placement=Placement.CALL_OUT)
    entries = [entry for entry, *_ in CONDITIONS.values()]
    assert {place_entry(entry, NOBODY, chosen, is_mcp=True) for entry in entries} == {CallOut(CHOSEN)}
    assert place_base(chosen, is_mcp=True) == CallOut(CHOSEN)


SOURCES: Final[dict[str, Source]] = {
    "anybody": AnySource(),
    "a workload": Spiffe(frozenset({AGENT})),
    "workloads": Spiffe(frozenset({AGENT, OTHER})),
    "an account": Account(ServiceAccount("default", "agent"), AGENT),
    "a token": Oidc(issuer=ISSUER, audiences=frozenset({"a"}), scopes=("b",)),
}
ALL_TERMS: Final = [
    Terms(placement=placement, envoy=envoy) for placement, envoy in product(Placement, (Release(1, 36), Release(1, 40)))
]


@pytest.mark.slow
def test_every_entry_has_a_place_for_every_source_and_choice() -> None:
    entries = [case[0] for case in CONDITIONS.values()] + [case[0] for case in CALL_OUTS.values()]
    entries += READERS.values()
    for entry, source, terms, is_mcp in product(entries, SOURCES.values(), ALL_TERMS, (True, False)):
        sender = place_source(source, Settings())
        assert isinstance(sender, Sender)
        place = place_entry(entry, sender.who, terms, is_mcp=is_mcp)
        assert isinstance(place, Native) or place.reason


def test_workloads_are_recognised_by_the_only_uri_in_their_certificates() -> None:
    one, several, account = (
        place_source(SOURCES[name], Settings()) for name in ("a workload", "workloads", "an account")
    )
    header = "x-forwarded-client-cert"
    alone = Condition(check=Every((Header(header, Contains("URI=")), Not(Header(header, Fits(r"\C*URI=\C*URI=\C*"))))))
    accounts = Members((("service_account", "agent"), ("namespace", "default")))
    assert [one, several, account] == [
        Sender(condition=alone, ids=frozenset({AGENT}), who=Members((("spiffe_id", AGENT),))),
        Sender(condition=alone, ids=frozenset({AGENT, OTHER}), who=Certified()),
        Sender(condition=alone, ids=frozenset({AGENT}), who=accounts),
    ]


def test_tokens_are_recognised_by_what_a_filter_keeps_of_them() -> None:
    demands = Demands(types=frozenset({"", "jwt"}), algorithms=frozenset({"ES256", "RS256"}))
    settings = Settings(issuers={URL: IssuerSettings(demands=demands)})
    sender = place_source(Oidc(issuer=ISSUER, audiences=frozenset({"b", "a"})), settings)
    assert isinstance(sender, Sender)
    assert (sender.who, sender.ids) == (Claims(URL), frozenset())
    kept = "envoy.filters.http.jwt_authn"
    header = (kept, header_key(URL))
    kinds = (Equals("jwt", ignore_case=True), Equals("application/jwt", ignore_case=True))
    letter = r"[!-\-/-~]"
    base64 = rf"(?:{letter}{{4}})*(?:{letter}[AQgw]|{letter}{{2}}[048AEIMQUYcgkosw])?"
    audience = Metadata((kept, URL, "aud"), (Equals("a"), Lists("a"), Equals("b"), Lists("b")))
    assert sender.condition == Condition(check=audience)
    assert sender.token is not None
    assert sender.token.issuer == URL
    assert sender.token.condition.check == Every((
        Metadata((kept, URL, "iss"), (Equals(URL),)),
        Metadata((kept, URL, "exp"), (Between(0, 253_402_300_800),)),
        Metadata((*header, "kid"), (Fits(r"\C+"),)),
        *(Not(Metadata((*header, each), (PRESENT,))) for each in ("b64", "crit", "cty")),
        Some((Metadata((*header, "typ"), kinds), Not(Metadata((*header, "typ"), (PRESENT,))))),
        Header("authorization", Fits(r"Bearer [A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")),
        Header("authorization", Fits(rf"Bearer {base64}\.{base64}\.\C+")),
        Header("authorization", Fits(rf"\C+\.{base64}")),
        Metadata((kept, URL, "iat"), (PRESENT,)),
    ))  # fmt: skip
    claims = f'metadata.filter_metadata["{kept}"]["{URL}"]'
    assert render_text(sender.token.condition.tree) == f'{claims}["iat"] - 30.0 <= int(request.time)'
    assert sender.unsure == Condition(
        check=Some((
            Metadata((kept, f"failure {URL}", "code"), (Number(32), Number(26))),
            Every((Metadata((kept, URL, "iss"), (Equals(URL),)), Not(Metadata((kept, URL, "iat"), (PRESENT,))))),
        ))
    )  # fmt: skip


def test_tokens_without_a_type_are_for_issuers_that_may_leave_it_out() -> None:
    settings = Settings(issuers={URL: IssuerSettings(demands=Demands(types=frozenset({"jwt"})))})
    sender = place_source(Oidc(issuer=ISSUER), settings)
    assert isinstance(sender, Sender)
    assert sender.token is not None
    assert isinstance(sender.token.condition.check, Every)
    header = ("envoy.filters.http.jwt_authn", header_key(URL))
    kinds = (Equals("jwt", ignore_case=True), Equals("application/jwt", ignore_case=True))
    assert Metadata((*header, "typ"), kinds) in sender.token.condition.check.checks


def issuer(times: Times | None = None, unusable: str = "") -> Settings:
    demands = Demands(times=times or Times())
    return Settings(issuers={URL: IssuerSettings(demands=demands, unusable=unusable)})


TOKENS: Final = WorkloadTokens(
    (SvidAuthority(issuer=ISSUER, trust_domain="other.example", audiences=frozenset({"a"})),)
)
UNTOLD: Final[dict[str, tuple[Source, Settings, str]]] = {
    "a workload where tokens of workloads count": (SOURCES["a workload"], Settings(workloads=TOKENS), WORKLOAD_TOKENS),
    "an account where tokens of workloads count": (SOURCES["an account"], Settings(workloads=TOKENS), WORKLOAD_TOKENS),
    "an issuer with two names": (
        Oidc(issuer=IssuerUrl(url=URL, literal="issuer.example")), Settings(), TWO_NAMES,
    ),
    "an issuer with an age": (
        Oidc(issuer=ISSUER), issuer(Times(longest_age=timedelta(hours=1).total_seconds())), AGE,
    ),
    "an exact clock": (Oidc(issuer=ISSUER), issuer(Times(skew=0)), SKEW),
    "half a second": (Oidc(issuer=ISSUER), issuer(Times(skew=1.5)), SKEW),
    "an issuer that cannot be reached": (Oidc(issuer=ISSUER), issuer(unusable="no CA"), UNUSABLE),
    "a long scope": (Oidc(issuer=ISSUER, scopes=("é" * 60,)), Settings(), SCOPE),
}  # fmt: skip


@pytest.mark.parametrize(("source", "settings", "reason"), UNTOLD.values(), ids=UNTOLD.keys())
def test_a_source_is_left_to_the_policy_server(source: Source, settings: Settings, reason: str) -> None:
    assert place_source(source, settings) == CallOut(reason)


@pytest.mark.parametrize(
    ("keys", "told"), [(None, True), (frozenset({URL}), True), (frozenset({f"{URL}/"}), False), (frozenset(), False)]
)
def test_tokens_are_the_servers_to_judge_until_envoy_can_be_given_keys(
    keys: frozenset[str] | None, *, told: bool
) -> None:
    placed = place_source(Oidc(issuer=ISSUER), Settings(), keys)
    assert placed == (place_source(Oidc(issuer=ISSUER), Settings()) if told else CallOut(NO_KEYS))


def test_what_keys_would_not_help_is_said_before_they_are_missed() -> None:
    source, settings = Oidc(issuer=ISSUER), issuer(Times(skew=0))
    assert place_source(source, settings, frozenset()) == CallOut(SKEW)


def test_anybody_is_anybody() -> None:
    sender = place_source(AnySource(), Settings())
    assert isinstance(sender, Sender)
    assert sender == Sender(condition=Condition())
    assert sender.condition.always
