"""gRPC servers that enforce policies by themselves: their configuration, independent of a protocol."""

from typing import TYPE_CHECKING, TypeAlias

from authplane.core.names import Ref
from authplane.core.timeouts import Timeout
from authplane.core.values import dataclass
from authplane.policy.placement.grpc_reach import Reach
from authplane.xds.server.served_types import BY_NAME

if TYPE_CHECKING:
    # For annotations only: without gRPC servers, the module need not be imported.
    from authplane.policy.placement.grpc_plan import Grants


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS of a server, by the names of certificate providers in its bootstrap."""

    certificate: str
    clients: str = ""
    """Has the CAs of clients, who all have to show a certificate then; empty does not ask them for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCheck:
    """How a gRPC server calls the policy server."""

    target: str
    """A gRPC target."""
    ca: str = ""
    """The certificate provider that verifies it; empty is plain text on the same machine."""
    own: str = ""
    """The one with what the server shows to it; empty shows nothing."""
    timeout: Timeout


@dataclass(frozen=True, slots=True)
class Open:
    """No policy protects the server, and that is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The server rejects callers outside ``reach`` at once; the policy server decides about the others."""

    reach: Reach
    check: PolicyCheck
    grants: "Grants | None" = None
    """What a server that understands it grants without asking."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The configuration of the server is invalid: every call is denied.

    A server whose Listener is removed continues with the last one, unless its bootstrap says otherwise.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcServer:
    """A gRPC server, as one Backend describes it."""

    ref: Ref
    address: str
    port: int
    tls: ServerTls | None
    authorization: "Authorization"

    @property
    def listener(self) -> str:
        """The name of its Listener: ``grpc/<namespace>/<name>/<address>``."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{BY_NAME}{self.ref.namespace}/{self.ref.name}/{host}:{self.port}"


Authorization: TypeAlias = Open | Judged | Closed
