"""Requests at random: most are nearly what some rule grants."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.differential.bodies import CONTENT_TYPES, SPOILED_BODIES
from tests.differential.expressions import NUMBERED, NUMBERS
from tests.differential.minting import DEFECTS, FIRST_KEYS, LAST_KEY, NEXT_KEYS
from tests.differential.model import (
    AGENT,
    CERTIFICATES,
    CLUSTER,
    ISSUERS,
    NEWEST,
    OTHER,
    SPIRE,
    STRANGER,
    Case,
    Framing,
    Sent,
    Token,
    World,
)
from tests.differential.parts import (
    ARGUMENTS,
    AUDIENCES,
    CAPABILITIES,
    CLAIMS,
    HEADERS,
    HOSTS,
    META,
    METHODS,
    ODD_HEADERS,
    PATHS,
    SCHEMES,
    TIMES,
    TRAILERS,
    USUAL_TIMES,
    VERBS,
    VERSIONS,
)
from tests.differential.policies import TOOLS

_ANYBODY: Final[tuple[Mapping[str, Any], ...]] = ({}, {"type": "OIDC", "oidc": {}}, {"type": "SPIFFE"})


class Requests:
    """Makes requests for the sets of a world; the same ones for the same numbers."""

    def __init__(self, seed: int, world: World, *, rotated: bool = False) -> None:
        self._random = Random(seed)  # noqa: S311 (the same cases every time)
        self._world = world
        self._keys = NEXT_KEYS if rotated else FIRST_KEYS
        self._other_keys = (LAST_KEY,) if rotated else (NEXT_KEYS[-1], LAST_KEY)
        self._rules = [
            [rule for draft in each.backend or each.gateway for rule in draft.spec["rules"]] for each in world.sets
        ]

    def cases(self, number: int) -> list[Case]:
        """Make so many, as many for each set."""
        places = len(self._world.sets)
        return [Case(place=index % places, sent=self._sent(index % places)) for index in range(number)]

    def _sent(self, place: int) -> Sent:
        chance, rules = self._random, self._rules[place]
        aim = chance.choice(rules) if rules and chance.random() < 0.85 else {}
        sent = replace(self._call(aim), **self._who(aim.get("source"), _read_by(aim)), **self._transport())
        if self._world.sets[place].proxy:
            return sent
        if chance.random() < 0.2:
            times = 2 if chance.random() < 0.3 else 1
            sent = replace(sent, headers=(*sent.headers, *(("x-team", "red"),) * times))
        for _ in range(chance.choice((0, 0, 0, 0, 1, 1, 2))):
            sent = chance.choice(_MUTATIONS)(sent, chance)
        return sent

    def _call(self, aim: Mapping[str, Any]) -> Sent:
        chance, version = self._random, self._random.choice(VERSIONS)
        if chance.random() < 0.06:
            return self._session(version)
        params: dict[str, Any] | None
        if chance.random() < 0.65:
            listed = [tool for entry in aim.get("authorization", ()) for tool in entry.get("tools", ())]
            tools = listed if listed and chance.random() < 0.85 else TOOLS
            method, params = "tools/call", {"name": chance.choice(tools), "arguments": dict(chance.choice(ARGUMENTS))}
        else:
            method = chance.choice(tuple(METHODS))
            given = METHODS[method]
            params = None if given is None else dict(given)
        return _posted(method, params, version, chance)

    def _transport(self) -> dict[str, Any]:
        """Choose how a request is sent: usually at once, over HTTP/1.1 or HTTP/2."""
        chance, made = self._random, dict[str, Any]()
        if chance.random() < 0.25:
            made["http2"] = True
            if chance.random() < 0.15:
                made["other_host"] = chance.choice(("other.example", "", "s0.example"))
        if chance.random() < 0.04:
            made["trailers"] = chance.choice(TRAILERS)
            made["framing"] = Framing.CHUNKED if not made.get("http2") or chance.random() < 0.5 else Framing.LENGTH
        if chance.random() < 0.04:
            made["pieces"] = chance.choice((2, 3, 5, 9))
        return made

    def _session(self, version: str | None) -> Sent:
        headers = [("accept", "text/event-stream"), ("mcp-session-id", "abc")][self._random.choice((0, 0, 1)) :]
        if version:
            headers.append(("mcp-protocol-version", version))
        return Sent(method=self._random.choice(("GET", "DELETE")), headers=tuple(headers))

    def _who(self, source: Mapping[str, Any] | None, read: frozenset[str]) -> dict[str, Any]:
        """Be whom a source is for, more or less; nobody in particular without one. A rule reads these claims."""
        chance = self._random
        source = source or chance.choice(_ANYBODY)
        made: dict[str, Any] = {}
        match source.get("type"):
            case "SPIFFE" | "ServiceAccount" if chance.random() < 0.8:
                made["certificate"] = self._certificate(source)
            case "SPIFFE" | "ServiceAccount":
                made["token"] = self._workload_token()
            case "OIDC":
                made["token"] = self._token(**_asked_of(source["oidc"]), read=read)
            case _ if chance.random() < 0.2:
                made["token"] = self._workload_token()
        return {"certificate": "agent", "token": self._token(), **made} if chance.random() < 0.08 else made

    def _certificate(self, source: Mapping[str, Any]) -> str:
        chance = self._random
        if chance.random() < 0.2:
            return chance.choice(tuple(CERTIFICATES))
        named = str(source.get("spiffe", source.get("serviceAccount", "")))
        fit = [
            name for name in ("agent", "other", "foreign", "domain") if name in named or CERTIFICATES[name][0] in named
        ]
        return chance.choice(fit or ("agent",))

    def _token(
        self,
        issuer: str = "",
        audiences: tuple[str, ...] = (),
        scopes: tuple[str, ...] = (),
        read: frozenset[str] = frozenset(),
    ) -> Token:
        chance = self._random
        issuer = issuer or chance.choice(ISSUERS)
        fit = [each for each in CLAIMS if not read.isdisjoint(each)]
        claims: dict[str, Any] = {
            "sub": chance.choice(("ann", "bob")),
            **chance.choice(fit if fit and chance.random() < 0.6 else CLAIMS),
        }
        if scopes and chance.random() < 0.8:
            claims["scope"] = chance.choice((chance.choice(scopes), f"x {chance.choice(scopes)}", list(scopes)))
        audience = self._usually(audiences or ("shop",), AUDIENCES)
        claims |= {each: chance.choice(NUMBERS) for each in NUMBERED if each in read and chance.random() < 0.6}
        if {"org", "owner_org"} <= claims.keys() and chance.random() < 0.5:
            claims["owner_org"] = claims["org"]
        odd = chance.random() < 0.04
        return Token(
            issuer=STRANGER if chance.random() < 0.02 else issuer,
            claims=claims if audience is None else {**claims, "aud": audience},
            times=self._usually(USUAL_TIMES, TIMES),
            signer=chance.choice((*ISSUERS, STRANGER)) if odd else issuer,
            key=self._usually(self._keys, self._other_keys),
            header=self._usually(({},), HEADERS),
            scheme=self._usually(("Bearer ",), SCHEMES),
            defect=self._usually(("",), DEFECTS),
        )

    def _usually(self, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
        return self._random.choice(usual if self._random.random() < 0.94 else odd)

    def _workload_token(self) -> Token:
        chance = self._random
        made = self._token(chance.choice((SPIRE, CLUSTER)), ("shop",))
        if made.issuer == SPIRE:
            return replace(made, claims={**made.claims, "sub": chance.choice((AGENT, AGENT, OTHER, "spiffe://x/y"))})
        name = chance.choice(("agent", "agent", "other"))
        stated = {"namespace": "default", "serviceaccount": {"name": chance.choice((name,) * 5 + ("x",)), "uid": "2"}}
        stated["pod"] = {"name": "p", "uid": "1"}
        return replace(
            made,
            claims={**made.claims, "sub": f"system:serviceaccount:default:{name}", "kubernetes.io": stated},
        )


def _read_by(rule: Mapping[str, Any]) -> frozenset[str]:
    """Return the claims that the expressions of a rule read."""
    texts = (entry.get("cel", "") for entry in rule.get("authorization", ()))
    return frozenset(name for text in texts for name in re.findall(r"identity\.(\w+)", text))


def _asked_of(oidc: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a token needs for a source."""
    return {
        "issuer": oidc.get("issuerUrl", ""),
        "audiences": tuple(oidc.get("audiences", ())),
        "scopes": tuple(oidc.get("scopes", ())),
    }


