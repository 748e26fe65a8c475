"""What fields demand of each other: rules in CEL, and what a schema can say without them.

An API server estimates the cost of a rule by the largest document. In a list without a limit inside another list, every
rule is too expensive; `WITHOUT_CEL` has those. What neither can say is left to the status.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from authplane.resources.kinds.agentic import (
    AccessPolicySpec,
    AccessRule,
    AuthorizationEntry,
    BackendSpec,
    ExternalAuth,
    GrpcBackend,
    McpBackend,
    PathRule,
    ServiceRef,
    Source,
    XAccessPolicySpec,
    XBackend,
)
from authplane.resources.kinds.authorization_service_kind import Condition, HtpasswdBackend, ServedBackend
from authplane.resources.kinds.backend_tls_policy import BackendTlsValidation
from authplane.resources.kinds.configuration import HttpsListener, ListenAddress, Listeners
from authplane.resources.kinds.gateway import GatewayFrontend, GatewaySpec
from authplane.resources.kinds.policy_settings import Issuer


class Rule(NamedTuple):
    """A rule in CEL, and what the API server says if a document breaks it."""

    rule: str
    message: str
    field_path: str = ""


def _belongs(kind: str, member: str, given: str = "") -> tuple[Rule, Rule]:
    """Require a member for a type, and refuse it for all others."""
    present = given or f"has(self.{member})"
    return (
        Rule(f"self.type != '{kind}' || {present}", f"Type {kind} requires '{member}'. Add it."),
        Rule(f"self.type == '{kind}' || !({present})", f"Only type {kind} can have '{member}'. Remove it."),
    )


def _filled(name: str) -> str:
    return f"(has(self.{name}) && size(self.{name}) > 0)"


_IS_ADDRESS: Final = Rule(
    "!has(self.address) || isIP(self.address)", "The address is not an IP address. Use one such as 127.0.0.1."
)
_INLINE: Final = " || ".join(("has(self.mcp)", *map(_filled, ("methods", "paths", "headers", "hosts", "ports"))))
_ONE_KIND: Final = Rule(
    "self.targetRefs.all(ref, (ref.kind == 'Gateway') == (self.targetRefs[0].kind == 'Gateway'))",
    "The targets have different kinds. Use one kind in a policy.",
    ".targetRefs",
)
_OWN_NAMES: Final = Rule(
    "!has(self.rules) || self.rules.all(one, !has(one.name)"
    " || self.rules.exists_one(other, has(other.name) && other.name == one.name))",
    "Two rules have the same name. Rename one of them.",
    ".rules",
)

RULES: Final[Mapping[type, tuple[Rule, ...]]] = MappingProxyType(
    {
        BackendSpec: (*_belongs("MCP", "mcp"), *_belongs("GRPC", "grpc")),
        XBackend: (
            Rule("self.spec.type == 'MCP'", "An XBackend can only be an MCP server. For other types, use Backend."),
        ),
        McpBackend: (
            Rule(
                "[has(self.serviceName), has(self.hostname), has(self.url)].exists_one(given, given)",
                "A Backend needs exactly one of serviceName, hostname and url. Set one of the three.",
            ),
            Rule("has(self.url) || has(self.port)", "'port' is required with serviceName and hostname. Set port."),
            Rule(
                "!has(self.url) || (!has(self.port) && !has(self.path))",
                "'port' and 'path' exclude 'url'. Remove them: the URL contains them.",
            ),
            Rule(
                "!has(self.url) || self.url.matches('^[hH][tT][tT][pP][sS]?://[^/?#@]+(/[^?#]*)?$')",
                "The URL is not usable. Use one such as https://mcp.example.com/mcp, without user name and query.",
            ),
        ),
        GrpcBackend: (_IS_ADDRESS,),
        AccessPolicySpec: (_ONE_KIND, _OWN_NAMES),
        XAccessPolicySpec: (
            _ONE_KIND,
            _OWN_NAMES,
            Rule(
                "(self.action == 'ExternalAuth') == has(self.externalAuth)",
                "Action ExternalAuth requires 'externalAuth', and action Allow cannot have it. Correct the action.",
            ),
        ),
        AccessRule: (
            Rule(
                "!has(self.tools) || !has(self.authorization)",
                "'tools' and 'authorization' are both set. Remove one of them.",
            ),
        ),
        Source: (
            *_belongs("SPIFFE", "spiffe", _filled("spiffe")),
            *_belongs("ServiceAccount", "serviceAccount"),
            *_belongs("OIDC", "oidc"),
        ),
        AuthorizationEntry: (
            *_belongs("InlineTools", "tools"),
            *_belongs("CEL", "cel"),
            *_belongs("ExternalAuth", "externalAuth"),
            Rule(f"self.type != 'Inline' || {_INLINE}", "Type Inline requires a condition such as 'mcp'. Add one."),
            Rule(f"self.type == 'Inline' || !({_INLINE})", "Only type Inline can have conditions. Remove them."),
        ),
        ExternalAuth: (
            Rule(
                "self.protocol == 'HTTP' || !has(self.http)",
                "'http' applies only to protocol HTTP. Remove it, or set protocol: HTTP.",
            ),
            Rule(
                "self.protocol == 'GRPC' || !has(self.grpc)",
                "'grpc' applies only to protocol GRPC. Remove it, or set protocol: GRPC.",
            ),
        ),
        ServiceRef: (Rule("has(self.port)", "The reference has no 'port'. Add the port of the Service."),),
        ServedBackend: (
            Rule(
                "has(self.testserver) != has(self.htpasswd)",
                "A backend has exactly one of 'testserver' and 'htpasswd'. Set one of them.",
            ),
        ),
        HtpasswdBackend: (
            Rule(
                f"{_filled('files')} || has(self.folder)",
                "The backend has no users. Set 'files', or 'folder' with a folder of Secrets.",
            ),
        ),
        ListenAddress: (_IS_ADDRESS,),
        HttpsListener: (_IS_ADDRESS,),
        Listeners: (
            Rule(
                "(has(self.http) ? self.http.port : 8080) != (has(self.https) ? self.https.port : 8443)",
                "http and https have the same port. Set different ports.",
            ),
        ),
        Issuer: (
            Rule(
                "!has(self.jwtSvids) || !has(self.serviceAccounts)",
                "'jwtSvids' and 'serviceAccounts' are both set. Remove one of them.",
            ),
            Rule(
                "!has(self.caFile) || self.caFile == '' || !has(self.caSecret)",
                "'caFile' and 'caSecret' are both set. Remove one of them.",
            ),
        ),
        BackendTlsValidation: (
            Rule(
                f"{_filled('caCertificateRefs')} != {_filled('wellKnownCACertificates')}",
                "Exactly one of 'caCertificateRefs' and 'wellKnownCACertificates' is required. Set one of them.",
            ),
        ),
    }
)
"""By kind; ``self`` is the object."""

WITHOUT_CEL: Final[Mapping[type, Mapping[str, Any]]] = MappingProxyType(
    {
        Condition: {"minProperties": 1, "maxProperties": 1},
        PathRule: {
            "oneOf": [{"required": ["pattern"]}, {"required": ["value"]}],
            "not": {"required": ["pattern", "type"]},
        },
    }
)

LISTS: Final[Mapping[tuple[type, str], tuple[str, ...]]] = MappingProxyType(
    {(GatewaySpec, "listeners"): ("name",), (GatewayFrontend, "perPort"): ("port",)}
)
"""Lists whose entries have keys. All others belong to one author as a whole: their order decides."""

_OBJECT: Final[Mapping[str, Any]] = MappingProxyType({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
_ARRAY: Final[Mapping[str, Any]] = MappingProxyType({"type": "array", "items": dict(_OBJECT)})
REFUSED_TYPES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        **dict.fromkeys(("ipAllowPolicy", "ipDenyPolicy", "jwtProviders", "subjectAltNames"), _ARRAY),
        **dict.fromkeys(("allowedListeners", "backend", "backendTLS", "jwtVerificationPolicy", "selector"), _OBJECT),
        "mirror": {"type": "boolean"},
    }
)
"""The types of fields that the reader refuses: a rule in CEL can name only fields that have a type."""
