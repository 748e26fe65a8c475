"""Runs an xDS client in the test's own event loop."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from authplane.dataplane.runtime.xds.xds_client import XdsClient
from authplane.runtime.child_processes import owned_tasks
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap
from authplane.xds.client.watched_types import ResourceType


@asynccontextmanager
async def xds_client(
    bootstrap: Bootstrap, types: Iterable[ResourceType[Any]], **more: Any
) -> AsyncGenerator[XdsClient]:
    """Run a client while the block runs."""
    client = XdsClient(bootstrap, types, **more)
    async with owned_tasks() as tasks:
        tasks.create_task(client.run())
        try:
            yield client
        finally:
            client.stop()
