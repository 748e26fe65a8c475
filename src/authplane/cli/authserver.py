"""`authplane authserver`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from authplane.app.authserver import DEFAULT_ENGINE, Engine, ServerPlan, serve_checks
from authplane.app.backends import (
    BranchPlan,
    DescriptionError,
    FilePlan,
    HtpasswdPlan,
    ServingPlan,
    TestServerPlan,
)
from authplane.app.policy_plan import PolicyPlan
from authplane.app.server_document import DocumentError, read_branches
from authplane.cli.listen import AddressOption, LogFormatOption, TlsCaOption, TlsCertOption, TlsKeyOption, serving
from authplane.cli.output import err, fail, finding_line, findings_summary
from authplane.io.admin import ADMIN_ADDRESS
from authplane.io.decision_log import LogUnusableError
from authplane.io.listen import TlsPaths, parse_address
from authplane.io.log import LogFormat, set_up_log
from authplane.io.traces import TracesUnusableError
from authplane.policy.http_check import Form, ForwardedHeaders, OriginalHeaders, SameRequest
from authplane.policy.testserver import Mode

authserver = typer.Typer(name="authserver", help="Answer the authorization checks of Envoy.", no_args_is_help=True)

_FORMS: dict[str, Form] = {
    "same": SameRequest(),
    "forwarded": ForwardedHeaders(),
    "original": OriginalHeaders(),
}

EngineOption: TypeAlias = Annotated[
    Engine, typer.Option(help="grpcio is one process and portable; pyvoy runs Python inside Envoy.")
]
WorkersOption: TypeAlias = Annotated[int, typer.Option(min=1, max=64, help="Processes that share the port (pyvoy).")]
InFlightOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="How many checks may wait at a time; the next is told at once that it cannot.")
]
HttpAddressOption: TypeAlias = Annotated[str, typer.Option(help="Where HTTP checks are answered; empty is nowhere.")]
HttpFormOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How HTTP checks are asked: same (Envoy), forwarded (Traefik: X-Forwarded-*), original (nginx: "
        "X-Original-*). The last two trust the proxy to replace what clients send."
    ),
]
DecisionLogOption: TypeAlias = Annotated[
    str, typer.Option(help="A file for a line per decision; - is standard output, empty is none.")
]
MetricsOption: TypeAlias = Annotated[
    str, typer.Option(help="Where /healthz, /readyz and /metrics are served, for all workers; empty is nowhere.")
]
MetricsPublicOption: TypeAlias = Annotated[
    bool, typer.Option("--metrics-public", help="Let other machines reach them, unauthenticated.")
]


@authserver.callback()
def _authserver() -> None: ...


@authserver.command("testserver")
def serve_test_backend(
    address: AddressOption = "127.0.0.1:9443",
    mode: Annotated[
        Mode, typer.Option(help="all authorizes every request; path only those whose path contains 'allow'.")
    ] = Mode.ALL,
    engine: EngineOption = DEFAULT_ENGINE,
    workers: WorkersOption = 1,
    in_flight: InFlightOption = 1000,
    http_address: HttpAddressOption = "",
    http_form: HttpFormOption = "same",
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    decision_log: DecisionLogOption = "-",
    metrics_address: MetricsOption = str(ADMIN_ADDRESS),
    metrics_public: MetricsPublicOption = False,
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Authorize for trying things out: every request, or by path.

    Example: authplane authserver testserver --address :9443 --mode path --tls-cert-path tls.crt --tls-key-path tls.key
    """
    _serve(
        (BranchPlan(name="testserver", backend=TestServerPlan(mode=mode.value)),),
        address=address,
        engine=engine,
        workers=workers,
        in_flight=in_flight,
        http=(http_address, http_form),
        tls=TlsPaths(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
        decision_log=decision_log,
        metrics=(metrics_address, metrics_public),
        log_format=log_format,
    )


@authserver.command("htpasswd")
def serve_htpasswd(
    address: AddressOption = "127.0.0.1:9443",
    file: Annotated[
        list[str] | None, typer.Option(help="[REALM=]PATH of a password file; may be given several times.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="A folder of resources whose annotated Secrets hold users.")
    ] = None,
    auth_realm: Annotated[str, typer.Option(help="The realm of routes whose context names none.")] = "default",
    selector: Annotated[str, typer.Option(help="A label selector for Secrets.")] = "",
    watch_namespaces: Annotated[str, typer.Option(help="Namespaces of Secrets, with commas; empty is all.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse weak password hashes.")] = False,
    forward_credentials: Annotated[
        bool, typer.Option("--forward-credentials", help="Leave the Authorization header for the origin.")
    ] = False,
    poll: Annotated[bool, typer.Option("--poll", help="Look for changes of the folder from time to time.")] = False,
    engine: EngineOption = DEFAULT_ENGINE,
    workers: WorkersOption = 1,
    in_flight: InFlightOption = 1000,
    http_address: HttpAddressOption = "",
    http_form: HttpFormOption = "same",
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    decision_log: DecisionLogOption = "-",
    metrics_address: MetricsOption = str(ADMIN_ADDRESS),
    metrics_public: MetricsPublicOption = False,
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Authorize users with a password (HTTP Basic), from htpasswd files or Secrets.

    Example: authplane authserver htpasswd --file users.htpasswd --auth-realm shop

    Example: authplane authserver htpasswd --folder ./gateway --selector team=shop --watch-namespaces shop,default
    """
    plan = HtpasswdPlan(
        realm=auth_realm,
        files=tuple(_file(text) for text in file or ()),
        folder=str(folder) if folder else "",
        selector=selector,
        namespaces=tuple(name.strip() for name in watch_namespaces.split(",") if name.strip()),
        strict=strict,
        forward_credentials=forward_credentials,
        poll=poll,
    )
    _serve(
        (BranchPlan(name="htpasswd", backend=plan),),
        address=address,
        engine=engine,
        workers=workers,
        in_flight=in_flight,
        http=(http_address, http_form),
        tls=TlsPaths(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
        decision_log=decision_log,
        metrics=(metrics_address, metrics_public),
        log_format=log_format,
    )


@authserver.command("policy")
def serve_policies(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of resources with AccessPolicies.", show_default=False)
    ],
    address: AddressOption = "127.0.0.1:9443",
    allow_private_issuers: Annotated[
        bool,
        typer.Option("--allow-private-issuers", help="For development: fetch keys from private networks as well."),
    ] = False,
    target: Annotated[
        str, typer.Option(help="Backend/NAMESPACE/NAME that checks are about whose route names none, as over HTTP.")
    ] = "",
    gateway: Annotated[
        str, typer.Option(help="Gateway/NAMESPACE/NAME, or with /LISTENER, that they come through.")
    ] = "",
    poll: Annotated[bool, typer.Option("--poll", help="Look for changes of the folder from time to time.")] = False,
    engine: EngineOption = DEFAULT_ENGINE,
    workers: WorkersOption = 1,
    in_flight: InFlightOption = 1000,
    http_address: HttpAddressOption = "",
    http_form: HttpFormOption = "same",
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    decision_log: DecisionLogOption = "-",
    metrics_address: MetricsOption = str(ADMIN_ADDRESS),
    metrics_public: MetricsPublicOption = False,
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Authorize by the AccessPolicies of a folder, which is watched: a change holds from the next request on.

    Example: authplane authserver policy ./gateway --address unix:/run/authplane/policy.sock --workers 2
    """
    plan = PolicyPlan(
        folder=str(folder), allow_private_issuers=allow_private_issuers, target=target, gateway=gateway, poll=poll
    )
    _serve(
        (BranchPlan(name="policy", backend=plan),),
        address=address,
        engine=engine,
        workers=workers,
        in_flight=in_flight,
        http=(http_address, http_form),
        tls=TlsPaths(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
        decision_log=decision_log,
        metrics=(metrics_address, metrics_public),
        log_format=log_format,
    )


@authserver.command("serve")
def serve_document(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A file with one AuthorizationServer.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    address: AddressOption = "127.0.0.1:9443",
    poll: Annotated[bool, typer.Option("--poll", help="Look for changes of folders from time to time.")] = False,
    engine: EngineOption = DEFAULT_ENGINE,
    workers: WorkersOption = 1,
    in_flight: InFlightOption = 1000,
    http_address: HttpAddressOption = "",
    http_form: HttpFormOption = "same",
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    decision_log: DecisionLogOption = "-",
    metrics_address: MetricsOption = str(ADMIN_ADDRESS),
    metrics_public: MetricsPublicOption = False,
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Authorize with several backends, chosen by the route's context, by host or by path.

    Example: authplane authserver serve authserver.yaml --workers 2
    """
    with serving():
        try:
            branches = read_branches(file, poll=poll)
        except DocumentError as error:
            for finding in error.findings:
                err.print(finding_line(finding))
            fail(f"{file} cannot be served: {findings_summary(error.findings)}")
    _serve(
        branches,
        address=address,
        engine=engine,
        workers=workers,
        in_flight=in_flight,
        http=(http_address, http_form),
        tls=TlsPaths(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
        decision_log=decision_log,
        metrics=(metrics_address, metrics_public),
        log_format=log_format,
    )


def _file(text: str) -> FilePlan:
    realm, equals, path = text.partition("=")
    return FilePlan(path=path, realm=realm) if equals else FilePlan(path=text)


def _serve(
    branches: tuple[BranchPlan, ...],
    *,
    address: str,
    engine: Engine,
    workers: int,
    in_flight: int,
    http: tuple[str, str],
    tls: TlsPaths,
    decision_log: str,
    metrics: tuple[str, bool],
    log_format: LogFormat,
) -> None:
    set_up_log(log_format)
    http_address, form = http
    admin, public = metrics
    if form not in _FORMS:
        fail(f"{form!r} is not one of {', '.join(_FORMS)}", status=2)
    with serving():
        try:
            serve_checks(
                ServerPlan(
                    serving=ServingPlan(branches=branches, decision_log=decision_log),
                    address=parse_address(address),
                    tls=tls,
                    engine=engine,
                    workers=workers,
                    in_flight=in_flight,
                    http=(parse_address(http_address), _FORMS[form]) if http_address else None,
                    admin=parse_address(admin) if admin else None,
                    admin_public=public,
                    log_format=log_format,
                )
            )
        except DescriptionError as error:
            fail(str(error), status=2)
        except (LogUnusableError, TracesUnusableError) as error:
            fail(str(error))
