"""The options of commands that read a cluster in place of a folder."""

import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import click

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Argument, Option
from authplane.core.values import dataclass
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
    str,
    Option("--namespaces", help="Namespaces to read, separated by commas. Default: all namespaces.", metavar="NAMES"),
]
LeaseNamespaceOption: TypeAlias = Annotated[
    str,
    Option(
        "--lease-namespace",
        help="Namespace of the Leases of the control planes. Default: the namespace of the Pod or of the context.",
        metavar="NAME",
    ),
]

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """Which cluster to read, and which part of it."""

    kubeconfig: Path | None = None
    context: str = ""
    namespaces: tuple[str, ...] = ()
    selector: str = ""

    def __str__(self) -> str:
        return "--kubernetes"


Place: TypeAlias = Path | ClusterChoice
"""Where resources are: a folder or a cluster."""


def choose_login(kubeconfig: Path | None, context: str) -> Login:
    """Return the API server and the credentials that the options choose; exit with an error if there are none."""
    try:
        return find_login(kubeconfig, context, os.environ)
    except CredentialsError as error:
        fail(str(error), status=2)


def chosen_namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces of ``--namespaces``; exit with an error if one cannot be a namespace."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            fail(f'"{name}" is not a namespace. Use lower-case letters, digits and hyphens.', status=2)
    return names


def with_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command read a cluster: it receives a `Place` as ``folder``."""
    own = inspect.signature(command, eval_str=True)
    common = inspect.signature(_place, eval_str=True).parameters
    others = [each for each in own.parameters.values() if each.name != "folder"]
    parameters = [common["folder"], *others, *(each for each in common.values() if each.name != "folder")]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(folder=_place(**{name: given.pop(name) for name in common}), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__dict__["__signature__"] = own.replace(parameters=[each.replace(kind=keyword) for each in parameters])
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _place(
    folder: Annotated[
        Path | None,
        Argument(metavar="[DIR]", help="Folder with YAML files at any depth, or one file. Omit it with --kubernetes."),
    ] = None,
    kubernetes: KubernetesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    namespaces: NamespacesOption = "",
    selector: Annotated[
        str,
        Option(
            help="Label selector for HTTPProxies, Gateways and HTTPRoutes. It does not apply to other kinds.",
            metavar="LABELS",
        ),
    ] = "",
) -> Place:
    """Return what the options choose; exit with an error if they do not fit."""
    if kubernetes and folder is not None:
        fail("You cannot combine DIR and --kubernetes. Remove one of them.", status=2)
    if kubernetes:
        names = chosen_namespaces(namespaces)
        return ClusterChoice(kubeconfig=kubeconfig, context=context, namespaces=names, selector=selector)
    if folder is None:
        raise click.UsageError("Missing argument 'DIR'. Name a folder, or use --kubernetes.")
    if kubeconfig is not None or context or namespaces or selector:
        fail("Options for a cluster require --kubernetes. Add --kubernetes, or remove these options.", status=2)
    return folder
