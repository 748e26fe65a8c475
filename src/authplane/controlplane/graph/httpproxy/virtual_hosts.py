"""Root HTTPProxies to virtual hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.httpproxy.downstream_tls import downstream_tls
from authplane.controlplane.graph.httpproxy.proxy_authorization import host_authorization, reserved_headers
from authplane.controlplane.graph.httpproxy.proxy_ports import Proxies, Root, assemble, secure_chain
from authplane.controlplane.graph.httpproxy.proxy_routes import LEADS_NOWHERE, BuiltRoute, build_routes
from authplane.controlplane.graph.httpproxy.unused_fields import refuse_in_host
from authplane.controlplane.graph.model.host_model import Host, forwards_of
from authplane.controlplane.graph.model.hostnames import is_dns_name
from authplane.controlplane.graph.model.port_model import PortMemory
from authplane.controlplane.graph.model.route_authorization import Unprotected
from authplane.controlplane.graph.model.route_model import RedirectToHttps, Route
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.watched_tables import tables_of, with_tables
from authplane.core.memo import Tables, Watched
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.text import name_some
from authplane.resources.documents import Resources, UnreadProxy
from authplane.resources.kinds.contour import HTTPProxy, VirtualHost

_MOST_NAMES: Final = 20


def build_hosts(shared: BuildContext, memo: Watched[ObjectName, Root], ports: PortMemory) -> Proxies:
    """Build the virtual host of every valid root; an invalid one is withdrawn from both listeners."""
    tables = tables_of(shared.resources) | {
        "owners": shared.owners,
        "extensions": shared.extensions,
        "clusters": shared.clusters,
    }
    # What is not among the tables; a change of it is a change for every root.
    resources = shared.resources
    memo.start(
        (shared.settings, shared.unusable, shared.global_authorization, resources.broken, resources.unread_proxies)
    )
    roots: list[Root] = []
    included: set[ObjectName] = set()
    for name, proxy in sorted(shared.resources.proxies.items(), key=_order):
        if proxy.spec.virtualhost is None:
            continue
        if not _may_be_root(name, shared.settings):
            shared.reports.of(_ref(name)).add(
                "RootProxyNotAllowedInNamespace",
                "root HTTPProxy cannot be defined in this namespace. Move it to a root namespace.",
            )
            continue
        root = memo.ensure(name, tables, partial(_root, name, shared))
        for ref, problems in root.found.items():
            shared.reports.of(ref).extend(problems)
        included.update(root.plain.proxies[1:])
        if root.served:
            roots.append(root)
    _report_orphans(shared, included)
    unread = {each.host.lower() for each in _unread_roots(shared) if each.host is not None}
    claimed = frozenset(fqdn for fqdn in unread.union(shared.owners) if is_dns_name(fqdn))
    return assemble(roots, claimed, shared.settings.listeners, ports)


def _root(name: ObjectName, shared: BuildContext, tables: Tables) -> Root:
    """Build one root, with eyes for nothing but the tables."""
    reports = Reports()
    watched = replace(
        shared,
        resources=with_tables(shared.resources, tables),
        owners=tables["owners"],
        extensions=tables["extensions"],
        clusters=tables["clusters"],
        reports=reports,
    )
    proxy = watched.resources.proxies[name]
    if proxy.spec.virtualhost is None:
        raise ValueError(f"{name} is no root")
    problems = reports.of(_ref(name))
    with problems.at("spec"):
        return _build_root(proxy, proxy.spec.virtualhost, watched, problems)


def _report_orphans(shared: BuildContext, included: set[ObjectName]) -> None:
    unread = next((each.who for each in shared.resources.unread_proxies), "")
    cause = f". {unread} cannot be read and may include this HTTPProxy. Correct it first." if unread else ""
    for name, proxy in shared.resources.proxies.items():
        if proxy.spec.virtualhost is None and name not in included:
            shared.reports.of(_ref(name)).add(
                "Orphaned", f"this HTTPProxy is not part of a delegation chain from a root HTTPProxy{cause}"
            )


def _build_root(proxy: HTTPProxy, virtual_host: VirtualHost, shared: BuildContext, problems: Problems) -> Root:
    name, tls = proxy.metadata.object_name, None
    with problems.at("virtualhost"):
        fqdn = _fqdn(virtual_host, shared, problems)
        if virtual_host.tls is not None:
            with problems.at("tls"):
                tls = downstream_tls(virtual_host.tls, name.namespace, shared, problems)
        guard = host_authorization(virtual_host, name, shared, problems)
        refuse_in_host(virtual_host, problems)
    _refuse_tcp(proxy, problems)
    built = build_routes(proxy, guard, shared)
    if shared.unusable:
        problems.add(
            "ConfigurationNotValid", f"The {shared.unusable} is not valid, so Envoy serves no host. Correct it."
        )
    host = Host(
        name=fqdn,
        routes=tuple(each.route for each in built.routes),
        proxies=(name, *sorted(built.included)),
        one_label=True,
        reserved=reserved_headers(guard),
    )
    plain = host
    if tls is not None:
        plain = replace(host, routes=tuple(_over_http(each, fqdn, shared.settings) for each in built.routes))
    return Root(
        host=host,
        plain=plain,
        secure=None if tls is None else secure_chain(host, tls),
        tls=tls,
        served=all(problem.reason in LEADS_NOWHERE for problem in problems.errors),
        clusters=_clusters(host),
        found=shared.reports.found(),
    )


def _clusters(host: Host) -> frozenset[str]:
    return frozenset(cluster for forward in forwards_of([host]) for cluster in forward.clusters)


def _refuse_tcp(proxy: HTTPProxy, problems: Problems) -> None:
    if proxy.spec.tcpproxy is None:
        return
    with problems.at("tcpproxy"):
        problems.add("TCPProxyNotSupported", "Spec.TCPProxy is not supported. Remove it.")
    if proxy.spec.virtualhost is not None and proxy.spec.virtualhost.authorization is not None:
        with problems.at("virtualhost", "authorization"):
            problems.add(
                "AuthNotPermitted",
                "Spec.VirtualHost.Authorization cannot be enforced on the connections of "
                "Spec.TCPProxy. Remove one of them.",
            )


def _over_http(built: BuiltRoute, fqdn: str, settings: Settings) -> Route:
    """Return what a route of a TLS virtual host is on the plain listener."""
    route = built.route
    if built.permit_insecure and settings.permit_insecure:
        return route
    host = "" if fqdn.startswith("*.") else fqdn
    action = RedirectToHttps(settings.listeners.https.public_port, host)
    return Route(holder=route.holder, match=route.match, action=action, authorization=Unprotected())


def owners(resources: Resources, settings: Settings) -> Mapping[str, Sequence[ObjectName]]:
    """Return which roots claim each name, sorted; an HTTPProxy that may not be a root claims no name."""
    found: dict[str, list[ObjectName]] = {}
    for name, proxy in resources.proxies.items():
        if proxy.spec.virtualhost is not None and _may_be_root(name, settings):
            found.setdefault(proxy.spec.virtualhost.fqdn.lower(), []).append(name)
    return {fqdn: tuple(sorted(names)) for fqdn, names in found.items()}


def _may_be_root(name: ObjectName, settings: Settings) -> bool:
    return not settings.root_namespaces or name.namespace in settings.root_namespaces


def _fqdn(virtual_host: VirtualHost, shared: BuildContext, problems: Problems) -> str:
    fqdn = virtual_host.fqdn.lower()
    with problems.at("fqdn"):
        if not fqdn.strip():
            problems.add("FQDNNotSpecified", "Spec.VirtualHost.Fqdn must be specified. Set it.")
        elif not is_dns_name(fqdn):
            problems.add(
                "FQDNNotValid", f"{virtual_host.fqdn!r} is not a host name. Use one such as 'www.example.com'."
            )
        elif fqdn != virtual_host.fqdn:
            problems.add("FQDNNotValid", f"{virtual_host.fqdn!r} is not in lower case. Write {fqdn!r}.")
        if len(shared.owners[fqdn]) > 1:
            names = name_some(shared.owners[fqdn], _MOST_NAMES)
            problems.add("DuplicateVhost", f'fqdn "{fqdn}" is used in multiple HTTPProxies: {names}')
        unread = [each.who for each in _unread_roots(shared) if not _tells_host(each)] if fqdn.startswith("*.") else []
        if unread:
            problems.add(
                "WildcardUncertain",
                f"{unread[0]} cannot be read and may protect a host that this wildcard matches. Correct that file.",
            )
    return fqdn


def _unread_roots(shared: BuildContext) -> list[UnreadProxy]:
    """Return the HTTPProxies that may be roots, for all that is known of them."""
    return [
        each
        for each in shared.resources.unread_proxies
        if not each.namespace or _may_be_root(ObjectName(each.namespace, ""), shared.settings)
    ]


def _tells_host(unread: UnreadProxy) -> bool:
    return unread.host is not None and is_dns_name(unread.host.lower())


def _order(item: tuple[ObjectName, HTTPProxy]) -> tuple[str, str]:
    return item[0].namespace, item[0].name


def _ref(name: ObjectName) -> Ref:
    return Ref("HTTPProxy", name.namespace, name.name)
