"""The problems that the passes found in each resource."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem, Problems

CONDITION_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AuthBadAllowedHeader": "AuthError",
        "AuthBadHTTPSettings": "AuthError",
        "AuthBadResourceVersion": "AuthError",
        "AuthBadResourceKind": "AuthError",
        "AuthContextForHTTP": "AuthError",
        "AuthDisablingNotPermitted": "AuthError",
        "AuthFailOpen": "AuthError",
        "AuthFailOpenNotPermitted": "AuthError",
        "AuthMissingExtensionRef": "AuthError",
        "AuthModeNotValid": "AuthError",
        "AuthNotPermitted": "AuthError",
        "AuthPermitInsecureConflict": "AuthError",
        "AuthProtocolMismatch": "AuthError",
        "AuthResponseTimeoutInvalid": "AuthError",
        "AuthResponseTimeoutNotPermitted": "AuthError",
        "AuthShadow": "AuthError",
        "AuthShadowNotPermitted": "AuthError",
        "ExtensionServiceNotFound": "AuthError",
        "ExtensionServiceNotValid": "AuthError",
        "GlobalAuthorizationNotValid": "AuthError",
        "RefNotPermitted": "AuthError",
        "CACertificateNotDelegated": "TLSError",
        "ClientNotVerified": "TLSError",
        "ClientValidationInvalid": "TLSError",
        "DelegationNotPermitted": "TLSError",
        "FallbackNotDelegated": "TLSError",
        "FallbackNotPresent": "TLSError",
        "FallbackNotValid": "TLSError",
        "SecretNotValid": "TLSError",
        "TLSConfigNotValid": "TLSError",
        "TLSIncompatibleFeatures": "TLSError",
        "UpstreamNotVerified": "TLSError",
        "NoReadyEndpoints": "ServiceError",
        "OnlyOneMirror": "ServiceError",
        "ResponseHeadersPolicyInvalid": "ServiceError",
        "ServiceUnresolvedReference": "ServiceError",
        "UnsupportedServiceType": "ServiceError",
        "DuplicateVhost": "VirtualHostError",
        "FQDNNotSpecified": "VirtualHostError",
        "FQDNNotValid": "VirtualHostError",
        "WildcardUncertain": "VirtualHostError",
        "PolicyDidNotParse": "CORSError",
        "CookieRewritePoliciesInvalid": "RouteError",
        "DirectResponsePolicyNotValid": "RouteError",
        "DuplicateMatchConditions": "RouteError",
        "HeaderMatchConditionsNotValid": "RouteError",
        "PathMatchConditionsNotValid": "RouteError",
        "QueryParameterMatchConditionsNotValid": "RouteError",
        "RequestHeadersPolicyInvalid": "RouteError",
        "RequestRedirectPolicy": "RouteError",
        "ResponseHeaderPolicyInvalid": "RouteError",
        "RouteActionCountNotValid": "RouteError",
        "WeightsNotValid": "RouteError",
        "RootProxyNotAllowedInNamespace": "RootNamespaceError",
        "TCPProxyNotSupported": "TCPProxyError",
        "AmbiguousReplacement": "PrefixReplaceError",
        "DuplicateReplacement": "PrefixReplaceError",
        "MustHavePrefix": "PrefixReplaceError",
        "ReplacementNotValid": "PrefixReplaceError",
        "IncludeCreatesCycle": "IncludeError",
        "IncludeNotFound": "IncludeError",
        "IncludesTooMany": "IncludeError",
        "RootIncludesRoot": "IncludeError",
        "Orphaned": "Orphaned",
    }
)
"""The type of the error that a reason gives in a status. Reasons that are not here are about the fields."""

_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("includes", "DuplicateMatchConditions"): "IncludeError",
        ("includes", "PathMatchConditionsNotValid"): "IncludeError",
        ("routes", "TimeoutPolicyNotValid"): "RouteError",
        ("services", "InconsistentProtocol"): "ServiceError",
        ("services", "RequestHeadersPolicyInvalid"): "ServiceError",
        ("services", "TLSUpstreamValidation"): "ServiceError",
    }
)
"""The type where a field of an HTTPProxy decides it: one of its includes, of its routes or of a route's services."""


_CONTOURS_WORDS: Final = (
    "TLS upstream validation policy error: ",
    'ignoring field ".Spec.',
    "spec.timeoutPolicy failed to parse: ",
    "upstream TLS validation not supported for ",
)


def condition_type(reason: str, path: Path = ()) -> str:
    """Return the type under which a status lists a problem with this reason, at this path."""
    if path[:2] in {("spec", "includes"), ("spec", "routes")}:
        found = [_ELSEWHERE[str(step), reason] for step in reversed(path) if (str(step), reason) in _ELSEWHERE]
        if found:
            return found[0]
    return CONDITION_TYPES.get(reason, "SpecError")


def in_contours_words(problem: Problem) -> bool:
    """Tell whether the message of a problem names the field itself, as Contour's message does."""
    return problem.message.startswith(_CONTOURS_WORDS)


class Reports:
    """The problems of every resource, gathered while the graph is built."""

    def __init__(self) -> None:
        self._by_ref: dict[Ref, Problems] = {}

    def of(self, ref: Ref) -> Problems:
        """Return the collector of one resource."""
        return self._by_ref.setdefault(ref, Problems())

    def found(self) -> Mapping[Ref, tuple[Problem, ...]]:
        """Return the problems by resource, in name order; resources without a problem are left out."""
        found = {ref: tuple(problems) for ref, problems in self._by_ref.items() if problems}
        return MappingProxyType({ref: found[ref] for ref in sorted(found)})
