"""`authplane run`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import click
from rich.markup import escape

from authplane.authserver.backends.testserver import Mode
from authplane.cli.shared.console import out
from authplane.cli.shared.listen_options import LoosenAfterOption, MetricsOption, admin_settings, serving
from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Argument, Option
from authplane.cli.shared.run_terminal import RunTerminal
from authplane.devkit.local.dev_folder import DevFolderError
from authplane.devkit.local.local_stack import RunError, RunSettings, run_gateway
from authplane.devkit.local.needed_parts import Part
from authplane.devkit.local.quickstart import ISSUER_ADDRESS, TOOLS_ADDRESS
from authplane.devkit.local.workspace import WorkspaceError, prepare_identities, prepare_workspace, reset_quickstart
from authplane.runtime.clock import now
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.run_until_stopped import Stop, first_of, run_program
from authplane.runtime.servers.listen import AddressInvalidError, TcpAddress, UnixAddress, parse_address
from authplane.runtime.wait_until_listening import NotReachableError
from authplane.sources.runtime.read_folder import LOOSEN_AFTER

FolderArgument: TypeAlias = Annotated[
    Path | None,
    Argument(metavar="[DIR]", help="Folder of resources. Without it, authplane runs the quickstart."),
]
StateOption: TypeAlias = Annotated[Path, Option(help="Folder for certificates and the quickstart.")]
ResetOption: TypeAlias = Annotated[
    bool,
    Option("--reset", help="Create the quickstart again. authplane moves files that you changed to a backup folder."),
]
ModeOption: TypeAlias = Annotated[
    Mode,
    Option(
        help="Requests that the authorization service allows: every request (all), or requests whose path contains"
        ' "allow" (path).'
    ),
]
AuthserverOption: TypeAlias = Annotated[
    str, Option(help="Address of the authorization service. If empty, authplane does not start it.")
]
EchoOption: TypeAlias = Annotated[
    str, Option(help="Address of the echo origin. If empty, authplane does not start it.")
]
ToolsOption: TypeAlias = Annotated[
    str, Option(help="Address of the sample MCP server. If empty, authplane does not start it.")
]
IssuerOption: TypeAlias = Annotated[
    str, Option(help="Address of the development issuer. If empty, authplane does not start it.")
]
PrivateOption: TypeAlias = Annotated[
    bool,
    Option(
        "--allow-private-issuers", help="Also fetch issuer keys from private networks. Use this for development only."
    ),
]
DeltaOption: TypeAlias = Annotated[bool, Option("--delta", help="Use delta xDS between Envoy and the control plane.")]
PollOption: TypeAlias = Annotated[
    bool, Option("--poll", help="Poll files for changes. Use this if the file system sends no change events.")
]


def run(
    folder: FolderArgument = None,
    state_dir: StateOption = Path(".authplane"),
    reset: ResetOption = False,
    mode: ModeOption = Mode.PATH,
    authserver_address: AuthserverOption = "127.0.0.1:9443",
    echo_address: EchoOption = "127.0.0.1:9080",
    tools_address: ToolsOption = str(TOOLS_ADDRESS),
    issuer_address: IssuerOption = str(ISSUER_ADDRESS),
    allow_private_issuers: PrivateOption = False,
    delta: DeltaOption = False,
    poll: PollOption = False,
    loosen_after: LoosenAfterOption = LOOSEN_AFTER,
    metrics_address: MetricsOption = "",
) -> None:
    """Run a gateway on this machine: control plane, policy server and Envoy.

    authplane also starts each of these programs if the resources use its address: authorization service, echo origin,
    sample MCP server and development issuer. When you save a file, authplane applies the change at once; it applies a
    change that removes protection after --loosen-after.

    Example: authplane run

    Example: authplane run ./gateway --echo-address ''
    """
    set_up_log(LogFormat.TEXT)
    if reset and folder is not None:
        raise click.UsageError("--reset applies to the quickstart only. Remove --reset, or omit the folder argument.")
    texts = {
        Part.TOOLS: tools_address,
        Part.AUTHSERVER: authserver_address,
        Part.ECHO: echo_address,
        Part.ISSUER: issuer_address,
    }
    with serving():
        try:
            offered = {part: _parse(text, part) for part, text in texts.items() if text}
            if reset:
                _reset(state_dir)
            workspace = prepare_workspace(state_dir, now())
            if folder is None and Part.ISSUER in offered:
                prepare_identities(workspace, offered[Part.ISSUER].host, now())
            settings = RunSettings(
                root=folder or workspace.quickstart,
                workspace=workspace,
                quickstart=folder is None,
                offered=offered,
                mode=mode,
                allow_private_issuers=allow_private_issuers,
                poll=poll,
                loosen_after=loosen_after,
                delta=delta,
                admin=admin_settings(metrics_address, None, public=False),
            )
            _run(settings)
        except (RunError, WorkspaceError, DevFolderError, NotReachableError) as error:
            fail(str(error))


def _parse(text: str, part: Part) -> TcpAddress:
    address = parse_address(text)
    if isinstance(address, UnixAddress):
        raise AddressInvalidError(f"{text!r} is a unix socket. Set {part.option} to host:port.")
    return address


def _reset(state_dir: Path) -> None:
    backup = reset_quickstart(state_dir, now())
    if backup is not None:
        out.print(f"moved your changed files to {escape(str(backup))}")


def _run(settings: RunSettings) -> None:
    terminal = RunTerminal(settings)

    async def program(stop: Stop) -> None:
        await first_of(lambda: run_gateway(settings, terminal.tell, stop), terminal.show_open_requests)

    out.print(f"[bold]authplane[/]: starting with the resources in {escape(str(settings.root))}")
    run_program(program)
    out.print("stopped")
