"""`authplane run`."""

from pathlib import Path
from typing import Annotated, TypeAlias, assert_never

from rich.markup import escape

from authplane.authserver.backends.testserver import Mode
from authplane.authserver.records.decision_record import shown
from authplane.cli.shared.access_lines import access_line, json_record
from authplane.cli.shared.change_lines import changes_line
from authplane.cli.shared.console import out
from authplane.cli.shared.listen_options import LoosenAfterOption, MetricsOption, admin_settings, serving
from authplane.cli.shared.output import count, fail, print_finding
from authplane.cli.shared.parameters import Argument, Option
from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.port_model import PlainPort
from authplane.controlplane.serving.runtime.ads_stream import Connected, Disconnected
from authplane.controlplane.serving.runtime.control_plane import Rebuilt
from authplane.controlplane.serving.runtime.policy_server_probe import PolicyServerTried
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.devkit.local.dev_folder import DevFolderError
from authplane.devkit.local.local_stack import (
    NODE,
    Decided,
    Output,
    RunError,
    RunEvent,
    RunSettings,
    Started,
    run_gateway,
)
from authplane.devkit.local.quickstart import ISSUER_ADDRESS, TOOLS_ADDRESS, agent_program, agent_tries, tries
from authplane.devkit.local.workspace import Workspace, WorkspaceError, prepare_identities, prepare_workspace
from authplane.devkit.policies.checking import shadow_note
from authplane.policy.check.decision import Allow, Deny
from authplane.policy.check.request import Request
from authplane.policy.decide.denials import RpcDenial
from authplane.policy.verdicts.verdict import Verdict
from authplane.runtime.child_processes import Stream
from authplane.runtime.clock import now
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.run_until_stopped import Stop, run_program
from authplane.runtime.servers.listen import AddressInvalidError, TcpAddress, UnixAddress, parse_address
from authplane.runtime.wait_until_listening import NotReachableError
from authplane.sources.runtime.read_folder import LOOSEN_AFTER
from authplane.xds.server.stream_messages import Acked, Nacked

FolderArgument: TypeAlias = Annotated[
    Path | None,
    Argument(metavar="[DIR]", help="A folder of resources; without it, the quickstart."),
]
StateOption: TypeAlias = Annotated[Path, Option(help="Where certificates and the quickstart are kept.")]
ModeOption: TypeAlias = Annotated[Mode, Option(help="What the authorization server allows.")]
AuthserverOption: TypeAlias = Annotated[str, Option(help="Where the authorization server listens; empty runs none.")]
EchoOption: TypeAlias = Annotated[str, Option(help="Where the echo origin listens; empty runs none.")]
ToolsOption: TypeAlias = Annotated[str, Option(help="Where the MCP server of the quickstart listens; empty runs none.")]
IssuerOption: TypeAlias = Annotated[
    str, Option(help="Where the development issuer of the quickstart listens; empty runs none.")
]
PrivateOption: TypeAlias = Annotated[
    bool, Option("--allow-private-issuers", help="For development: fetch keys from private networks as well.")
]
DeltaOption: TypeAlias = Annotated[bool, Option("--delta", help="Let Envoy ask for changes only (delta xDS).")]
PollOption: TypeAlias = Annotated[bool, Option("--poll", help="Look for changes from time to time.")]


