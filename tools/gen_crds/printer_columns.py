"""What ``kubectl get`` shows of each kind."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; a wide one is shown only with ``-o wide``."""

    name: str
    path: str
    description: str
    wide: bool = False
    type: str = "string"

    def written(self) -> dict[str, Any]:
        """Return the column as a definition has it."""
        priority = {"priority": 1} if self.wide else {}
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
            **priority,
        }


def _of(condition: str, field: str = "status", within: str = "") -> str:
    return f'.status{within}.conditions[?(@.type=="{condition}")].{field}'


AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since the object was created.", type="date")
_VALID: Final = Column("Valid", _of("Valid"), "Whether authplane can use the object.")
_ERROR: Final = Column("Reason", _of("Valid", "errors[0].reason"), "Reason of the first error.")
_MESSAGE: Final = Column("Message", _of("Valid", "errors[0].message"), "Message of the first error.", wide=True)
_PROGRAMMED: Final = Column("Programmed", _of("Programmed"), "Whether every connected proxy accepted the object.")
_SETTINGS: Final = (_VALID, _ERROR, _MESSAGE)
_TARGET: Final = Column("Target", ".spec.targetRefs[*].name", "Name of the first target.")


def _problem(within: str) -> tuple[Column, Column]:
    """Return the first condition that is false, of any target or parent: the table has room for one value."""
    path = f'.status{within}.conditions[?(@.status=="False")]'
    return (
        Column("Problem", f"{path}.reason", "Reason of the first condition that is false, of any entry of the status."),
        Column("Message", f"{path}.message", "Message of that condition.", wide=True),
    )


_POLICY: Final = (
    _TARGET,
    Column("Mode", ".spec.mode", "Enforce or Shadow."),
    Column("Accepted", _of("Accepted", within=".ancestors[*]"), "Whether authplane accepted the policy, first target."),
    Column("Enforced", _of("Enforced", within=".ancestors[*]"), "Whether authplane enforces the policy, first target."),
    Column("Placement", _of("Enforced", "reason", ".ancestors[*]"), "Who decides requests to the first target."),
    *_problem(".ancestors[*]"),
)
_BACKEND: Final = (
    Column("Type", ".spec.type", "MCP or GRPC."),
    Column("Service", ".spec.mcp.serviceName", "Service of the MCP server."),
    Column("Host", ".spec.mcp['hostname','url']", "Host name or URL of an external MCP server."),
    Column("Protected", _of("Protected"), "Whether policies protect the Backend."),
    Column("Reason", _of("Protected", "reason"), "Reason of the condition Protected."),
    _PROGRAMMED,
    Column("Message", _of("Protected", "message"), "Message of the condition Protected.", wide=True),
)

COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = MappingProxyType(
    {
        "AccessPolicy": _POLICY,
        "AuthorizationService": (Column("Backend", ".spec.backends[*].name", "Name of the first backend."),),
        "AuthplaneConfiguration": (
            *_SETTINGS,
            Column("Policy Server", _of("PolicyServerReady"), "Whether the policy server accepts connections."),
        ),
        "Backend": _BACKEND,
        "BackendTLSPolicy": (
            _TARGET,
            Column("Host", ".spec.validation.hostname", "Host name in the certificate."),
            Column("Accepted", _of("Accepted", within=".ancestors[*]"), "Whether authplane accepted it, first target."),
            *_problem(".ancestors[*]"),
        ),
        "ContourConfiguration": _SETTINGS,
        "ExtensionService": (
            Column("Service", ".spec.services[*].name", "Name of the first Service."),
            _VALID,
            Column("Ready", _of("Ready"), "Whether an endpoint is ready."),
            _ERROR,
            _PROGRAMMED,
            _MESSAGE,
        ),
        "Gateway": (
            Column("Class", ".spec.gatewayClassName", "GatewayClass of the Gateway."),
            Column("Address", ".status.addresses[*].value", "First address of the Gateway."),
            Column("Accepted", _of("Accepted"), "Whether authplane accepted the Gateway."),
            _PROGRAMMED,
        ),
        "GatewayClass": (
            Column("Controller", ".spec.controllerName", "Controller of the class."),
            Column("Accepted", _of("Accepted"), "Whether authplane accepted the class."),
        ),
        "GRPCRoute": (Column("Hostnames", ".spec.hostnames", "Host names of the route."),),
        "HTTPProxy": (
            Column("FQDN", ".spec.virtualhost.fqdn", "Host name of a root."),
            Column("TLS Secret", ".spec.virtualhost.tls.secretName", "Secret of the server certificate."),
            _VALID,
            _ERROR,
            _PROGRAMMED,
            _MESSAGE,
        ),
        "HTTPRoute": (
            Column("Hostnames", ".spec.hostnames", "Host names of the route."),
            Column("Accepted", _of("Accepted", within=".parents[*]"), "Whether the first Gateway accepted the route."),
            *_problem(".parents[*]"),
        ),
        "TLSCertificateDelegation": (
            Column("Secret", ".spec.delegations[*].secretName", "Name of the first Secret."),
            _VALID,
            _ERROR,
        ),
        "XAccessPolicy": _POLICY,
        "XBackend": _BACKEND,
    }
)
"""By kind, before the age."""
