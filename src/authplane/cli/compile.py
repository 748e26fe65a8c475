"""`authplane compile`."""

from collections.abc import Iterator
from typing import Annotated, assert_never

import click
from rich.markup import escape

from authplane.cli.shared.built_folder import read_generation
from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.console import err, out
from authplane.cli.shared.output import Output, OutputOption, findings_summary, print_json
from authplane.cli.shared.parameters import Option
from authplane.controlplane.graph.model import (
    graph_model,
    host_model,
    match_model,
    port_model,
    route_authorization,
    route_model,
)
from authplane.controlplane.graph.model.grpc_servers import Closed, GrpcServer, Judged, Open, PolicyCheck
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.match_words import condition_words
from authplane.controlplane.render.dump import dump, json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.serving.generation import Generation
from authplane.core.envoy_releases import CURRENT, Release, known_release
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault
from authplane.policy.placement.grpc_reach import Anybody, Callers, Nobody, Workloads


@with_cluster
def compile_folder(
    folder: Place,
    output: OutputOption = Output.TEXT,
    bootstrap: Annotated[
        bool, Option("--bootstrap", help="Print a complete static Envoy configuration, including private keys.")
    ] = False,
    show_secrets: Annotated[
        bool, Option("--show-secrets", help="Print private keys. By default, authplane redacts them.")
    ] = False,
    envoy: Annotated[
        str, Option("--envoy", metavar="RELEASE", help="Envoy release to compile for, such as 1.38.")
    ] = str(CURRENT),
) -> None:
    """Compile a folder of resources and show the configuration for Envoy and gRPC servers.

    authplane leaves out invalid resources, as a running gateway does. Run 'authplane validate' to list their problems.

    Example: authplane compile ./gateway -o json

    Example: authplane compile ./gateway --bootstrap > envoy.json && envoy --mode validate -c envoy.json
    """
    release = Release.parse(envoy)
    if release is None:
        raise click.BadParameter(
            f"{envoy!r} is not an Envoy release. Use MAJOR.MINOR, such as {CURRENT}.", param_hint="--envoy"
        )
    generation = read_generation(folder)
    if bootstrap:
        click.echo(json_text(static_bootstrap(generation.rendered_for(known_release(release)))), nl=False)
    elif output is Output.JSON:
        print_json(dump(generation.rendered_for(known_release(release)), show_secrets=show_secrets))
    else:
        for line in _summary(generation.built.graph):
            out.print(line)
    _warn(generation)


def _warn(generation: Generation) -> None:
    findings = generation.findings
    if findings:
        err.print(f"[yellow]The folder has {findings_summary(findings)}.[/] Run 'authplane validate' to list them.")


def _summary(graph: graph_model.Graph) -> Iterator[str]:
    for port in graph.ports:
        yield from _port(port)
    for server in graph.grpc_servers:
        yield from _grpc_server(server)
    if not (graph.ports or graph.grpc_servers):
        yield (
            "The folder has no virtual host and no gRPC server that authplane can serve. Add an"
            " HTTPProxy, a Gateway or a Backend, or run 'authplane validate' to list errors."
        )


def _grpc_server(server: GrpcServer) -> Iterator[str]:
    clients = ", requires client certificates" if server.tls is not None and server.tls.clients else ""
    yield f"[bold]gRPC server {escape(str(server.ref))}[/], Listener {escape(server.listener)}{clients}"
    match server.authorization:
        case Open():
            yield "  every call  [dim]unprotected[/]"
        case Closed():
            yield "  every call  [red]denied[/]: the Backend or the AuthplaneConfiguration is invalid"
        case Judged(reach=reach, check=check, grants=grants):
            calls = [(path, callers) for path, callers in reach.paths]
            calls += [(f"{prefix}*", callers) for prefix, callers in reach.prefixes]
            rest = "every other call" if calls else "every call"
            for path, callers in (*calls, (rest, reach.others)):
                yield f"  {escape(path)}  {_callers(callers, check)}"
            if grants is not None:
                yield "  [green]authplane.grpc servers decide native rules themselves[/]: see authplane explain"
        case _:
            assert_never(server.authorization)


def _callers(callers: Callers, check: PolicyCheck) -> str:
    asked = f"[green]checked by {escape(check.target)}[/] within {_timeout(check.timeout)}, fails closed"
    match callers:
        case Nobody():
            return "[red]denied[/]"
        case Workloads(ids=ids):
            return f"for {escape(', '.join(sorted(ids)))}, {asked}; other callers denied"
        case Anybody():
            return asked
        case _:
            assert_never(callers)


def _port(port: port_model.Port) -> Iterator[str]:
    where = f"on {port.where.address}:{port.where.port}"
    match port:
        case port_model.PlainPort(table=table):
            for host in table.hosts:
                yield f"[bold]http://{escape(host.name)}[/] {where}"
                yield from _routes(host)
        case port_model.SecurePort(chains=chains):
            for chain in chains:
                yield from _chain(chain, where)
        case _:
            assert_never(port)


