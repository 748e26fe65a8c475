"""The options of commands that use a cluster."""

import os
from pathlib import Path
from typing import Annotated, TypeAlias

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Option
from authplane.runtime.kubernetes.kubeconfig import CredentialsError, Login, find_login

KubernetesOption: TypeAlias = Annotated[
    bool, Option("--kubernetes", help="Read the objects of a Kubernetes cluster instead of a folder.")
]
KubeconfigOption: TypeAlias = Annotated[
    Path | None,
    Option(
        help="Kubeconfig file. Default: the files in KUBECONFIG, the ServiceAccount of the Pod, or ~/.kube/config.",
        metavar="FILE",
    ),
]
ContextOption: TypeAlias = Annotated[
    str, Option("--context", help="Context of the kubeconfig file. Default: its current context.", metavar="NAME")
]
NamespacesOption: TypeAlias = Annotated[
    str, Option("--namespaces", help="Namespaces to read, separated by commas. Default: all.", metavar="NAMES")
]
LeaseNamespaceOption: TypeAlias = Annotated[
    str,
    Option(
        "--lease-namespace",
        help="Namespace of the Leases of the control planes. Default: the namespace of the Pod or of the context.",
        metavar="NAME",
    ),
]


def choose_login(kubeconfig: Path | None, context: str) -> Login:
    """Return the API server and the credentials that the options choose; exit with an error if there are none."""
    try:
        return find_login(kubeconfig, context, os.environ)
    except CredentialsError as error:
        fail(str(error), status=2)


def chosen_namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces of ``--namespaces``."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
