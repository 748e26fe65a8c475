"""Options that all authorization services share."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from authplane.authserver.engine.http_check import Form, ForwardedHeaders, OriginalHeaders, SameRequest
from authplane.authserver.plan.server_plan import BranchPlan, Engine, FrontPlan, ServerPlan
from authplane.authserver.records.runtime.decision_log import LogUnusableError
from authplane.authserver.records.runtime.traces import TracesUnusableError
from authplane.authserver.runtime.server import DEFAULT_ENGINE, serve_checks
from authplane.authserver.runtime.server_backends import PlanError
from authplane.cli.shared.listen_options import (
    AddressOption,
    LogFormatOption,
    MetricsHostOption,
    MetricsOption,
    MetricsPublicOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    admin_settings,
    serving,
)
from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Option
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.servers.admin import ADMIN_ADDRESS
from authplane.runtime.servers.listen import TlsPaths, parse_address

_FORMS: dict[str, Form] = {
    "same": SameRequest(),
    "forwarded": ForwardedHeaders(),
    "original": OriginalHeaders(),
}

PublicOption: TypeAlias = Annotated[
    bool,
    Option(
        "--public",
        help="Accept checks from other machines without client certificates. The policy server refuses this option.",
    ),
]
EngineOption: TypeAlias = Annotated[
    Engine, Option(help="Server engine: grpcio (one process, portable) or pyvoy (Python inside Envoy).")
]
WorkersOption: TypeAlias = Annotated[
    int, Option(min=1, max=64, help="Number of processes that share the port (pyvoy only).")
]
InFlightOption: TypeAlias = Annotated[
    int, Option(min=1, help="Maximum number of pending checks; further checks are rejected immediately.")
]
HttpAddressOption: TypeAlias = Annotated[
    str, Option(help="Address for HTTP checks. If empty, the server accepts no HTTP checks.")
]
HttpFormOption: TypeAlias = Annotated[
    str,
    Option(
        help="Form of HTTP checks: same (Envoy), forwarded (Traefik: X-Forwarded-*), original (nginx: "
        "X-Original-*). With forwarded and original, the proxy must overwrite these headers in client requests."
    ),
]
DecisionLogOption: TypeAlias = Annotated[
    str, Option(help="File for the decision log, one line per decision. Use - for standard output, or '' for no log.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The addresses, TLS files and logs of an authorization service."""

    address: AddressOption = "127.0.0.1:9443"
    public: PublicOption = False
    engine: EngineOption = DEFAULT_ENGINE
    workers: WorkersOption = 1
    in_flight: InFlightOption = 1000
    http_address: HttpAddressOption = ""
    http_form: HttpFormOption = "same"
    tls_cert_path: TlsCertOption = ""
    tls_key_path: TlsKeyOption = ""
    tls_ca_path: TlsCaOption = ""
    decision_log: DecisionLogOption = "-"
    metrics_address: MetricsOption = str(ADMIN_ADDRESS)
    metrics_public: MetricsPublicOption = False
    metrics_host: MetricsHostOption = None
    log_format: LogFormatOption = LogFormat.AUTO

    def serve(self, *branches: BranchPlan) -> None:
        """Serve until the program is stopped; exit with an error if an option is invalid."""
        set_up_log(self.log_format)
        if self.http_form not in _FORMS:
            fail(f"{self.http_form!r} is not a form of HTTP checks. Supported: {', '.join(_FORMS)}.", status=2)
        with serving():
            try:
                serve_checks(self.plan(*branches))
            except PlanError as error:
                fail(str(error), status=2)
            except (LogUnusableError, TracesUnusableError) as error:
                fail(str(error))

    def plan(self, *branches: BranchPlan) -> ServerPlan:
        """Return the plan of these options and backends; raises a `ListenError` for an invalid address."""
        return ServerPlan(
            branches=branches,
            fronts=tuple(self._fronts()),
            engine=self.engine,
            public=self.public,
            admin=admin_settings(self.metrics_address, self.metrics_host, public=self.metrics_public),
            decision_log=self.decision_log,
            log_format=self.log_format,
        )

    def _fronts(self) -> Iterator[FrontPlan]:
        tls = TlsPaths(certificate=self.tls_cert_path, key=self.tls_key_path, ca=self.tls_ca_path)
        address = parse_address(self.address)
        yield FrontPlan(address=address, tls=tls, workers=self.workers, in_flight=self.in_flight)
        if self.http_address:
            address, form = parse_address(self.http_address), _FORMS[self.http_form]
            yield FrontPlan(address=address, form=form, tls=tls, in_flight=self.in_flight)


def with_front(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `Front` to a command, which receives them as ``front``."""
    own = inspect.signature(command, eval_str=True)
    common = inspect.signature(Front, eval_str=True).parameters
    parameters = [*(each for each in own.parameters.values() if each.name != "front"), *common.values()]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        front = Front(**{name: given.pop(name) for name in common})
        command(**given, front=front)

    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__dict__["__signature__"] = own.replace(parameters=[each.replace(kind=keyword) for each in parameters])
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
