"""What a sender can change so that the source of a rule matches, for people who read a trace."""

from collections.abc import Mapping
from typing import Final

from authplane.policy.decide.match_rules import Miss
from authplane.policy.decide.token_faults import token_fault
from authplane.policy.identity.evidence import Evidence
from authplane.policy.rules.rule_model import Oidc, Source, issuers_of

_PLAIN: Final[Mapping[Miss, str]] = {
    Miss.NO_TOKEN: "use a valid token from the issuer",
    Miss.NOT_READY: "wait until the keys of the issuer are loaded",
    Miss.NOT_REVIEWED: "wait until the Kubernetes cluster can review tokens",
    Miss.NOT_VERIFIED: "send the request again later",
}


def source_hint(source: Source, miss: Miss, evidence: Evidence) -> str:
    """Say what to change; it continues a line that begins with "fix:"."""
    if miss in {Miss.NO_PEER, Miss.OTHER_PEER, Miss.BAD_WORKLOAD}:
        token = ", or its token for this server" if issuers_of(source) else ""
        return f"use the certificate of a workload that the rule names{token}"
    if miss is Miss.SCOPE and isinstance(source, Oidc):
        return f"use a token that has one of the scopes {' '.join(source.scopes)}"
    if miss in _PLAIN:
        return _PLAIN[miss]
    fault = token_fault(miss, evidence.token(), [source] if isinstance(source, Oidc) else [])
    return f"{fault[:1].lower()}{fault[1:]}"
