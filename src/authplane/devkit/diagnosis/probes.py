"""All probes of `authplane doctor`, and those that look at documents alone.

To add a probe, write the function and name it in `PROBES`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from authplane.controlplane.graph.model.match_words import match_words
from authplane.controlplane.graph.model.port_model import Port, hosts_of
from authplane.controlplane.graph.model.route_authorization import Disabled, Unprotected
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.core.problems import Severity
from authplane.core.text import name_some
from authplane.devkit.diagnosis.examination import Examined, Outcome, Probe, Row
from authplane.devkit.diagnosis.issuer_probe import probe_issuers
from authplane.devkit.diagnosis.machine_probes import probe_certificates, probe_envoy, probe_ports
from authplane.devkit.diagnosis.server_probes import (
    probe_extension_services,
    probe_external_services,
    probe_origins,
    probe_policy_server,
)
from authplane.policy.attached.unprotected import unprotected_problems
from authplane.policy.rules.policy_targets import BACKENDS

_MOST_ROUTES: Final = 3
_ADD_SERVICE: Final = "Add spec.virtualhost.authorization, or remove authPolicy.disabled."
_ADD_POLICY: Final = "Add an AccessPolicy that targets the Gateway."


async def probe_documents(examined: Examined) -> Sequence[Row]:
    """Count the problems of the documents; `authplane validate` names them."""
    severities = [each.problem.severity for each in examined.generation.findings]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    remedy = "Run 'authplane validate' to list the errors and warnings with file and line."
    if examined.in_cluster:
        remedy = "Run 'authplane validate --kubernetes' to list the errors and warnings."
    if errors:
        outcome, message = Outcome.FINDING, f"The documents have {_counted(errors, 'error')}."
    elif warnings:
        outcome, message = Outcome.WARNING, f"The documents have {_counted(warnings, 'warning')}."
    else:
        outcome, message, remedy = Outcome.OK, "The documents have no errors and no warnings.", ""
    subject = "cluster" if examined.in_cluster else "folder"
    return [Row(probe="documents", subject=subject, outcome=outcome, message=message, remedy=remedy)]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


async def probe_protection(examined: Examined) -> Sequence[Row]:
    """Name every Backend that no policy protects, and every route without authorization."""
    policies = examined.generation.compiled.policies
    rows = [
        Row(probe="protection", subject=str(ref), outcome=Outcome.FINDING, message=f"{wrong}.", remedy=_ended(remedy))
        for ref, problem in unprotected_problems(policies, examined.generation.routed)
        for wrong, _, remedy in (problem.message.partition(". "),)
    ]
    if not rows and any(aim.ref.kind in BACKENDS for aim in policies.attachments):
        message = "Every Backend has a policy that protects it."
        rows = [Row(probe="protection", subject="Backends", outcome=Outcome.OK, message=message)]
    return [*rows, *_open_routes(examined)]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def _open_routes(examined: Examined) -> Iterator[Row]:
    """Name what has routes that send requests on without authorization, once each."""
    graph = examined.generation.built.graph
    for kind, ports, add in (("HTTPProxy", graph.proxies, _ADD_SERVICE), ("HTTPRoute", graph.gateways, _ADD_POLICY)):
        for holder, routes in _by_holder(ports).items():
            yield Row(
                probe="protection",
                subject=f"{kind}/{holder}",
                outcome=Outcome.WARNING,
                message=f"Envoy does not authorize requests to these routes: {name_some(routes, _MOST_ROUTES)}.",
                remedy=f"{add} Ignore this if intended.",
            )


def _by_holder(ports: Iterable[Port]) -> dict[str, list[str]]:
    """Return the descriptions of open routes by their resource; each once, even if several ports have it."""
    found: dict[str, dict[str, None]] = {}
    for host in hosts_of(ports):
        for route in host.routes:
            if _is_open(route):
                found.setdefault(route.holder, {})[f"{host.name} {match_words(route.match)}"] = None
    return {holder: list(routes) for holder, routes in found.items()}


def _is_open(route: Route) -> bool:
    """Tell whether requests reach an origin unchecked; Backends are named by themselves."""
    match route.action:
        case Forward(targets=targets):
            given = route.authorizations
            each = zip(targets, given if len(given) == len(targets) else given * len(targets), strict=False)
            return any(isinstance(by, Unprotected | Disabled) and not target.mcp for target, by in each)
        case _:
            return False


CLUSTER_PROBES: Final[tuple[Probe, ...]] = (
    probe_documents,
    probe_protection,
    probe_policy_server,
    probe_issuers,
    probe_extension_services,
    probe_external_services,
    probe_origins,
    probe_certificates,
)
"""Those for the objects of a cluster: its Envoys run elsewhere."""

PROBES: Final[tuple[Probe, ...]] = (*CLUSTER_PROBES, probe_ports, probe_envoy)
