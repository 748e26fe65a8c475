"""Runs the control plane of a cluster, and writes statuses to its API server."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from authplane.cli.shared.chosen_cluster import login_of, part_of
from authplane.cli.shared.cluster_options import ClusterChoice
from authplane.controlplane.publishing.runtime.publish_statuses import StatusPublisher
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.rules.access_settings import Options
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.run_until_stopped import Program, Stop, first_of
from authplane.sources.kubernetes.installed_kinds import InstalledKind
from authplane.sources.runtime.read_cluster import ClusterSource
from authplane.sources.runtime.read_schemas import follow_installed_kinds

log: Final = structlog.stdlib.get_logger()

Tell: TypeAlias = Callable[[Told], None]
Admin: TypeAlias = Callable[[Control], AbstractAsyncContextManager[None]]
"""Serves the admin pages of a control plane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterControl:
    """What a control plane of a cluster needs besides its settings."""

    choice: ClusterChoice
    state_dir: Path
    loosen_after: float
    lease_namespace: str


def control_program(given: ClusterControl, settings: ControlSettings, admin: Admin, tell: Tell) -> Program:
    """Return the program; exit with an error if there are no credentials."""
    credentials = Credentials(login_of(given.choice))

    async def program(stop: Stop) -> None:
        async with ApiClient(credentials) as client:
            publishing = _Publishing(tell)
            source = ClusterSource(
                client,
                part_of(given.choice),
                loosen_after=given.loosen_after,
                state_dir=given.state_dir,
                observe=publishing.observe,
            )
            plane = Control(source, publishing.tell, options=Options(token_reviews=True))
            namespace = given.lease_namespace or credentials.namespace
            publisher = StatusPublisher(plane, client, publishing.objects, namespace)
            publishing.publisher = publisher

            def installed(kinds: tuple[InstalledKind, ...]) -> None:
                plane.installed = kinds
                publisher.wake()

            async def serve() -> None:
                async with plane.serve(settings) as bound:
                    log.info("control plane listening", address=str(bound), cluster=client.server)
                    await first_of(
                        lambda: plane.follow(settings),
                        publisher.follow,
                        lambda: follow_installed_kinds(client, installed),
                    )

            async with admin(plane):
                log.info("reading the cluster", cluster=client.server)
                await first_of(stop.asked, serve)

    return program


class _Publishing:
    """Tells the publisher of statuses what happens."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.objects = StoredObjects()
        self.publisher: StatusPublisher | None = None

    def observe(self, ref: Ref, path: str, body: Mapping[str, Any] | None) -> None:
        """Take an object as the API server has it."""
        if body is None:
            self.objects.drop(ref)
        else:
            self.objects.put(ref, path, body)
        if self.publisher is not None:
            self.publisher.seen(ref)

    def tell(self, told: Told) -> None:
        """Pass on an event of the control plane, and have the statuses looked at."""
        self._tell(told)
        if self.publisher is not None:
            (self.publisher.rebuilt if isinstance(told, Rebuilt) else self.publisher.wake)()
