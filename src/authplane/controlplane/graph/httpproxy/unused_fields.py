"""Checks fields that have no effect here: what Contour rejects in them is an error here too."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from authplane.controlplane.graph.model.envoy_regexes import regex_problem
from authplane.core.problems import Problems
from authplane.resources.kinds.contour import Route, VirtualHost
from authplane.resources.kinds.contour_unused import CookieRewritePolicy


def refuse_in_host(virtual_host: VirtualHost, problems: Problems) -> None:
    """Report what Contour would reject in the CORS policy of a host."""
    if virtual_host.cors_policy is None:
        return
    for index, origin in enumerate(virtual_host.cors_policy.allow_origin):
        if not _is_origin(origin) and regex_problem(origin):
            with problems.at("corsPolicy", "allowOrigin", index):
                problems.add(
                    "PolicyDidNotParse",
                    f'Spec.VirtualHost.CORSPolicy: invalid allowed origin "{origin}": allowed origin is invalid exact '
                    "match and invalid regex match. Use a scheme and a host, or a regular expression.",
                )


def refuse_in_route(route: Route, problems: Problems) -> None:
    """Report what Contour would reject in the cookie rules of a route and its services."""
    with problems.at("cookieRewritePolicies"):
        _refuse_cookies(route.cookie_rewrite_policies, "route", problems)
    for index, service in enumerate(route.services):
        with problems.at("services", index, "cookieRewritePolicies"):
            _refuse_cookies(service.cookie_rewrite_policies, "service", problems)


def _refuse_cookies(policies: Sequence[CookieRewritePolicy], whose: str, problems: Problems) -> None:
    seen: set[str] = set()
    for index, each in enumerate(policies):
        wrong = ""
        if each.name in seen:
            wrong = f'duplicate cookie rewrite rule for cookie "{each.name}"'
        elif not each.rewrites:
            wrong = f'no attributes rewritten for cookie "{each.name}"'
        seen.add(each.name)
        if wrong:
            with problems.at(index):
                problems.add(
                    "CookieRewritePoliciesInvalid",
                    f"{wrong} on {whose} cookie rewrite rules. Correct or remove the rule.",
                )


def _is_origin(text: str) -> bool:
    """Tell whether this is ``*``, or a scheme and a host as browsers send them."""
    if text == "*":
        return True
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) and f"{parts.scheme}://{parts.netloc}" == text
