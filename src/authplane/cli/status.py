"""`authplane status`."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rich.markup import escape
from rich.text import Text

from authplane.cli.shared.built_folder import read_generation
from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.console import out
from authplane.cli.shared.output import Output, OutputOption, print_json
from authplane.cli.shared.read_place import root_at
from authplane.controlplane.graph.model.programming import NotServed
from authplane.controlplane.serving.runtime.control_socket import NotLiveError, ask_live
from authplane.controlplane.status.gateway_status import CONTROLLER
from authplane.controlplane.status.status_json import Transitions
from authplane.resources.service_endpoints import NO_ENDPOINTS, lacks_endpoints
from authplane.runtime.clock import now

_POLICY_SERVER = "PolicyServerReady"
_COLOURS = {"True": "green", "False": "red", "Unknown": "yellow"}
_SHOWN = (("Valid", "Accepted"), ("Ready", "ResolvedRefs", _POLICY_SERVER), ("Programmed",))
"""The conditions of each column; kinds of the Gateway API have others."""
_WORST = ("False", "Unknown", "True")


@with_cluster
def status(folder: Place, output: OutputOption = Output.TEXT) -> None:
    """Show the status of every resource, as Kubernetes would store it.

    If a control plane serves the folder, the status includes configuration that proxies rejected. The column ENFORCED
    shows whether Envoy (Native), the policy server (CallOut) or both (Mixed) decide the rules of a policy.
    'authplane explain' shows why.

    Example: authplane status ./gateway -o json

    Example: authplane status --kubernetes --namespaces shop
    """
    records = _records(folder)
    if output is Output.JSON:
        print_json(records)
        return
    width = max((len(_name(record)) for record in records), default=0)
    placed = "  ENFORCED" if any(_enforced(_conditions(record["status"])) for record in records) else ""
    out.print(f"[bold]{'RESOURCE':<{width}}  VALID    READY    PROGRAMMED{placed}[/]")
    for record in records:
        conditions = list(_conditions(record["status"]))
        cells = "  ".join(_cell(_state(kinds, conditions)) for kinds in _SHOWN)
        out.print(f"{escape(_name(record)):<{width}}  {cells}     {_enforced(conditions)}".rstrip())
        for reason in dict.fromkeys(_reasons(conditions)):
            out.print(Text(f"    {reason}", "dim"))


def _records(place: Place) -> list[dict[str, Any]]:
    try:
        records: list[dict[str, Any]] = json.loads(ask_live(root_at(place), "/status"))
    except NotLiveError:
        return Transitions().records(read_generation(place).status(NotServed()), now())
    return records


def _conditions(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the conditions of a resource, then those that authplane wrote for its parts."""
    yield from status.get("conditions", ())
    for part in (*status.get("listeners", ()), *status.get("parents", ()), *status.get("ancestors", ())):
        if isinstance(part, dict) and part.get("controllerName", CONTROLLER) == CONTROLLER:
            yield from part["conditions"]


def _state(kinds: tuple[str, ...], conditions: list[dict[str, Any]]) -> str:
    found = {condition["status"] for condition in conditions if condition["type"] in kinds}
    return next((state for state in _WORST if state in found), "")


def _enforced(conditions: Iterable[dict[str, Any]]) -> str:
    """Return how a policy is enforced at its targets; empty for other resources."""
    return ", ".join(dict.fromkeys(each["reason"] for each in conditions if each["type"] == "Enforced"))


def _name(record: dict[str, Any]) -> str:
    meta = record["metadata"]
    return f"{record['kind']}/{meta['namespace']}/{meta['name']}"


def _cell(state: str) -> str:
    return f"[{_COLOURS[state]}]{state:<7}[/]" if state else " " * 7


def _reasons(conditions: list[dict[str, Any]]) -> list[str]:
    lines = []
    for condition in conditions:
        subs = (*condition.get("errors", ()), *condition.get("warnings", ()))
        lines += [f"{sub['reason']}: {sub['message']}" for sub in subs]
        good = "False" if condition["type"] == "Conflicted" else "True"
        if condition["status"] != good and not condition.get("errors"):
            named = f"{_POLICY_SERVER}: {condition['status']}, " if condition["type"] == _POLICY_SERVER else ""
            lines.append(f"{named}{condition['reason']}: {condition['message']}")
        elif condition["type"] == "ResolvedRefs" and lacks_endpoints(condition["message"]):
            lines.append(f"{NO_ENDPOINTS}: {condition['message']}")
    return lines
