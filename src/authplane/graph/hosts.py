"""Root HTTPProxies to virtual hosts."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.graph.around import Around
from authplane.graph.authorization import host_authorization
from authplane.graph.guards import Unprotected
from authplane.graph.model import Certificate, Host, RedirectToHttps, Route, SecureHost
from authplane.graph.routes import build_routes
from authplane.graph.secrets import secret_name, server_certificate
from authplane.resources.documents import Resources
from authplane.resources.kinds import contour
from authplane.resources.kinds.contour import HTTPProxy, Tls, VirtualHost

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_FQDN: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
_COSTS_THE_ROUTE: Final = frozenset({"ServiceUnresolvedReference", "UnsupportedServiceType"})
"""A Service that cannot be used costs its route, which answers 503; every other error withdraws the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Virtual hosts by listener, and the certificates they need."""

    plain: tuple[Host, ...]
    secure: tuple[SecureHost, ...]
    refused: tuple[str, ...]
    certificates: tuple[Certificate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """What a valid root becomes on the two listeners."""

    plain: Host
    secure: SecureHost | None
    certificate: Certificate | None


def build_hosts(around: Around) -> Hosts:
    """Build the virtual host of every valid root; an invalid one is withdrawn from both listeners."""
    roots: list[_Root] = []
    for name, proxy in sorted(around.resources.proxies.items()):
        problems = around.reports.of(Ref("HTTPProxy", name.namespace, name.name))
        if proxy.spec.virtualhost is None:
            problems.add("Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy")
            continue
        with problems.at("spec"):
            root = _build_root(proxy, proxy.spec.virtualhost, around, problems)
        if not any(problem.reason not in _COSTS_THE_ROUTE for problem in problems.errors):
            roots.append(root)
    return _assemble(roots, frozenset(fqdn for fqdn in around.owners if _FQDN.fullmatch(fqdn)))


def _build_root(proxy: HTTPProxy, virtual_host: VirtualHost, around: Around, problems: Problems) -> _Root:
    name, resources = proxy.metadata.object_name, around.resources
    with problems.at("virtualhost"):
        fqdn = _fqdn(virtual_host, around.owners, resources.broken, problems)
        certificate = _certificate(resources, virtual_host.tls, name.namespace, problems)
        guard = host_authorization(virtual_host, name.namespace, resources, around.extensions, problems)
    routes = build_routes(proxy, guard, around.clusters, problems)
    if around.unusable:
        problems.add("ConfigurationNotValid", f"the {around.unusable} cannot be used, so nothing is served")
    host = Host(fqdn=fqdn, proxy=name, routes=tuple(built for _, built in routes))
    if virtual_host.tls is None or certificate is None or around.unusable:
        return _Root(plain=host, secure=None, certificate=None)
    port = around.settings.listeners.https.public_port
    return _Root(
        plain=replace(host, routes=tuple(_over_http(written, built, port) for written, built in routes)),
        secure=SecureHost(
            host=host,
            certificate=certificate.name,
            minimum_tls=virtual_host.tls.minimum_protocol_version or "1.2",
            elsewhere=(),
        ),
        certificate=certificate,
    )


def _assemble(roots: list[_Root], claimed: frozenset[str]) -> Hosts:
    """Join the roots; a wildcard must not answer for a name that another HTTPProxy claims, served or not."""
    plain = sorted((root.plain for root in roots), key=lambda host: host.fqdn)
    secure = [replace(root.secure, elsewhere=_covered(root.secure.host.fqdn, claimed)) for root in roots if root.secure]
    certificates = {root.certificate.name: root.certificate for root in roots if root.certificate}
    withdrawn = claimed - {host.fqdn for host in plain}
    return Hosts(
        plain=tuple(plain),
        secure=tuple(sorted(secure, key=lambda host: host.host.fqdn)),
        refused=tuple(sorted({name for host in plain for name in _covered(host.fqdn, withdrawn)})),
        certificates=tuple(certificates[name] for name in sorted(certificates)),
    )


def _covered(fqdn: str, names: frozenset[str]) -> tuple[str, ...]:
    """Return the names that a wildcard would answer for; nothing if it is none."""
    if not fqdn.startswith("*."):
        return ()
    return tuple(sorted(name for name in names if name != fqdn and name.endswith(fqdn[1:])))


def _over_http(written: contour.Route, built: Route, port: int) -> Route:
    """Return what a route of a TLS virtual host is on the plain listener."""
    if written.permit_insecure:
        return built  # building the route has made sure that it is not an enforced one
    return Route(proxy=built.proxy, match=built.match, action=RedirectToHttps(port), authorization=Unprotected())


def owners(proxies: Iterable[HTTPProxy]) -> Mapping[str, Sequence[ObjectName]]:
    """Return which roots claim each name."""
    found = defaultdict(list)
    for proxy in proxies:
        if proxy.spec.virtualhost is not None:
            found[proxy.spec.virtualhost.fqdn.lower()].append(proxy.metadata.object_name)
    return found


def _fqdn(
    virtual_host: VirtualHost, owners: Mapping[str, Sequence[ObjectName]], broken: frozenset[Ref], problems: Problems
) -> str:
    fqdn = virtual_host.fqdn.lower()
    with problems.at("fqdn"):
        if not _FQDN.fullmatch(fqdn):
            problems.add("FQDNNotSpecified", f"{virtual_host.fqdn!r} is not a host name such as 'www.example.com'")
        if len(owners[fqdn]) > 1:
            names = ", ".join(map(str, sorted(owners[fqdn])))
            problems.add("DuplicateVhost", f'fqdn "{fqdn}" is used in multiple HTTPProxies: {names}')
        unread = sorted(str(ref) for ref in broken if ref.kind == "HTTPProxy")
        if fqdn.startswith("*.") and unread:
            problems.add(
                "WildcardUncertain",
                f"{unread[0]} cannot be read and may protect a host that this wildcard would answer for",
            )
    return fqdn


def _certificate(resources: Resources, tls: Tls | None, namespace: str, problems: Problems) -> Certificate | None:
    if tls is None:
        return None
    with problems.at("tls"):
        if tls.passthrough:
            problems.add("TLSConfigNotValid", "Spec.VirtualHost.TLS passthrough is not supported")
            return None
        if tls.enable_fallback_certificate:
            problems.add(
                "FallbackNotPresent", "Spec.Virtualhost.TLS enabled fallback but no fallback certificate is configured"
            )
        if not tls.secret_name:
            problems.add("TLSConfigNotValid", "Spec.VirtualHost.TLS names no Secret")
            return None
        name = secret_name(tls.secret_name, namespace)
        with problems.at("secretName"):
            if name.namespace != namespace:
                problems.add(
                    "DelegationNotPermitted",
                    f'Spec.VirtualHost.TLS Secret "{name}" certificate delegation not permitted',
                )
                return None
            found = server_certificate(resources, name)
            if isinstance(found, str):
                problems.add("SecretNotValid", f'Spec.VirtualHost.TLS Secret "{name}" is invalid: {found}')
                return None
            return found
