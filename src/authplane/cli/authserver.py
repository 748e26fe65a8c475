"""`authplane authserver`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import click

from authplane.authserver.backends.testserver import Mode
from authplane.authserver.plan.server_plan import (
    BranchPlan,
    ClusterPlan,
    FilePlan,
    HtpasswdPlan,
    PolicyPlan,
    TestServerPlan,
)
from authplane.authserver.runtime.server_document import DocumentError, read_document
from authplane.cli.shared.cluster_options import ClusterChoice, Place, with_cluster
from authplane.cli.shared.front_options import Front, with_front
from authplane.cli.shared.listen_options import LoosenAfterOption, StateDirOption, serving
from authplane.cli.shared.output import fail, findings_summary, print_finding
from authplane.cli.shared.parameters import Argument, Option, command, group
from authplane.sources.runtime.last_good_store import default_state_dir
from authplane.sources.runtime.read_folder import LOOSEN_AFTER

authserver = group(
    "authserver",
    "Run an authorization service for Envoy (ext_authz).\n\nExample: authplane authserver policy ./gateway",
)

PollOption: TypeAlias = Annotated[
    bool, Option("--poll", help="Poll folders for changes. Use this if the file system sends no change events.")
]


@command(authserver, "testserver")
@with_front
def serve_test_backend(
    mode: Annotated[
        Mode, Option(help="Requests to allow: every request (all), or requests whose path contains 'allow' (path).")
    ] = Mode.ALL,
    *,
    front: Front,
) -> None:
    """Allow every request, or only requests with certain paths, for tests.

    Example: authplane authserver testserver --mode path

    Example: authplane authserver testserver --address :9443 --tls-cert-path tls.crt --tls-key-path tls.key
    --tls-ca-path ca.crt
    """
    front.serve(BranchPlan(name="testserver", backend=TestServerPlan(mode=mode.value)))


@command(authserver, "htpasswd")
@with_front
def serve_htpasswd(
    file: Annotated[list[str] | None, Option(help="Password file, as PATH or REALM=PATH; repeatable.")] = None,
    folder: Annotated[
        Path | None,
        Option(help="Folder of resources. The server reads users from the annotated Secrets in this folder."),
    ] = None,
    auth_realm: Annotated[str, Option(help="Realm for routes whose context does not set a realm.")] = "default",
    selector: Annotated[str, Option(help="Label selector for Secrets.")] = "",
    watch_namespaces: Annotated[
        str, Option(help="Comma-separated namespaces to read Secrets from. If empty, the server reads all namespaces.")
    ] = "",
    strict: Annotated[bool, Option("--strict", help="Reject weak password hashes.")] = False,
    forward_credentials: Annotated[
        bool, Option("--forward-credentials", help="Forward the Authorization header to the origin.")
    ] = False,
    trusted_hops: Annotated[
        int,
        Option(
            min=0,
            max=100,
            help=(
                "Number of trusted proxies in front of Envoy. The server uses it to find the client address,"
                " and counts failed attempts for each address."
            ),
        ),
    ] = 0,
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    *,
    front: Front,
) -> None:
    """Authenticate users by password (HTTP Basic) from htpasswd files or Secrets.

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
        trusted_hops=trusted_hops,
        poll=poll,
        state_dir=str((state_dir or default_state_dir()).absolute()),
    )
    front.serve(BranchPlan(name="htpasswd", backend=plan))


@command(authserver, "policy")
@with_front
@with_cluster
def serve_policies(
    folder: Place,
    allow_private_issuers: Annotated[
        bool,
        Option(
            "--allow-private-issuers",
            help="Also fetch issuer keys from private networks. Use this for development only.",
        ),
    ] = False,
    target: Annotated[
        str, Option(help="Target for checks that do not name one, such as HTTP checks. Format: Backend/NAMESPACE/NAME.")
    ] = "",
    gateway: Annotated[
        str,
        Option(
            help=(
                "Gateway for checks that do not name a target. Format: Gateway/NAMESPACE/NAME or"
                " Gateway/NAMESPACE/NAME/LISTENER."
            )
        ),
    ] = "",
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    loosen_after: LoosenAfterOption = LOOSEN_AFTER,
    *,
    front: Front,
) -> None:
    """Decide checks by the AccessPolicies of a folder or a cluster.

    The policy server watches the folder and applies a change from the next check on. With --kubernetes, it watches the
    API server, which also reviews tokens of ServiceAccounts.

    Example: authplane authserver policy ./gateway --address unix:/run/authplane/policy.sock --workers 2

    Example: authplane authserver policy --kubernetes --address :9443 --tls-cert-path tls.crt --tls-key-path tls.key
    --tls-ca-path ca.crt
    """
    plan = PolicyPlan(
        folder="" if isinstance(folder, ClusterChoice) else str(folder),
        cluster=_cluster(folder) if isinstance(folder, ClusterChoice) else None,
        allow_private_issuers=allow_private_issuers,
        target=target,
        gateway=gateway,
        poll=poll,
        state_dir=str((state_dir or default_state_dir()).absolute()),
        loosen_after=loosen_after,
    )
    front.serve(BranchPlan(name="policy", backend=plan))


def _cluster(choice: ClusterChoice) -> ClusterPlan:
    if choice.selector:
        fail("A selector never applies to policies. Remove --selector.", status=2)
    kubeconfig = str(choice.kubeconfig.absolute()) if choice.kubeconfig is not None else ""
    return ClusterPlan(kubeconfig=kubeconfig, context=choice.context, namespaces=choice.namespaces)


@command(authserver, "serve")
@with_front
def serve_document(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="File with one AuthorizationService resource.", existing_file=True),
    ],
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    *,
    front: Front,
) -> None:
    """Run several backends, and select one for each check by context, host or path.

    Example: authplane authserver serve authserver.yaml --workers 2
    """
    with serving():
        try:
            document = read_document(file, poll=poll, state_dir=(state_dir or default_state_dir()).absolute())
        except DocumentError as error:
            for finding in error.findings:
                print_finding(finding, to_stderr=True)
            fail(f"Cannot serve {file}, because it has {findings_summary(error.findings)}. Fix the errors above.")
    for warning in document.warnings:
        print_finding(warning, to_stderr=True)
    front.serve(*document.branches)


def _file(text: str) -> FilePlan:
    realm, equals, path = text.partition("=")
    return FilePlan(path=path, realm=realm) if equals else FilePlan(path=text)


def _refuse_config(context: click.Context, _parameter: click.Parameter, given: str | None) -> None:
    """Explain an option that the flags of a contour-authserver may have."""
    if given is not None:
        message = "--config is an option of contour-authserver oidc, which authplane does not replace. Remove it."
        raise click.UsageError(message, context)


for _command in (authserver.commands["htpasswd"], authserver.commands["testserver"]):
    _command.params.append(
        click.Option(
            ["--config"],
            hidden=True,
            expose_value=False,
            callback=_refuse_config,
            help="Option of contour-authserver oidc.",
        )
    )
