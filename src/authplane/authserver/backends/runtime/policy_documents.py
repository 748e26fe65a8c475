"""Where a policy server reads its documents."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from authplane.authserver.plan.server_plan import PolicyPlan
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import find_login
from authplane.sources.runtime.document_source import DocumentSource, FolderSource
from authplane.sources.runtime.last_good_store import LastGood
from authplane.sources.runtime.read_cluster import POLICY_KINDS, ClusterPart, ClusterSource
from authplane.sources.runtime.read_folder import Folder

log: Final = structlog.stdlib.get_logger()


class Opened(NamedTuple):
    """Documents that are followed, and the client of the cluster that they come from, if they do."""

    documents: DocumentSource
    client: ApiClient | None


@asynccontextmanager
async def opened_documents(plan: PolicyPlan) -> AsyncGenerator[Opened]:
    """Read all documents once, and follow them while the block runs."""
    state_dir = Path(plan.state_dir) if plan.state_dir else None
    if plan.cluster is None:
        root = Path(plan.folder)
        last_good = LastGood(state_dir, root) if state_dir else None
        folder = FolderSource(Folder(root, loosen_after=plan.loosen_after, last_good=last_good))
        async with folder.reading(_progress):
            yield Opened(folder, None)
        return
    kubeconfig = Path(plan.cluster.kubeconfig) if plan.cluster.kubeconfig else None
    login = find_login(kubeconfig, plan.cluster.context, os.environ)
    part = ClusterPart(namespaces=plan.cluster.namespaces, kinds=POLICY_KINDS)
    async with ApiClient(Credentials(login)) as client:
        cluster = ClusterSource(client, part, loosen_after=plan.loosen_after, state_dir=state_dir)
        log.info("reading the cluster", cluster=client.server)
        async with cluster.reading(_progress):
            yield Opened(cluster, client)


def _progress(done: int, of: int) -> None:
    log.info("reading resources", done=done, of=of)
