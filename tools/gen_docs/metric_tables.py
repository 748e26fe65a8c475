"""Metrics, from what the programs write."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from tools.gen_docs.tables import rows, table

from authplane.authserver.backends.htpasswd.verified_credentials import CacheCounts
from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.verdict_metrics import AccessMetrics, VerdictCounts
from authplane.controlplane.serving.runtime.control_counts import ControlCounts, ControlView
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.policy.check.decision import Allow
from authplane.policy.identity.tokens.issuer import Standing
from authplane.policy.verdicts.verdict import Would


class _Followed:
    """An issuer of which everything is known."""

    counts: Mapping[tuple[str, str], int] = MappingProxyType({("https://issuer.example", "Fetched"): 1})

    def standings(self) -> tuple[Standing, ...]:
        return (Standing(issuer="https://issuer.example", ready=True, age=1.0, why=""),)


class _Controlled:
    """A control plane that has something to say of everything."""

    counts = ControlCounts()
    view = ControlView(
        faulty_documents=0,
        last_good=0,
        waiting=0,
        rejected=0,
        releases=MappingProxyType({"1.39": 1}),
        tried=(Tried(address="unix:/policy.sock", trial=Trial.ACCEPTED),),
        issuers=_Followed(),
    )


def _of_authorization_service() -> str:
    metrics = Metrics()
    metrics.checks("a")
    metrics.cache("a", CacheCounts())
    metrics.reloads("a")
    counts = VerdictCounts()
    counts.failures["AccessPolicy/default/a", "no_such_key"] += 1
    counts.decided["AccessPolicy/default/a", "rule", "0:CEL", Allow] = 1
    counts.shadows["AccessPolicy/default/a", Would.DENY, "allow"] = 1
    metrics.include(AccessMetrics("a", counts, _Followed(), lambda: 1))

    async def text() -> bytes:
        fleet = Fleet(metrics)
        with fleet.member("grpc", 0, "nowhere"):
            return await fleet.text()

    return asyncio.run(text()).decode()


def _of_control_plane() -> str:
    return ControlMetrics(_Controlled()).text().decode()


_PROGRAMS: Final = MappingProxyType(
    {"the authorization service": _of_authorization_service, "the control plane": _of_control_plane}
)


def metric_table(program: str, kept: str) -> str:
    """Return the metrics of a program; what the page says of each is kept, and otherwise what the program says."""
    told = {cells[0].strip("`"): cells[3] for cells in rows(kept) if len(cells) == 4}
    written = []
    for family in text_string_to_metric_families(_PROGRAMS[program]()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: dict[str, None] = {}
        for sample in family.samples:
            labels |= dict.fromkeys(label for label in sample.labels if label != "le")
        shown = ", ".join(f"`{label}`" for label in labels)
        written.append((f"`{name}`", family.type, shown, told.get(name) or family.documentation))
    return table(("metric", "type", "labels", "meaning"), written)
