"""Two development issuers, as a SPIFFE provider and a cluster would be: they sign for real, over HTTPS."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from authplane.devkit.local.dev_issuer import IssuerPlan, RunningIssuer, dev_token, serve_issuer
from authplane.runtime.servers.listen import TcpAddress

TRUST_DOMAIN: Final = "example.org"
AUDIENCE: Final = "shop"
WORKLOAD: Final = "spiffe://example.org/agent"


@dataclass(frozen=True)
class WorkloadIssuers:
    """Where they are, and the tokens that they sign."""

    spire: RunningIssuer
    cluster: RunningIssuer
    now: datetime

    def svid(self, subject: str = WORKLOAD, *, lifetime: timedelta = timedelta(hours=1), **claims: Any) -> str:
        """Sign a JWT-SVID."""
        whole = {"sub": subject, "aud": [AUDIENCE], **claims}
        return dev_token(self.spire.folder.root, whole, now=self.now, lifetime=lifetime)

    def projected(
        self,
        account: str = "agent",
        namespace: str = "default",
        *,
        lifetime: timedelta = timedelta(hours=1),
        **claims: Any,
    ) -> str:
        """Sign a token as clusters project them into pods."""
        stated = {
            "namespace": namespace,
            "pod": {"name": f"{account}-0", "uid": "1"},
            "serviceaccount": {"name": account, "uid": "2"},
        }
        whole = {"sub": f"system:serviceaccount:{namespace}:{account}", "aud": [AUDIENCE], "kubernetes.io": stated}
        return dev_token(self.cluster.folder.root, {**whole, **claims}, now=self.now, lifetime=lifetime)

    def settings(self, *, verification: str = "Keys") -> tuple[str, str]:
        """Return the entries of ``issuers``, YAML in flow style."""
        svids = f"jwtSvids: {{trustDomain: {TRUST_DOMAIN}, audiences: [{AUDIENCE}]}}"
        accounts = f"serviceAccounts: {{audiences: [{AUDIENCE}], verification: {verification}}}"
        return _entry(self.spire, svids), _entry(self.cluster, accounts)


def _entry(issuer: RunningIssuer, kind: str) -> str:
    return f"{{url: '{issuer.url}', caFile: '{issuer.ca_file}', allowPrivateNetwork: true, {kind}}}"


@asynccontextmanager
async def workload_issuers(root: Path) -> AsyncGenerator[WorkloadIssuers]:
    now, anywhere = datetime.now(UTC), TcpAddress(host="127.0.0.1", port=0)
    async with (
        serve_issuer(IssuerPlan(folder=root / "spire", address=anywhere), now) as spire,
        serve_issuer(IssuerPlan(folder=root / "cluster", address=anywhere), now) as cluster,
    ):
        yield WorkloadIssuers(spire=spire, cluster=cluster, now=now)
