"""The plan of an authorization service: one value, made once, that every process of the server reads."""

from enum import StrEnum
from typing import TypeAlias

from authplane.authserver.engine.backend_choice import Condition
from authplane.authserver.engine.http_check import Form
from authplane.core.values import dataclass
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.admin import AdminSettings
from authplane.runtime.servers.listen import Address, TlsPaths


class Engine(StrEnum):
    """What carries the server."""

    GRPCIO = "grpcio"
    """One process; runs wherever grpcio does."""
    PYVOY = "pyvoy"
    """Python inside Envoy, in as many processes as wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestServerPlan:
    """The test backend."""

    mode: str = "all"
    """What it allows, as `Mode` of the backend spells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """A password file; without a realm its users are in every realm."""

    path: str
    realm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpasswdPlan:
    """Users in password files, and in the Secrets of a folder."""

    realm: str = "default"
    files: tuple[FilePlan, ...] = ()
    folder: str = ""
    selector: str = ""
    namespaces: tuple[str, ...] = ()
    strict: bool = False
    forward_credentials: bool = False
    trusted_hops: int = 0
    poll: bool = False
    state_dir: str = ""
    """Where last good versions of the folder's files are kept; empty is nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A cluster, and which part of it is read."""

    kubeconfig: str = ""
    context: str = ""
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlan:
    """AccessPolicies in a folder or a cluster."""

    folder: str = ""
    cluster: ClusterPlan | None = None
    allow_private_issuers: bool = False
    target: str = ""
    """What checks are about whose route does not say it: ``Backend/<namespace>/<name>``."""
    gateway: str = ""
    """Through which Gateway they come: ``Gateway/<namespace>/<name>[/<listener>]``."""
    poll: bool = False
    state_dir: str = ""
    """Where last good versions are kept; empty is nowhere."""
    loosen_after: float = 2.0
    """Seconds that a file must be unchanged before a change that loosens takes effect."""


BackendPlan: TypeAlias = TestServerPlan | HtpasswdPlan | PolicyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """A backend, its name, and the conditions under which it decides."""

    name: str
    when: tuple[Condition, ...] = ()
    backend: BackendPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """What callers may cost one process of a front; grpcio knows the first only."""

    connections: int = 10_000
    """More at a time are closed at once."""
    streams: int = 1000
    """Calls at a time on one connection."""
    calls: int | None = None
    """Calls on one connection, after which its client opens another; None does not count them."""
    head_kib: int = 64
    """The size of all headers of a call."""
    headers: int = 200
    patience: float = 10.0
    """Seconds in which a whole call must arrive."""
    idle: float = 60.0
    """Seconds after which a call in which nothing happens is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPlan:
    """An address where checks are answered, and how."""

    address: Address
    form: Form | None = None
    """The form of HTTP checks; without it the front serves gRPC."""
    tls: TlsPaths = TlsPaths()
    workers: int = 1
    """Processes that share the port; a unix socket has one, and so has grpcio."""
    largest_message: int = 4 * 1024 * 1024
    """In bytes; a call with a larger message fails, and so it is not allowed."""
    in_flight: int = 1000
    """Maximum number of checks, in each process, that wait for something; further ones are rejected immediately."""
    grace: float = 2.0
    """Seconds that checks in progress have when the server stops."""
    limits: FrontLimits = FrontLimits()

    @property
    def protocol(self) -> str:
        """What logs and metrics call the front."""
        return "grpc" if self.form is None else "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What is served, where and how."""

    branches: tuple[BranchPlan, ...]
    """The backends; the first that matches a request decides it."""
    fronts: tuple[FrontPlan, ...]
    """At most one of each protocol."""
    engine: Engine = Engine.GRPCIO
    public: bool = False
    """Other machines may send checks without a client certificate, unless policies trust what they report."""
    admin: AdminSettings | None = None
    """Where health, readiness and metrics are served."""
    decision_log: str = "-"
    """A file; ``-`` is standard output, empty is none."""
    log_format: LogFormat = LogFormat.AUTO
