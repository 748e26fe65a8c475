"""Clients of a test cluster, as our programs use them."""

from tests.support.kubernetes.local_cluster import Cluster

from authplane.core.secret import Secret
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import Login, Pem


def api_client(cluster: Cluster, token: str = "") -> ApiClient:
    """Return a client with a token, or with the administrator's; the caller opens and closes it."""
    login = Login(server=cluster.url, ca=Pem(path=str(cluster.ca_file)), token=Secret(token or cluster.token))
    return ApiClient(Credentials(login))
