"""`authplane compile`."""

from collections.abc import Iterator
from typing import Annotated, assert_never

import typer
from rich.markup import escape

from authplane.app.generation import Generation
from authplane.base.timeouts import After, Disabled, Timeout, UseDefault
from authplane.cli.folder import FolderArgument, read_generation
from authplane.cli.output import Output, OutputOption, err, findings_summary, out, print_json
from authplane.graph import guards, model
from authplane.render.bootstrap import static_bootstrap
from authplane.render.dump import dump, json_text


def compile_folder(
    folder: FolderArgument,
    output: OutputOption = Output.TEXT,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Print a complete static Envoy configuration, keys included.")
    ] = False,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Print private keys, which are left out otherwise.")
    ] = False,
) -> None:
    """Show what a folder of resources becomes in Envoy.

    Problems do not stop it: what is invalid is left out, as it would be from the running gateway.

    Example: authplane compile ./gateway -o json

    Example: authplane compile ./gateway --bootstrap > envoy.json && envoy --mode validate -c envoy.json
    """
    generation = read_generation(folder)
    if bootstrap:
        typer.echo(json_text(static_bootstrap(generation.rendered)), nl=False)
    elif output is Output.JSON:
        print_json(dump(generation.rendered, show_secrets=show_secrets))
    else:
        for line in _summary(generation.built.graph):
            out.print(line)
    _warn(generation)


def _warn(generation: Generation) -> None:
    findings = generation.findings
    if findings:
        err.print(f"[yellow]{findings_summary(findings)}[/]: run authplane validate to see them")


def _summary(graph: model.Graph) -> Iterator[str]:
    for host in graph.plain_hosts:
        yield f"[bold]http://{escape(host.fqdn)}[/] on {graph.http.address}:{graph.http.port}"
        yield from _routes(host)
    for secure in graph.secure_hosts:
        yield (
            f"[bold]https://{escape(secure.host.fqdn)}[/] on {graph.https.address}:{graph.https.port}, "
            f"certificate {escape(str(secure.certificate))}"
        )
        yield from _routes(secure.host)
    if not (graph.plain_hosts or graph.secure_hosts):
        yield "no virtual host can be served"


def _routes(host: model.Host) -> Iterator[str]:
    for route in host.routes:
        exactly = "exactly " if isinstance(route.match.path, model.Exact) else ""
        yield f"  {exactly}{escape(route.match.path.path)} → {escape(_action(route.action))}  {_authorization(route)}"


def _action(action: model.Action) -> str:
    match action:
        case model.Forward(targets=targets):
            names = [target.cluster.removeprefix("service/") for target in targets]
            if len(targets) == 1:
                return names[0]
            return ", ".join(f"{name} ({target.weight})" for name, target in zip(names, targets, strict=True))
        case model.RedirectToHttps():
            return "redirect to https"
        case model.Redirect(status=status):
            return f"redirect ({status})"
        case model.Respond(status=status):
            return f"answer {status}"
        case _:
            assert_never(action)


def _authorization(route: model.Route) -> str:
    match route.authorization:
        case guards.Unprotected():
            return "[dim]unprotected[/]"
        case guards.Disabled():
            return "[yellow]authorization disabled[/]"
        case guards.Enforced(service=service):
            closed = "fails open" if isinstance(service.on_failure, guards.FailOpen) else "fails closed"
            return f"[green]checked by {escape(service.cluster)}[/] within {_timeout(service.timeout)}, {closed}"
        case _:
            assert_never(route.authorization)


def _timeout(timeout: Timeout) -> str:
    match timeout:
        case UseDefault():
            return "200 ms"
        case Disabled():
            return "any time"
        case After(duration):
            return f"{duration.total_seconds():g} s"
        case _:
            assert_never(timeout)
