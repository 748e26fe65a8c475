"""A control plane of a cluster as a program of its own, so that tests can stop and kill it.

It prints the number of statuses that it has written, and whether it leads, whenever one of them changes.
"""

import asyncio
import sys
from pathlib import Path

from tests.controlplane.publishing.cluster_lab import control_plane

from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import find_login
from authplane.runtime.run_until_stopped import Stop, first_of, run_program


async def _program(stop: Stop) -> None:
    kubeconfig, namespace, socket = sys.argv[1:]
    client = ApiClient(Credentials(find_login(Path(kubeconfig), "", {})))
    async with control_plane(client, namespace, Path(socket)) as plane:

        async def tell() -> None:
            said = ""
            while True:
                now = f"written={plane.counts.statuses()} leads={plane.counts.leads()}"
                if now != said:
                    said = now
                    sys.stdout.write(f"{now}\n")
                    sys.stdout.flush()
                await asyncio.sleep(0.05)

        await first_of(stop.asked, tell)


if __name__ == "__main__":
    run_program(_program)
