"""`authplane run`."""

import json
from pathlib import Path
from typing import Annotated, Any, assert_never

import typer
from rich.markup import escape

from authplane.app.control import Rebuilt
from authplane.app.run import NODE, Output, RunError, RunEvent, RunSettings, Started, run_gateway
from authplane.cli.listen import serving
from authplane.cli.output import count, fail, finding_line, out
from authplane.graph.model import Graph, PlainPort
from authplane.io.ads_stream import Connected, Disconnected
from authplane.io.clock import now
from authplane.io.listen import AddressInvalidError, TcpAddress, UnixAddress, parse_address
from authplane.io.log import LogFormat, set_up_log
from authplane.io.process import Stream
from authplane.io.ready import NotReachableError
from authplane.io.serve import Stop, run_program
from authplane.io.workspace import Workspace, WorkspaceError, prepare_workspace
from authplane.policy.testserver import Mode
from authplane.xds.messages import Acked, Nacked

_WORDS = {
    "enforced": "[green]allowed[/] by the authorization server",
    "disabled": "[yellow]not checked[/]: authorization is disabled on this route",
    "fails-open": "[yellow]allowed[/] by the authorization server, or by failOpen if it did not answer",
    "unprotected": "[yellow]unprotected[/]",
}
"""What held for a request that was let through, by what the access log says of its route."""


def run(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A folder of resources; without it, the quickstart.", show_default=False),
    ] = None,
    state_dir: Annotated[Path, typer.Option(help="Where certificates and the quickstart are kept.")] = Path(
        ".authplane"
    ),
    mode: Annotated[Mode, typer.Option(help="What the authorization server allows.")] = Mode.PATH,
    authserver_address: Annotated[
        str, typer.Option(help="Where the authorization server listens; empty runs none.")
    ] = "127.0.0.1:9443",
    echo_address: Annotated[
        str, typer.Option(help="Where the echo origin listens; empty runs none.")
    ] = "127.0.0.1:9080",
    delta: Annotated[bool, typer.Option("--delta", help="Let Envoy ask for changes only (delta xDS).")] = False,
    poll: Annotated[bool, typer.Option("--poll", help="Look for changes from time to time.")] = False,
) -> None:
    """Run everything on this machine: control plane, authorization server, an echo origin and Envoy.

    Edit a file of the folder while it runs: the change takes effect at once.

    Example: authplane run

    Example: authplane run ./gateway --echo-address ''
    """
    set_up_log(LogFormat.TEXT)
    with serving():
        try:
            workspace = prepare_workspace(state_dir, now())
            settings = RunSettings(
                root=folder or workspace.quickstart,
                workspace=workspace,
                authserver=_optional(authserver_address),
                mode=mode,
                echo=_optional(echo_address),
                poll=poll,
                delta=delta,
            )
            _run(settings, quickstart=folder is None)
        except (RunError, WorkspaceError, NotReachableError) as error:
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
            case Output(program, line):
                _output(program, line.stream, line.text)
            case Nacked(type_url=type_url, message=message):
                out.print(f"[red]Envoy refused the {type_url.name.lower()}s[/]: {escape(message)}")
            case Connected(node=node) | Disconnected(node=node) if node == NODE:
                pass
            case Connected(node=node):
                out.print(f"proxy {escape(node)} connected")
            case Disconnected(node=node):
                out.print(f"proxy {escape(node)} disconnected")
            case Acked():
                pass
            case _:
                assert_never(event)

    def _rebuilt(self, event: Rebuilt) -> None:
        for finding in event.appeared:
            out.print(finding_line(finding))
        if event.resolved:
            out.print(f"[green]{count(event.resolved, 'problem')} resolved[/]")
        if event.first:
            return
        changes = [f"{key}: {_list(names)}" for key, names in event.difference.items()]
        what = "; ".join(changes) or "nothing changed for Envoy"
        out.print(f"[cyan]reloaded[/] in {event.seconds * 1000:.0f} ms: {escape(what)}")

    def _welcome(self, graph: Graph) -> None:
        settings = self._settings
        if graph.plain_hosts or graph.secure_hosts:
            out.print(f"gateway        https port {graph.https.port}, http {graph.http.address}:{graph.http.port}")
        for port in graph.gateways:
            scheme = "http" if isinstance(port, PlainPort) else "https"
            out.print(f"gateway        {scheme}://{port.where.address}:{port.where.port}")
        if settings.authserver:
            out.print(f"authorization  {settings.authserver} (testserver, mode {settings.mode.value})")
        if settings.echo:
            out.print(f"echo origin    {settings.echo}")
        out.print(f"resources      {escape(str(settings.root))}  [dim](edit a file: it takes effect at once)[/]")
        if self._quickstart:
            _print_curl_lines(settings.workspace, graph.https.port)
        out.print("[dim]Ctrl-C stops everything. Requests:[/]")


def _print_curl_lines(workspace: Workspace, port: int) -> None:
    tries = (
        ("/allow", "200: the authorization server allows paths that contain 'allow'; see Auth-Handler in the answer"),
        ("/secret", "401: the authorization server denies"),
        ("/public", "200: authorization is disabled on this route, so nobody is asked"),
    )
    for path, answer in tries:
        out.print(f"\n  [bold]curl -i --cacert {escape(str(workspace.ca))} https://localhost:{port}{path}[/]")
        out.print(f"    [dim]→ {answer}[/]")
    out.print()


def _list(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _output(program: str, stream: Stream, text: str) -> None:
    if program == "envoy" and stream is Stream.STDOUT and text.startswith("{"):
        record = _json_record(text)
        if "method" in record:
            out.print(_request_line(record))
            return
    if program == "envoy" or (stream is Stream.STDERR and _json_record(text).get("level") not in {"info", "debug"}):
        out.print(f"[dim]{program}: {escape(text)}[/]")


def _json_record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _request_line(record: dict[str, Any]) -> str:
    status = str(record.get("status", ""))
    colour = "green" if status.startswith("2") else "yellow" if status.startswith("3") else "red"
    time = str(record.get("time", ""))[11:19]
    words = (record.get("method"), record.get("host"), record.get("path"))
    request = " ".join(str(word) for word in words if word is not None)
    return f"[dim]{time}[/] [{colour}]{status}[/] {escape(request)}  {_why(record)} [dim]{record.get('duration')} ms[/]"


def _why(record: dict[str, Any]) -> str:
    status = str(record.get("status", ""))
    details = str(record.get("details") or "")
    if details.startswith("ext_authz_error"):
        return "[red]refused: no answer from the authorization server[/]"
    if details.startswith("ext_authz"):
        return "[red]denied[/] by the authorization server"
    if status.startswith("3") and details == "direct_response":
        return "redirected to https"
    return _WORDS.get(str(record.get("authorization")), f"[dim]{escape(details)}[/]")
