"""Backends with a URL: one address, without a Service and EndpointSlices."""

from typing import Final

from authplane.controlplane.graph.model.upstreams import (
    CaFile,
    Destinations,
    EndpointGroup,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    VerifiedTls,
)
from authplane.controlplane.graph.settings.gateway_settings import BackendUrls, ExternalNames, Settings
from authplane.controlplane.graph.upstreams.external_names import Place, is_dns_name, special_place
from authplane.core.addresses import meant_by, parse_ip_address
from authplane.core.names import Ref
from authplane.core.problems import Problems
from authplane.resources.mcp_places import McpUrl
from authplane.resources.service_endpoints import Endpoint

_NOT_PERMITTED: Final = "UrlNotPermitted"


def build_url_cluster(
    ref: Ref, url: McpUrl, settings: Settings, ca: CaFile, problems: Problems
) -> ServiceCluster | None:
    """Return the cluster of a Backend with a URL; None if it may not lead there, which is an error."""
    wrong = _host_problem(url, settings) or _rule_problem(url, settings)
    if wrong:
        problems.add(_NOT_PERMITTED, wrong)
        return None
    tls = VerifiedTls(ca=ca, subject_names=(url.host,), server_name=url.host, limits=settings.upstream_tls)
    return ServiceCluster(
        name=f"backend/{ref}",
        version=HttpVersion.HTTP1,
        tls=tls if url.secure else Plaintext(),
        destinations=_destinations(ref, url),
        connect_timeout=settings.connect_timeout,
    )


def _destinations(ref: Ref, url: McpUrl) -> Destinations:
    if parse_ip_address(url.host) is not None:
        return (EndpointGroup(service=ref.object_name, weight=1, endpoints=(Endpoint(url.host, url.port),)),)
    return (ExternalName(service=ref.object_name, weight=1, host=url.host, port=url.port, ipv4_first=True),)


def _host_problem(url: McpUrl, settings: Settings) -> str:
    """Say why no Backend may have this host, whatever the settings are; empty if it may.

    What a name resolves to is not known here: Envoy looks it up.
    """
    address = parse_ip_address(url.host)
    if address is None and not is_dns_name(url.host):
        return f"{url.host!r} is neither a DNS name nor an IP address. Use a URL such as http://127.0.0.1:7000/mcp."
    if address is not None and any(each.is_unspecified for each in (address, *meant_by(address))):
        return f"{url.host!r} is the unspecified address. Use 127.0.0.1 for this machine."
    match special_place(url.host, settings.names.cluster_domain):
        case Place.METADATA | Place.LINK | Place.WRITTEN_OUT:
            return (
                f"{url.host!r} names a link-local or cloud metadata address, where a client can read credentials of "
                "the "
                "machine. Use the address of the MCP server."
            )
        case Place.CLUSTER:
            return f"{url.host!r} is a DNS name inside the cluster. Use serviceName and port instead of url."
        case _:
            return ""


def _rule_problem(url: McpUrl, settings: Settings) -> str:
    """Say why the settings do not allow a URL; empty if they do."""
    here = special_place(url.host, settings.names.cluster_domain) is Place.HERE
    if settings.backend_urls is BackendUrls.DENY:
        return "spec.gateway.backendUrls is Deny, so a Backend cannot have a url. Use serviceName or hostname."
    if settings.backend_urls is BackendUrls.HTTPS_ONLY and (here or not url.secure):
        return (
            f"{url.text!r} is not an https:// URL of an external host, and spec.gateway.backendUrls is HTTPSOnly. "
            "Use https:// and an external host, or use serviceName."
        )
    if settings.names.allowed is ExternalNames.NOWHERE and not here:
        return (
            "spec.contour.enableExternalNameService is false, so a Backend cannot use an external host. Use "
            "serviceName."
        )
    return ""
