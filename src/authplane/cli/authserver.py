"""`authplane authserver`."""

from pathlib import Path
from typing import Annotated, TypeAlias

from authplane.authserver.backends.testserver import Mode
from authplane.authserver.plan.server_plan import BranchPlan, FilePlan, HtpasswdPlan, PolicyPlan, TestServerPlan
from authplane.authserver.runtime.server_document import DocumentError, read_branches
from authplane.cli.shared.front_options import Front, with_front
from authplane.cli.shared.listen_options import LoosenAfterOption, StateDirOption, serving
from authplane.cli.shared.output import fail, findings_summary, print_finding
from authplane.cli.shared.parameters import Argument, Option, command, group
from authplane.sources.runtime.last_good_store import default_state_dir
from authplane.sources.runtime.read_folder import LOOSEN_AFTER

authserver = group("authserver", "Answer the authorization checks of Envoy.")

PollOption: TypeAlias = Annotated[
    bool, Option("--poll", help="Look for changes of folders from time to time, where the system tells of none.")
]


@command(authserver, "testserver")
@with_front
def serve_test_backend(
    mode: Annotated[
        Mode, Option(help="all authorizes every request; path only those whose path contains 'allow'.")
    ] = Mode.ALL,
    *,
    front: Front,
) -> None:
    """Authorize for trying things out: every request, or by path.

    Example: authplane authserver testserver --mode path

    Example: authplane authserver testserver --address :9443 --tls-cert-path tls.crt --tls-key-path tls.key
    --tls-ca-path ca.crt
    """
    front.serve(BranchPlan(name="testserver", backend=TestServerPlan(mode=mode.value)))


@command(authserver, "htpasswd")
@with_front
def serve_htpasswd(
    file: Annotated[
        list[str] | None, Option(help="[REALM=]PATH of a password file; may be given several times.")
    ] = None,
    folder: Annotated[Path | None, Option(help="A folder of resources whose annotated Secrets hold users.")] = None,
    auth_realm: Annotated[str, Option(help="The realm of routes whose context names none.")] = "default",
    selector: Annotated[str, Option(help="A label selector for Secrets.")] = "",
    watch_namespaces: Annotated[str, Option(help="Namespaces of Secrets, with commas; empty is all.")] = "",
    strict: Annotated[bool, Option("--strict", help="Refuse weak password hashes.")] = False,
    forward_credentials: Annotated[
        bool, Option("--forward-credentials", help="Leave the Authorization header for the origin.")
    ] = False,
    trusted_hops: Annotated[
        int, Option(min=0, max=100, help="Number of proxies before Envoy; attempts are counted per client.")
    ] = 0,
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    *,
    front: Front,
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
        trusted_hops=trusted_hops,
        poll=poll,
        state_dir=str((state_dir or default_state_dir()).absolute()),
    )
    front.serve(BranchPlan(name="htpasswd", backend=plan))


@command(authserver, "policy")
@with_front
def serve_policies(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder of resources with AccessPolicies.")],
    allow_private_issuers: Annotated[
        bool,
        Option("--allow-private-issuers", help="For development: fetch keys from private networks as well."),
    ] = False,
    target: Annotated[
        str, Option(help="Backend/NAMESPACE/NAME that checks are about whose route names none, as over HTTP.")
    ] = "",
    gateway: Annotated[str, Option(help="Gateway/NAMESPACE/NAME, or with /LISTENER, that they come through.")] = "",
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    loosen_after: LoosenAfterOption = LOOSEN_AFTER,
    *,
    front: Front,
) -> None:
    """Authorize by the AccessPolicies of a folder, which is watched: a change holds from the next request on.

    Example: authplane authserver policy ./gateway --address unix:/run/authplane/policy.sock --workers 2
    """
    plan = PolicyPlan(
        folder=str(folder),
        allow_private_issuers=allow_private_issuers,
        target=target,
        gateway=gateway,
        poll=poll,
        state_dir=str((state_dir or default_state_dir()).absolute()),
        loosen_after=loosen_after,
    )
    front.serve(BranchPlan(name="policy", backend=plan))


@command(authserver, "serve")
@with_front
def serve_document(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="A file with one AuthorizationServer.", existing_file=True),
    ],
    poll: PollOption = False,
    state_dir: StateDirOption = None,
    *,
    front: Front,
) -> None:
    """Authorize with several backends, chosen by the route's context, by host or by path.

    Example: authplane authserver serve authserver.yaml --workers 2
    """
    with serving():
        try:
            branches = read_branches(file, poll=poll, state_dir=(state_dir or default_state_dir()).absolute())
        except DocumentError as error:
            for finding in error.findings:
                print_finding(finding, to_stderr=True)
            fail(f"{file} cannot be served: {findings_summary(error.findings)}")
    front.serve(*branches)


def _file(text: str) -> FilePlan:
    realm, equals, path = text.partition("=")
    return FilePlan(path=path, realm=realm) if equals else FilePlan(path=text)