def run(
    folder: FolderArgument = None,
    state_dir: StateOption = Path(".authplane"),
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
    """Run everything on this machine: control plane, authorization servers, an echo origin and Envoy.

    Without a folder, the quickstart: also an MCP server with a few tools and an issuer of tokens.
    Edit a file of the folder while it runs: the change takes effect at once.

    Example: authplane run

    Example: authplane run ./gateway --echo-address ''
    """
    set_up_log(LogFormat.TEXT)
    with serving():
        try:
            workspace = prepare_workspace(state_dir, now())
            tools, issuer = (_optional(text) if folder is None else None for text in (tools_address, issuer_address))
            if issuer is not None:
                prepare_identities(workspace, issuer.host, now())
            settings = RunSettings(
                root=folder or workspace.quickstart,
                workspace=workspace,
                authserver=_optional(authserver_address),
                mode=mode,
                echo=_optional(echo_address),
                tools=tools,
                issuer=issuer,
                allow_private_issuers=allow_private_issuers,
                poll=poll,
                loosen_after=loosen_after,
                delta=delta,
                admin=admin_settings(metrics_address, None, public=False),
            )
            _run(settings, quickstart=folder is None)
        except (RunError, WorkspaceError, DevFolderError, NotReachableError) as error:
            fail(str(error))


def _optional(text: str) -> TcpAddress | None:
    address = parse_address(text) if text else None
    if isinstance(address, UnixAddress):
        raise AddressInvalidError(f"{text!r} is a socket; Envoy reaches the programs here by host:port")
    return address


def _run(settings: RunSettings, *, quickstart: bool) -> None:
    terminal = _Terminal(settings, quickstart=quickstart)

    async def program(stop: Stop) -> None:
        await run_gateway(settings, terminal.tell, stop)

    out.print(f"[bold]authplane[/]: starting with the resources in {escape(str(settings.root))}")
    run_program(program)
    out.print("stopped")


class _Terminal:
    """Writes what happens for the person in front of it."""

    def __init__(self, settings: RunSettings, *, quickstart: bool) -> None:
        self._settings = settings
        self._quickstart = quickstart
        self._started = False

    def tell(self, event: RunEvent) -> None:
        match event:
            case Rebuilt():
                self._rebuilt(event)
            case Started(graph):
                self._started = True
                self._welcome(graph)
            case Decided(request, verdict):
                out.print("\n".join(_decision_lines(request, verdict)))
            case Output(program, line):
                _output(program, line.stream, line.text)
            case Nacked(type_url=type_url, message=message):
                out.print(f"[red]Envoy refused the {type_url.name.lower()}s[/]: {escape(message)}")
            case Connected() | Disconnected():
                _print_proxy(event)
            case PolicyServerTried(tried, remedy):
                _print_tried(tried, remedy)
            case Acked():
                pass
            case _:
                assert_never(event)

    def _rebuilt(self, event: Rebuilt) -> None:
        for finding in event.appeared:
            print_finding(finding)
        if event.resolved:
            out.print(f"[green]{count(event.resolved, 'problem')} resolved[/]")
        for held in event.held:
            wait = f"takes effect when the file has been unchanged for {self._settings.loosen_after:g} s"
            out.print(f"[yellow]loosens[/] {escape(held.file)}: {escape(held.why)}; {wait}")
        if event.first or (event.held and not event.difference):
            return
        why = "keys of issuers" if event.keys else "reloaded"
        out.print(f"[cyan]{why}[/] in {event.seconds * 1000:.0f} ms: {escape(changes_line(event.difference))}")

    def _welcome(self, graph: Graph) -> None:
        settings = self._settings
        if graph.proxies:
            out.print(f"gateway        https port {graph.https.port}, http {graph.http.address}:{graph.http.port}")
        for port in graph.gateways:
            scheme = "http" if isinstance(port, PlainPort) else "https"
            out.print(f"gateway        {scheme}://{port.where.address}:{port.where.port}")
        if settings.authserver:
            out.print(f"authorization  {settings.authserver} (testserver, mode {settings.mode.value})")
        if settings.echo:
            out.print(f"echo origin    {settings.echo}")
        if settings.tools:
            out.print(f"MCP server     {settings.tools}")
        if settings.issuer:
            out.print(f"issuer         https://{settings.issuer}  [yellow](for development only)[/]")
        out.print(f"resources      {escape(str(settings.root))}  [dim](edit a file: it takes effect at once)[/]")
        if self._quickstart:
            _print_tries(settings.workspace, graph)
        out.print("[dim]Ctrl-C stops everything. Requests:[/]")


def _print_proxy(event: Connected | Disconnected) -> None:
    if event.node != NODE:
        verb = "connected" if isinstance(event, Connected) else "disconnected"
        out.print(f"proxy {escape(event.node)} {verb}")


def _print_tried(tried: Tried, remedy: str) -> None:
    if tried.trial in {Trial.UNREACHABLE, Trial.HANDSHAKE}:
        out.print(f"[red]cannot connect to the policy server[/] {escape(tried.address)}: {escape(tried.why)}")
        out.print(f"    Fix: {escape(remedy)}")


def _print_tries(workspace: Workspace, graph: Graph) -> None:
    for each in (*tries(workspace, graph), *agent_tries(workspace, graph)):
        out.print(f"\n  [bold]{escape(each.line)}[/]", soft_wrap=True)
        out.print(f"    [dim]→ {escape(each.answer)}[/]")
    program = agent_program(workspace, graph)
    if program:
        out.print("\n  The same with the MCP SDK, in Python:\n")
        for line in program.splitlines():
            out.print(f"    {escape(line)}", soft_wrap=True, highlight=False)
    out.print()


def _decision_lines(request: Request, verdict: Verdict) -> list[str]:
    """Say what policies decided and why, and what those in shadow would have done."""
    grounds = verdict.grounds
    word = {Allow: "[green]allow[/]", Deny: "[red]deny[/]", RpcDenial: "[red]deny[/]"}.get(
        type(verdict.decision), "[red]cannot tell about[/]"
    )
    what = shown(" ".join(part for part in (grounds.mcp_method, grounds.tool) if part) or request.method)
    who = f" by {escape(shown(grounds.identity))}" if grounds.identity else ""
    why = " ".join(part for part in (grounds.policy, grounds.rule, grounds.entry, grounds.reason) if part)
    time = f"[dim]{now():%H:%M:%S}[/]"
    shadows = (f"{time} policies {escape(shown(shadow_note(each)))}" for each in verdict.shadows)
    return [f"{time} policies {word} {escape(what)}{who} [dim]({escape(shown(why))})[/]", *shadows]


def _output(program: str, stream: Stream, text: str) -> None:
    if program == "envoy" and stream is Stream.STDOUT and (line := access_line(text)) is not None:
        out.print(line)
    elif program == "envoy" or (stream is Stream.STDERR and json_record(text).get("level") not in {"info", "debug"}):
        out.print(f"[dim]{program}: {escape(text)}[/]")
