"""Which HTTPProxies are served here: those of another ingress class are left to their own controller."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.core.names import Ref
from authplane.core.problems import Path
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import CLASS_ANNOTATIONS, HTTPProxy

_DEFAULT: Final = frozenset({"", "authplane", "contour"})
_REMEDY: Final = "Change the class of the HTTPProxy, or spec.ingress.classNames of the ContourConfiguration."
"""As Contour without configured class names: objects without a class, and those of our name or of Contour's.

In a cluster, where Contour may be beside us, the objects of its class are left out before.
"""


def leave_to_others(resources: Resources, settings: Settings, reports: Reports) -> Resources:
    """Return the resources without the HTTPProxies of other classes: for every later pass they do not exist."""
    ours = settings.ingress_classes or _DEFAULT
    others = {name: each for name, each in resources.proxies.items() if each.ingress_class not in ours}
    for name, each in others.items():
        problems = reports.of(Ref("HTTPProxy", name.namespace, name.name))
        with problems.at(*_where(each)):
            problems.warn("OtherIngressClass", _words(each.ingress_class, settings))
    unread = tuple(each for each in resources.unread_proxies if each.ingress_class in {*ours, None})
    if not others and len(unread) == len(resources.unread_proxies):
        return resources
    proxies = MappingProxyType({name: each for name, each in resources.proxies.items() if name not in others})
    return replace(resources, proxies=proxies, unread_proxies=unread)


def _where(proxy: HTTPProxy) -> Path:
    """Return the path of what gives an HTTPProxy its class."""
    for each in CLASS_ANNOTATIONS:
        if proxy.metadata.annotations.get(each):
            return ("metadata", "annotations", each)
    return ("spec", "ingressClassName") if proxy.spec.ingress_class_name else ()


def _words(given: str, settings: Settings) -> str:
    whose = f'HTTPProxies of ingress class "{given}"' if given else "HTTPProxies without an ingress class"
    names = ", ".join(f'"{each}"' for each in sorted(settings.ingress_classes))
    ours = f"HTTPProxies of {names}" if names else 'HTTPProxies without a class and those of "authplane" or "contour"'
    return f"This gateway does not serve {whose}. It serves only {ours}. {_REMEDY}"
