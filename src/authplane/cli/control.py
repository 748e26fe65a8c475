"""`authplane control`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import Annotated, Final, assert_never

import structlog

from authplane.cli.shared.cluster_control import ClusterControl, control_program
from authplane.cli.shared.cluster_options import ClusterChoice, LeaseNamespaceOption, Place, with_cluster
from authplane.cli.shared.listen_options import (
    LogFormatOption,
    LoosenAfterOption,
    MetricsHostOption,
    MetricsOption,
    MetricsPublicOption,
    StateDirOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    admin_settings,
    serving,
)
from authplane.cli.shared.parameters import Option
from authplane.controlplane.serving.runtime.ads import Clients
from authplane.controlplane.serving.runtime.ads_stream import STOPPING, Connected, Disconnected
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.controlplane.serving.runtime.control_socket import xds_address
from authplane.controlplane.serving.runtime.native_keys import OFTEN
from authplane.controlplane.serving.runtime.policy_server_probe import PolicyServerTried
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.core.problems import Severity
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.run_until_stopped import Program, Stop, first_of, run_program
from authplane.runtime.secret_files import warn_of_open_files
from authplane.runtime.servers.admin import CONTROL_ADDRESS, AdminSettings, admin_pages, serve_admin
from authplane.runtime.servers.grpc_lines import ENVIRONMENT, FailedHandshake, handshakes_reported
from authplane.runtime.servers.handshake_words import HANDSHAKE_FAILED, HandshakeWords, handshake_words
from authplane.runtime.servers.listen import parse_address
from authplane.runtime.servers.tls_files import TlsFiles
from authplane.sources.runtime.last_good_store import LastGood, default_state_dir
from authplane.sources.runtime.read_folder import LOOSEN_AFTER, Folder
from authplane.xds.server.node_identity import NodeName, NodeRules
from authplane.xds.server.stream_messages import Acked, Nacked

log = structlog.stdlib.get_logger()
_AGAIN: Final = 60.0
"""Seconds after which a failed handshake of the same client is logged again."""


@with_cluster
def control(
    folder: Place,
    address: Annotated[
        str,
        Option(
            help="Address to listen on: host:port, :port or unix:/path. Default: a socket that only this user can open."
        ),
    ] = "",
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    node_name: Annotated[
        NodeName, Option(help="Kind of name in the client certificate that must equal the node id.")
    ] = NodeName.SAN,
    envoy_node: Annotated[
        list[str] | None,
        Option(
            help=(
                "Name in an Envoy's client certificate; repeatable. The control plane treats clients with"
                " other names as gRPC servers and sends them no private keys. Default: it treats every"
                " client as an Envoy."
            )
        ),
    ] = None,
    poll: Annotated[
        bool,
        Option("--poll", help="Poll the folder for changes. Use this if the file system sends no change events."),
    ] = False,
    state_dir: StateDirOption = None,
    loosen_after: LoosenAfterOption = LOOSEN_AFTER,
    allow_private_issuers: Annotated[
        bool,
        Option(
            "--allow-private-issuers",
            help="Also fetch issuer keys from private networks. Use this for development only.",
        ),
    ] = False,
    lease_namespace: LeaseNamespaceOption = "",
    metrics_address: MetricsOption = str(CONTROL_ADDRESS),
    metrics_public: MetricsPublicOption = False,
    metrics_host: MetricsHostOption = None,
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Compile a folder of resources and serve the configuration to Envoy and gRPC servers over xDS.

    With --kubernetes, the control plane reads the resources of a cluster, and writes their status to the API server.
    Clients use ADS, with the state-of-the-world or the delta protocol. The configuration contains private keys. If
    other machines can reach the address, authplane requires all three TLS files, and each Envoy needs a client
    certificate that contains its node id as a name.

    Example: authplane control ./gateway

    Example: authplane control --kubernetes --namespaces shop,default

    Example: authplane bootstrap > envoy.json && envoy -c envoy.json
    """
    set_up_log(log_format)
    warn_of_open_files([tls_key_path])
    with serving():
        settings = ControlSettings(
            address=parse_address(address) if address else xds_address(),
            tls=TlsFiles.open(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
            clients=Clients(names=node_name, rules=NodeRules(envoys=frozenset(envoy_node or ()))),
            poll=poll,
            issuers=IssuerOptions(schedule=OFTEN, allow_private_networks=allow_private_issuers),
        )
        state = state_dir or default_state_dir()
        admin = admin_settings(metrics_address, metrics_host, public=metrics_public)
        if isinstance(folder, ClusterChoice):
            given = ClusterControl(
                choice=folder, state_dir=state, loosen_after=loosen_after, lease_namespace=lease_namespace
            )
            _run(control_program(given, settings, lambda plane: _serve_admin(plane, admin), tell))
        else:
            kept = LastGood(state, folder)
            serve_control(Folder(folder, loosen_after=loosen_after, last_good=kept), settings, admin)


def serve_control(folder: Folder, settings: ControlSettings, admin: AdminSettings | None) -> None:
    """Serve until the program is stopped."""

    async def program(stop: Stop) -> None:
        plane = Control(folder, tell)
        async with _serve_admin(plane, admin), plane.serve(settings) as bound:
            log.info("control plane listening", address=str(bound), folder=str(folder.root))
            await first_of(stop.asked, lambda: plane.follow(settings))

    _run(program)


def _run(program: Program) -> None:
    # The variables are ours, unless the user wants to see what gRPC writes.
    ours = all(os.environ.get(name) == value for name, value in ENVIRONMENT.items())
    with handshakes_reported(_Handshakes().tell) if ours else nullcontext():
        run_program(program)


@asynccontextmanager
async def _serve_admin(plane: Control, settings: AdminSettings | None) -> AsyncGenerator[None]:
    """Serve the admin pages while the block runs, from before the folder is read."""
    if settings is None:
        yield
        return
    pages = admin_pages(ControlMetrics(plane), {"xds": plane.obstacle})
    async with serve_admin(settings, pages):
        yield


class _Handshakes:
    """Logs failed handshakes; an Envoy tries again every few seconds, and the same failure is logged once a minute."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], float] = {}

    def tell(self, failed: FailedHandshake) -> None:
        """Log a failure."""
        words = handshake_words(failed.why) or HandshakeWords(failed.why, "Check the TLS files of the client.")
        key, now = (failed.peer.rpartition(":")[0], words.why), monotonic()
        self._logged = {each: when for each, when in self._logged.items() if now - when < _AGAIN}
        if key not in self._logged:
            self._logged[key] = now
            log.warning(HANDSHAKE_FAILED, peer=failed.peer or "unknown", why=words.why, fix=words.fix)


def tell(told: Told) -> None:
    """Log an event of the control plane."""
    match told:
        case Rebuilt(difference=difference, appeared=appeared, resolved=resolved, seconds=seconds, keys=keys):
            for held in told.held:
                log.warning(
                    "delayed a change that removes protection until its file stays unchanged",
                    file=held.file,
                    why=held.why,
                )
            for finding in appeared:
                level = log.error if finding.problem.severity is Severity.ERROR else log.warning
                level(
                    finding.problem.message,
                    place=str(finding.place),
                    resource=str(finding.ref or ""),
                    reason=finding.problem.reason,
                )
            changes = {key: _short(names) for key, names in difference.items()}
            event = "rebuilt configuration with issuer keys" if keys else "rebuilt configuration"
            gone = [f"{each.problem.reason} of {each.ref or each.place}" for each in resolved]
            named = {"resolved": _short(gone)} if gone else {}
            log.info(event, seconds=round(seconds, 3), problems_resolved=len(resolved), **named, **changes)
        case Connected(node=node, peer=peer):
            log.info("proxy connected", node=node, peer=peer)
        case Disconnected(node=node, peer=peer, reason=reason):
            ended = log.warning if reason and reason != STOPPING.reason else log.info
            ended("proxy disconnected", node=node, peer=peer, reason=reason)
        case PolicyServerTried(tried, remedy):
            _tell_tried(tried, remedy)
        case Acked(node=node, type_url=type_url, version=version):
            log.debug("proxy accepted configuration", node=node, type=type_url.name.lower(), version=version)
        case Nacked(node=node, type_url=type_url, version=version, names=names, message=message):
            log.error(
                "proxy rejected configuration",
                node=node,
                type=type_url.name.lower(),
                version=version,
                names=_short(list(names)),
                message=message,
            )
        case _:
            assert_never(told)


def _tell_tried(tried: Tried, remedy: str) -> None:
    match tried.trial:
        case Trial.ACCEPTED:
            log.info("policy server accepts connections", address=tried.address)
        case Trial.NOT_TRIED:
            log.info("did not probe the policy server", address=tried.address, why=tried.why)
        case Trial.UNREACHABLE | Trial.HANDSHAKE:
            log.error("cannot connect to the policy server", address=tried.address, why=tried.why, fix=remedy)
        case _:
            assert_never(tried.trial)


def _short(names: list[str]) -> list[str]:
    return names if len(names) <= 5 else [*names[:5], f"and {len(names) - 5} more"]
