"""`authplane doctor`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import click
from rich.markup import escape

from authplane.cli.shared.built_folder import read_generation
from authplane.cli.shared.cluster_options import (
    ContextOption,
    KubeconfigOption,
    KubernetesOption,
    LeaseNamespaceOption,
    NamespacesOption,
    choose_login,
    chosen_namespaces,
)
from authplane.cli.shared.console import out
from authplane.cli.shared.output import Output, OutputOption, fail, print_json
from authplane.cli.shared.parameters import Argument, Option
from authplane.controlplane.serving.runtime.policy_server_probe import ask_served
from authplane.devkit.diagnosis.cluster_examination import ClusterPlan, examine_cluster
from authplane.devkit.diagnosis.cluster_permissions import Component
from authplane.devkit.diagnosis.cluster_probes import account_user
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row, examine, row_record
from authplane.devkit.diagnosis.probes import PROBES
from authplane.runtime.log import set_up_log

_HEAD: Final = ("PROBE", "SUBJECT", "OUTCOME", "MESSAGE")
_COLOURS: Final = {
    Outcome.OK: "green",
    Outcome.WARNING: "yellow",
    Outcome.FINDING: "red",
    Outcome.UNKNOWN: "yellow",
}


def doctor(
    folder: Annotated[
        Path | None, Argument(metavar="[DIR]", help="Folder with YAML files, or one file. Default: the current folder.")
    ] = None,
    kubernetes: KubernetesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    namespaces: NamespacesOption = "",
    lease_namespace: LeaseNamespaceOption = "",
    control_account: Annotated[
        str,
        Option(
            help="ServiceAccount of the control plane. doctor checks its permissions. Default: the current user.",
            metavar="NAMESPACE/NAME",
        ),
    ] = "",
    policy_account: Annotated[
        str,
        Option(
            help="ServiceAccount of the policy server. doctor checks its permissions. Default: the current user.",
            metavar="NAMESPACE/NAME",
        ),
    ] = "",
    allow_private_issuers: Annotated[
        bool, Option("--allow-private-issuers", help="Allow issuers on this machine or on a private network.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check everything that a folder or a cluster relies on, and print a remedy for each finding.

    The command connects to the policy server, issuers, authorization services and origins as Envoy and the policy
    server do. It also checks the validity of certificates, the clock of this machine, the ports and the release of
    Envoy. It ends within half a minute after it has read the resources. Run it on Envoy's machine.

    With --kubernetes, it also checks the version of the API server, the installed CustomResourceDefinitions and the
    fields that they drop, the permissions of the control plane and of the policy server, and which replica writes
    statuses.

    Exit status: 1 if there is a finding, 2 if authplane cannot read the folder. Otherwise 0, even if there are warnings
    or unknown outcomes.

    Example: authplane doctor ./gateway
    """
    if kubernetes:
        if folder is not None:
            fail("You cannot combine DIR and --kubernetes. Remove one of them.", status=2)
        set_up_log(level=logging.ERROR)
        login = choose_login(kubeconfig, context)
        accounts = {Component.CONTROL: control_account, Component.POLICY: policy_account}
        plan = ClusterPlan(
            login=login,
            lease_namespace=lease_namespace or login.namespace,
            namespaces=chosen_namespaces(namespaces),
            accounts={component: _user(text) for component, text in accounts.items() if text},
            allow_private_issuers=allow_private_issuers,
        )
        _report(examine_cluster(plan), output)
        return
    folder = folder or Path()
    served = ask_served(folder)
    examined = Examined(
        generation=read_generation(folder),
        given=served or (),
        served=served is not None,
        allow_private_issuers=allow_private_issuers,
    )
    _report(examine(examined, PROBES), output)


def _user(account: str) -> str:
    namespace, _, name = account.partition("/")
    if not namespace or not name or "/" in name:
        fail(f'"{account}" is not a ServiceAccount. Use NAMESPACE/NAME.', status=2)
    return account_user(namespace, name)


def _report(rows: Sequence[Row], output: Output) -> None:
    """Print all rows; exit with status 1 if there is a finding."""
    if output is Output.JSON:
        print_json([row_record(row) for row in rows])
    else:
        for line in _lines(rows):
            out.print(line)
    if any(row.outcome is Outcome.FINDING for row in rows):
        raise click.exceptions.Exit(1)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    cells = [_HEAD, *((row.probe, row.subject, row.outcome.value, row.message) for row in rows)]
    first, second, third = (max(len(line[column]) for line in cells) for column in range(3))
    probe, subject, outcome, message = _HEAD
    yield f"[bold]{probe:<{first}}  {subject:<{second}}  {outcome:<{third}}  {message}[/]"
    for row in rows:
        yield (
            f"{_cell(row.probe, first)}  {_cell(row.subject, second)}  "
            f"[{_COLOURS[row.outcome]}]{row.outcome.value:<{third}}[/]  {escape(row.message)}"
        )
        if row.remedy:
            yield f"    Fix: {escape(row.remedy)}"


def _cell(text: str, width: int) -> str:
    return escape(text) + " " * (width - len(text))
