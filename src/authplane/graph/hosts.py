"""Root HTTPProxies to virtual hosts."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.graph.around import Around
from authplane.graph.authorization import host_authorization
from authplane.graph.downstream_tls import DownstreamTls, downstream_tls
from authplane.graph.guards import Unprotected
from authplane.graph.model import Certificate, Fallback, Host, RedirectToHttps, Route, SecureHost
from authplane.graph.routes import LEADS_NOWHERE, BuiltRoute, build_routes
from authplane.graph.settings import Settings
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import HTTPProxy, VirtualHost

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_FQDN: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Virtual hosts by listener, and the certificates they need."""

    plain: tuple[Host, ...]
    secure: tuple[SecureHost, ...]
    fallback: Fallback | None
    refused: tuple[str, ...]
    certificates: tuple[Certificate, ...]

    @property
    def all(self) -> tuple[Host, ...]:
        """Every host, once for each chain that serves it."""
        behind = self.fallback.hosts if self.fallback is not None else ()
        return (*self.plain, *(secure.host for secure in self.secure), *behind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """What a valid root becomes on the two listeners."""

    plain: Host
    secure: SecureHost | None
    tls: DownstreamTls | None


def build_hosts(around: Around) -> Hosts:
    """Build the virtual host of every valid root; an invalid one is withdrawn from both listeners."""
    roots: list[_Root] = []
    included: set[ObjectName] = set()
    for name, proxy in sorted(around.resources.proxies.items(), key=_order):
        virtual_host = proxy.spec.virtualhost
        if virtual_host is None:
            continue
        problems = around.reports.of(_ref(name))
        if not _may_be_root(name, around.settings):
            problems.add("RootProxyNotAllowedInNamespace", "root HTTPProxy cannot be defined in this namespace")
            continue
        with problems.at("spec"):
            root = _build_root(proxy, virtual_host, around, problems)
        included.update(root.plain.included)
        if not any(problem.reason not in LEADS_NOWHERE for problem in problems.errors):
            roots.append(root)
    _report_orphans(around, included)
    return _assemble(roots, frozenset(fqdn for fqdn in around.owners if _FQDN.fullmatch(fqdn)))


def _report_orphans(around: Around, included: set[ObjectName]) -> None:
    for name, proxy in around.resources.proxies.items():
        if proxy.spec.virtualhost is None and name not in included:
            around.reports.of(_ref(name)).add(
                "Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy"
            )


def _build_root(proxy: HTTPProxy, virtual_host: VirtualHost, around: Around, problems: Problems) -> _Root:
    name, tls = proxy.metadata.object_name, None
    with problems.at("virtualhost"):
        fqdn = _fqdn(virtual_host, around, problems)
        if virtual_host.tls is not None:
            with problems.at("tls"):
                tls = downstream_tls(virtual_host.tls, name.namespace, around, problems)
        guard = host_authorization(virtual_host, name, around, problems)
    _refuse_tcp(proxy, problems)
    built = build_routes(proxy, guard, around)
    if around.unusable:
        problems.add("ConfigurationNotValid", f"the {around.unusable} cannot be used, so nothing is served")
    host = Host(
        fqdn=fqdn,
        proxy=name,
        included=tuple(sorted(built.included)),
        routes=tuple(each.route for each in built.routes),
    )
    if tls is None:
        return _Root(plain=host, secure=None, tls=None)
    return _Root(
        plain=replace(host, routes=tuple(_over_http(each, around.settings) for each in built.routes)),
        secure=SecureHost(
            host=host,
            certificate=tls.certificate.name,
            minimum_tls=tls.minimum,
            maximum_tls=tls.maximum,
            clients=tls.clients,
            elsewhere=(),
        ),
        tls=tls,
    )


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


def _assemble(roots: Sequence[_Root], claimed: frozenset[str]) -> Hosts:
    """Join the roots; a wildcard must not answer for a name that another HTTPProxy claims, served or not."""
    plain = sorted((root.plain for root in roots), key=lambda host: host.fqdn)
    secure = [replace(root.secure, elsewhere=_covered(root.secure.host.fqdn, claimed)) for root in roots if root.secure]
    shown = [each for root in roots if root.tls for each in (root.tls.certificate, root.tls.fallback) if each]
    certificates = {certificate.name: certificate for certificate in shown}
    withdrawn = claimed - {host.fqdn for host in plain}
    return Hosts(
        plain=tuple(plain),
        secure=tuple(sorted(secure, key=lambda host: host.host.fqdn)),
        fallback=_fallback(roots, claimed),
        refused=tuple(sorted({name for host in plain for name in _covered(host.fqdn, withdrawn)})),
        certificates=tuple(certificates[name] for name in sorted(certificates)),
    )


def _fallback(roots: Sequence[_Root], claimed: frozenset[str]) -> Fallback | None:
    """Join the roots that clients may reach without naming them in TLS: they share one chain."""
    joined = [(root.secure, root.tls.fallback) for root in roots if root.secure and root.tls and root.tls.fallback]
    if not joined:
        return None
    hosts = sorted((secure.host for secure, _ in joined), key=lambda host: host.fqdn)
    others = claimed - {host.fqdn for host in hosts}
    return Fallback(
        certificate=joined[0][1].name,
        minimum_tls=max(secure.minimum_tls for secure, _ in joined),
        maximum_tls=max(secure.maximum_tls for secure, _ in joined),
        hosts=tuple(hosts),
        elsewhere=tuple(sorted({name for host in hosts for name in _covered(host.fqdn, others)})),
    )


def _covered(fqdn: str, names: frozenset[str]) -> tuple[str, ...]:
    """Return the names that a wildcard would answer for; nothing if it is none."""
    if not fqdn.startswith("*."):
        return ()
    return tuple(sorted(name for name in names if name != fqdn and name.endswith(fqdn[1:])))


def owners(resources: Resources, settings: Settings) -> Mapping[str, Sequence[ObjectName]]:
    """Return which roots claim each name; who may not be a root cannot keep a name from others."""
    found = defaultdict(list)
    for name, proxy in resources.proxies.items():
        if proxy.spec.virtualhost is not None and _may_be_root(name, settings):
            found[proxy.spec.virtualhost.fqdn.lower()].append(name)
    return found


def _may_be_root(name: ObjectName, settings: Settings) -> bool:
    return not settings.root_namespaces or name.namespace in settings.root_namespaces


def _fqdn(virtual_host: VirtualHost, around: Around, problems: Problems) -> str:
    fqdn = virtual_host.fqdn.lower()
    with problems.at("fqdn"):
        if not _FQDN.fullmatch(fqdn):
            problems.add("FQDNNotSpecified", f"{virtual_host.fqdn!r} is not a host name such as 'www.example.com'")
        if len(around.owners[fqdn]) > 1:
            names = ", ".join(map(str, sorted(around.owners[fqdn])))
            problems.add("DuplicateVhost", f'fqdn "{fqdn}" is used in multiple HTTPProxies: {names}')
        unread = _unread_roots(around) if fqdn.startswith("*.") else []
        if unread:
            problems.add(
                "WildcardUncertain",
                f"{unread[0]} cannot be read and may protect a host that this wildcard would answer for",
            )
    return fqdn


def _unread_roots(around: Around) -> list[Ref]:
    """Return the HTTPProxies that may be roots, for all that is known of them."""
    return sorted(
        ref
        for ref in around.resources.broken
        if ref.kind == "HTTPProxy" and _may_be_root(ref.object_name, around.settings)
    )


def _order(item: tuple[ObjectName, HTTPProxy]) -> tuple[str, str]:
    return item[0].namespace, item[0].name


def _ref(name: ObjectName) -> Ref:
    return Ref("HTTPProxy", name.namespace, name.name)
