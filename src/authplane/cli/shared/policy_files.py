"""Reads the files of commands about policies: folders, as the policy server reads them, requests and keys."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import click

from authplane.cli.shared.cluster_options import Place
from authplane.cli.shared.console import err
from authplane.cli.shared.output import count, fail, print_finding
from authplane.cli.shared.parameters import Option
from authplane.cli.shared.read_place import options_at, read_place
from authplane.core.problems import Severity
from authplane.devkit.policies.checking import Enforced, Keys, enforce, parse_keys
from authplane.devkit.policies.policy_lint import lint_policies
from authplane.devkit.strict_files import LARGEST, Text, parse_text
from authplane.resources.documents import Finding
from authplane.runtime.issuers.issuer_keys import fetch_keys
from authplane.sources.runtime.read_folder import shown

KeysOption: TypeAlias = Annotated[
    Path | None,
    Option("--keys", metavar="FILE", help="File with key sets by issuer: {https://issuer.example: {keys: [...]}}."),
]
FetchOption: TypeAlias = Annotated[bool, Option("--fetch", help="Fetch issuer keys, as the policy server does.")]
PrivateOption: TypeAlias = Annotated[
    bool,
    Option("--allow-private-issuers", help="Allow --fetch to connect to this machine and to private networks."),
]


def read_enforced(place: Place) -> Enforced:
    """Read a folder or a cluster and compile its policies; exit with an error if it cannot be read."""
    return enforce(read_place(place), options_at(place))


def read_text(path: Path, *, binary: str = "") -> Text:
    """Read a file; exit with an error if it cannot be read."""
    try:
        with path.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        fail(f"Cannot read {path}: {error.strerror}. Check the path and its permissions.", status=2)
    return parse_text(shown(str(path)), content, binary=binary)


def read_keys(enforced: Enforced, path: Path | None, *, fetch: bool, allow_private: bool) -> Keys:
    """Return the keys that verify tokens: those of the file, then fetched keys of the other issuers."""
    found: Keys = {}
    if path is not None:
        found, findings = parse_keys(read_text(path))
        stop_at(findings)
    if not fetch:
        return found
    missing = [issuer for issuer in enforced.policies.issuers if issuer.url.names().isdisjoint(found)]
    fetched = fetch_keys(missing, allow_private_networks=allow_private)
    for url, why in fetched.failures.items():
        err.print("[yellow]warning:[/] ", end="")
        err.print(
            f"Cannot fetch keys of issuer {url}: {why}. authplane cannot verify tokens of this issuer."
            " Pass its keys with --keys.",
            markup=False,
        )
    return {**found, **fetched.keys}


def warn_of_errors(sets: Iterable[Enforced], where: Place) -> None:
    """Say on standard error that policies are invalid, which may explain a denial."""
    errors = {
        finding
        for enforced in sets
        for finding in lint_policies(enforced)
        if finding.problem.severity is Severity.ERROR
    }
    if errors:
        said = (
            f"The policies have {count(len(errors), 'error')}. Invalid policies deny all requests to their"
            f" targets. Run 'authplane lint {where}' to list the errors."
        )
        err.print(said, markup=False)


def stop_at(findings: tuple[Finding, ...]) -> None:
    """Print findings on standard error; exit if one of them is an error."""
    for finding in findings:
        print_finding(finding, to_stderr=True)
    if any(finding.problem.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(1)