def _chain(chain: port_model.TlsChain, where: str) -> Iterator[str]:
    shown = ", ".join(map(str, chain.certificates))
    for host in chain.table.hosts:
        unnamed = bool(host.proxies) and chain.hostname == ANY
        place = "for clients without SNI" if unnamed else where
        clients = ", requires client certificates" if chain.clients is not None and not host.proxies else ""
        yield f"[bold]https://{escape(host.name)}[/] {place}, certificate {escape(shown)}{clients}"
        yield from _routes(host)


def _routes(host: host_model.Host) -> Iterator[str]:
    for route in host.routes:
        start = f"  {escape(_match(route.match))} →"
        if isinstance(route.action, route_model.Forward) and not host.proxies:
            yield from (f"{start} {line}" for line in _backends(route.action, route.authorizations))
            continue
        # Only HTTPProxies include others.
        foreign = bool(host.proxies) and route.holder != str(host.proxies[0])
        whose = f"  [dim]from {escape(route.holder)}[/]" if foreign else ""
        [authorization] = route.authorizations
        yield f"{start} {escape(_action(route.action))}  {_authorization(authorization)}{whose}"


def _backends(
    forward: route_model.Forward, authorizations: tuple[route_authorization.RouteAuthorization, ...]
) -> Iterator[str]:
    """Return a line for each backend: they may be authorized each by itself."""
    for target, authorization in zip(forward.targets, authorizations, strict=True):
        weight = f" ({target.weight})" if len(forward.targets) > 1 else ""
        yield f"{escape(_cluster(target))}{weight}  {_authorization(authorization)}"


def _cluster(target: route_model.Target) -> str:
    return target.cluster.removeprefix("service/") if target.cluster is not None else "respond 500"


def _match(match: match_model.Match) -> str:
    conditions = " and ".join(condition_words(match))
    return f"{_path(match.path)} if {conditions}" if conditions else _path(match.path)


def _path(path: match_model.PathMatch) -> str:
    match path:
        case match_model.Prefix(text):
            return text
        case match_model.Segments(text):
            return f"{text} and below"
        case match_model.Exact(text):
            return f"exactly {text}"
        case match_model.Regex(text):
            return f"pattern {text}"
        case _:
            assert_never(path)


def _action(action: route_model.Action) -> str:
    match action:
        case route_model.Forward():
            return _forward(action)
        case route_model.RedirectToHttps():
            return "redirect to https"
        case route_model.Redirect():
            return _redirect(action)
        case route_model.Respond(status=status):
            return f"respond {status}"
        case route_model.ResourceMetadata(path=path):
            return f"OAuth protected resource metadata of {path}"
        case _:
            assert_never(action)


def _forward(forward: route_model.Forward) -> str:
    names = [_cluster(target) for target in forward.targets]
    if len(names) > 1:
        names = [f"{name} ({target.weight})" for name, target in zip(names, forward.targets, strict=True)]
    words = [", ".join(names)]
    if forward.mirror is not None:
        words.append(f"mirrored to {forward.mirror.cluster.removeprefix('service/')} ({forward.mirror.percent}%)")
    if forward.rewrite is not None:
        words.append(f"under {forward.rewrite.path}")
    if forward.host:
        words.append(f"as {forward.host}")
    return " ".join(words)


def _redirect(redirect: route_model.Redirect) -> str:
    scheme = f"{redirect.scheme}://" if redirect.scheme else "//" if redirect.host else ""
    host = redirect.host or ("…" if redirect.scheme or redirect.port is not None else "")
    port = f":{redirect.port}" if redirect.port is not None else ""
    prefix = f"{redirect.prefix}…" if redirect.prefix is not None else ""
    path = redirect.path or prefix or ("/…" if host else "the same URL")
    return f"redirect {redirect.status} to {scheme}{host}{port}{path}"


def _authorization(authorization: route_authorization.RouteAuthorization) -> str:
    match authorization:
        case route_authorization.Unprotected():
            return "[dim]unprotected[/]"
        case route_authorization.Disabled():
            return "[yellow]authorization disabled[/]"
        case route_authorization.Enforced(service=service):
            name, wait = escape(service.cluster), _timeout(service.timeout)
            match service.on_failure:
                case route_authorization.FailClosed():
                    return f"[green]checked by {name}[/] within {wait}, fails closed"
                case route_authorization.FailOpen():
                    return f"[yellow]checked by {name}[/] within {wait}, fails open"
                case route_authorization.Shadow():
                    return f"[yellow]checked by {name}[/] within {wait}, not enforced"
                case _:
                    assert_never(service.on_failure)
        case _:
            assert_never(authorization)


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