def _posted(method: str, params: dict[str, Any] | None, version: str | None, chance: Random) -> Sent:
    headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    name = (params or {}).get("uri" if method.startswith("resources/") else "name")
    if version is not None:
        headers.append(("mcp-protocol-version", version))
    if version == NEWEST and chance.random() < 0.93:
        headers.append(("mcp-method", method))
        if isinstance(name, str) and name.isascii():
            headers.append(("mcp-name", name))
        told = {META: version, CAPABILITIES: {}} if chance.random() < 0.9 else {META: version}
        params = {**(params or {}), "_meta": told}
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if not method.startswith("notifications/"):
        message["id"] = chance.choice((1, "x-7", 0))
    message["method"] = method
    if params is not None:
        message["params"] = params
    return Sent(headers=tuple(headers), body=json.dumps(message, ensure_ascii=chance.random() < 0.5).encode())


# --- What is odd about a request


def _other_body(sent: Sent, chance: Random) -> Sent:
    return replace(sent, body=chance.choice(SPOILED_BODIES)(sent.body))


def _other_type(sent: Sent, chance: Random) -> Sent:
    kept = tuple(pair for pair in sent.headers if pair[0] != "content-type")
    kind = chance.choice(CONTENT_TYPES)
    return replace(sent, headers=kept if kind is None else (*kept, ("content-type", kind)))


def _more_headers(sent: Sent, chance: Random) -> Sent:
    return replace(sent, headers=(*sent.headers, *chance.choice(ODD_HEADERS)))


def _fewer_headers(sent: Sent, chance: Random) -> Sent:
    if not sent.headers:
        return sent
    gone = chance.randrange(len(sent.headers))
    return replace(sent, headers=sent.headers[:gone] + sent.headers[gone + 1 :])


def _other_path(sent: Sent, chance: Random) -> Sent:
    return replace(sent, path=chance.choice(PATHS))


def _other_host(sent: Sent, chance: Random) -> Sent:
    return replace(sent, host=chance.choice(HOSTS))


def _other_verb(sent: Sent, chance: Random) -> Sent:
    verb = chance.choice(VERBS)
    return replace(sent, method=verb, body=b"" if verb == "TRACE" or chance.random() < 0.5 else sent.body)


def _chunked(sent: Sent, _chance: Random) -> Sent:
    return replace(sent, framing=Framing.CHUNKED) if sent.body else sent


def _no_token(sent: Sent, _chance: Random) -> Sent:
    return replace(sent, token=None, certificate="")


_MUTATIONS: Final[tuple[Callable[[Sent, Random], Sent], ...]] = (
    *(_other_body,) * 4,
    _other_type,
    *(_more_headers,) * 4,
    _fewer_headers,
    *(_other_path,) * 2,
    _other_host,
    _other_verb,
    *(_chunked,) * 2,
    _no_token,
)
