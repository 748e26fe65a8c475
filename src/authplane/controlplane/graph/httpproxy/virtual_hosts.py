"""Root HTTPProxies to virtual hosts."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.httpproxy.downstream_tls import downstream_tls
from authplane.controlplane.graph.httpproxy.proxy_authorization import host_authorization, promised_headers
from authplane.controlplane.graph.httpproxy.proxy_routes import LEADS_NOWHERE, BuiltRoute, build_routes
from authplane.controlplane.graph.httpproxy.root_hosts import Root
from authplane.controlplane.graph.httpproxy.unused_fields import refuse_in_host
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.hostnames import is_dns_name
from authplane.controlplane.graph.model.port_model import Certificate, Fallback, SecureHost
from authplane.controlplane.graph.model.route_authorization import Unprotected
from authplane.controlplane.graph.model.route_model import Forward, RedirectToHttps, Route
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Virtual hosts by listener, and the certificates they need."""

    plain: tuple[Host, ...]
    secure: tuple[SecureHost, ...]
    fallback: Fallback | None
    refused: tuple[str, ...]
    certificates: tuple[Certificate, ...]

    clusters: frozenset[str]
    """Where their requests are sent."""


def build_hosts(shared: BuildContext, memo: Watched[ObjectName, Root]) -> Hosts:
    """Build the virtual host of every valid root; an invalid one is withdrawn from both listeners."""
    tables = tables_of(shared.resources) | {
        "owners": shared.owners,
        "extensions": shared.extensions,
        "clusters": shared.clusters,
    }
    # What is not among the tables; of it, a change is a change for everybody.
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
                "RootProxyNotAllowedInNamespace", "root HTTPProxy cannot be defined in this namespace"
            )
            continue
        root = memo.ensure(name, tables, partial(_root, name, shared))
        for ref, problems in root.found.items():
            shared.reports.of(ref).extend(problems)
        included.update(root.plain.included)
        if root.served:
            roots.append(root)
    _report_orphans(shared, included)
    unread = {each.host.lower() for each in _unread_roots(shared) if each.host is not None}
    return _assemble(roots, frozenset(fqdn for fqdn in unread.union(shared.owners) if is_dns_name(fqdn)))


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
    for name, proxy in shared.resources.proxies.items():
        if proxy.spec.virtualhost is None and name not in included:
            shared.reports.of(_ref(name)).add(
                "Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy"
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
        problems.add("ConfigurationNotValid", f"the {shared.unusable} cannot be used, so nothing is served")
    host = Host(
        fqdn=fqdn,
        proxy=name,
        included=tuple(sorted(built.included)),
        routes=tuple(each.route for each in built.routes),
        promised=promised_headers(guard),
    )
    plain, secure = host, None
    if tls is not None:
        plain = replace(host, routes=tuple(_over_http(each, shared.settings) for each in built.routes))
        secure = SecureHost(
            host=host,
            certificate=tls.certificate.name,
            limits=tls.limits,
            clients=tls.clients,
            elsewhere=(),
        )
    return Root(
        plain=plain,
        secure=secure,
        tls=tls,
        served=all(problem.reason in LEADS_NOWHERE for problem in problems.errors),
        clusters=_clusters(host),
        found=shared.reports.found(),
    )


def _clusters(host: Host) -> frozenset[str]:
    forwards = (route.action for route in host.routes if isinstance(route.action, Forward))
    return frozenset(cluster for forward in forwards for cluster in forward.clusters)


def _refuse_tcp(proxy: HTTPProxy, problems: Problems) -> None:
    if proxy.spec.tcpproxy is None:
        return
    with problems.at("tcpproxy"):
        problems.add("TCPProxyNotSupported", "Spec.TCPProxy is not supported")
    if proxy.spec.virtualhost is not None and proxy.spec.virtualhost.authorization is not None:
        with problems.at("virtualhost", "authorization"):
            problems.add(
                "AuthNotPermitted",
                "Spec.VirtualHost.Authorization cannot be enforced on connections that Spec.TCPProxy passes on",
            )


def _over_http(built: BuiltRoute, settings: Settings) -> Route:
    """Return what a route of a TLS virtual host is on the plain listener."""
    route = built.route
    if built.permit_insecure and settings.permit_insecure:
        return route
    port = settings.listeners.https.public_port
    return Route(proxy=route.proxy, match=route.match, action=RedirectToHttps(port), authorization=Unprotected())


def _assemble(roots: Sequence[Root], claimed: frozenset[str]) -> Hosts:
    """Join the roots; a wildcard must not answer for a name that another HTTPProxy claims, served or not."""
    plain = sorted((root.plain for root in roots), key=lambda host: host.fqdn)
    below = _below_wildcards(claimed)
    secure = [_aware(root.secure, below) for root in roots if root.secure]
    shown = [each for root in roots if root.tls for each in (root.tls.certificate, root.tls.fallback) if each]
    certificates = {certificate.name: certificate for certificate in shown}
    served = {host.fqdn for host in plain}
    return Hosts(
        plain=tuple(plain),
        secure=tuple(sorted(secure, key=lambda host: host.host.fqdn)),
        fallback=_fallback(roots, below),
        refused=_others_below(plain, below, served),
        certificates=tuple(certificates[name] for name in sorted(certificates)),
        clusters=frozenset().union(*(root.clusters for root in roots)),
    )


def _fallback(roots: Sequence[Root], below: Mapping[str, Sequence[str]]) -> Fallback | None:
    """Join the roots that clients may reach without naming them in TLS: they share one chain."""
    joined = [(root.secure, root.tls.fallback) for root in roots if root.secure and root.tls and root.tls.fallback]
    if not joined:
        return None
    hosts = sorted((secure.host for secure, _ in joined), key=lambda host: host.fqdn)
    return Fallback(
        certificate=joined[0][1].name,
        limits=replace(
            joined[0][0].limits,
            minimum=max(secure.limits.minimum for secure, _ in joined),
            maximum=max(secure.limits.maximum for secure, _ in joined),
        ),
        hosts=tuple(hosts),
        elsewhere=_others_below(hosts, below, {host.fqdn for host in hosts}),
    )


def _aware(secure: SecureHost, below: Mapping[str, Sequence[str]]) -> SecureHost:
    """Return a host that knows what of its wildcard others claim; most are none, and stay the same object."""
    elsewhere = tuple(below.get(secure.host.fqdn, ()))
    return replace(secure, elsewhere=elsewhere) if elsewhere else secure


def _others_below(hosts: Iterable[Host], below: Mapping[str, Sequence[str]], served: Container[str]) -> tuple[str, ...]:
    """Return the names, other than those that are served, that wildcards among the hosts would answer for."""
    found = {name for host in hosts for name in below.get(host.fqdn, ()) if name not in served}
    return tuple(sorted(found))


def _below_wildcards(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return, for every wildcard that there could be, the names that it would answer for, sorted."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        above = name.removeprefix("*.").partition(".")[2]
        while above:
            found[f"*.{above}"].append(name)
            above = above.partition(".")[2]
    return found


def owners(resources: Resources, settings: Settings) -> Mapping[str, Sequence[ObjectName]]:
    """Return which roots claim each name, sorted; who may not be a root cannot keep a name from others."""
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
            problems.add("FQDNNotSpecified", "Spec.VirtualHost.Fqdn must be specified")
        elif not is_dns_name(fqdn):
            problems.add("FQDNNotValid", f"{virtual_host.fqdn!r} is not a host name such as 'www.example.com'")
        elif fqdn != virtual_host.fqdn:
            problems.add("FQDNNotValid", f"{virtual_host.fqdn!r} must be in lower case: {fqdn!r}")
        if len(shared.owners[fqdn]) > 1:
            names = name_some(shared.owners[fqdn], _MOST_NAMES)
            problems.add("DuplicateVhost", f'fqdn "{fqdn}" is used in multiple HTTPProxies: {names}')
        unread = [each.who for each in _unread_roots(shared) if not _tells_host(each)] if fqdn.startswith("*.") else []
        if unread:
            problems.add(
                "WildcardUncertain",
                f"{unread[0]} cannot be read and may protect a host that this wildcard would answer for",
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
