"""The cluster that the options of a command name."""

import asyncio
import logging

from authplane.cli.shared.cluster_options import ClusterChoice, choose_login
from authplane.cli.shared.output import fail
from authplane.resources.loaded_resources import Loaded
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import Login
from authplane.runtime.log import set_up_log
from authplane.sources.runtime.read_cluster import ClusterError, ClusterPart, read_once, root_of

__all__ = ["login_of", "part_of", "read_chosen", "root_of"]


def read_chosen(choice: ClusterChoice) -> Loaded:
    """Read a cluster once; exit with an error if it cannot be read."""
    set_up_log(level=logging.ERROR)
    try:
        return asyncio.run(_read(login_of(choice), part_of(choice)))
    except ClusterError as error:
        fail(str(error), status=2)


def login_of(choice: ClusterChoice) -> Login:
    """Find the credentials for a cluster; exit with an error if there are none."""
    return choose_login(choice.kubeconfig, choice.context)


def part_of(choice: ClusterChoice) -> ClusterPart:
    """Return which objects are read."""
    return ClusterPart(namespaces=choice.namespaces, selector=choice.selector)


async def _read(login: Login, part: ClusterPart) -> Loaded:
    async with ApiClient(Credentials(login)) as client:
        return await read_once(client, part)
