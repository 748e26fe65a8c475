"""`authplane check`."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from authplane.app.check_records import check_record, check_tree, tree_lines
from authplane.app.checking import Checked, Circumstances, check
from authplane.app.request_files import parse_requests
from authplane.base.problems import printable
from authplane.cli.folder import FolderArgument
from authplane.cli.output import Output, OutputOption, err, out, print_json
from authplane.cli.policy_files import (
    FetchOption,
    KeysOption,
    PrivateOption,
    read_enforced,
    read_keys,
    read_text,
    stop_at,
)
from authplane.io.log import set_up_log
from authplane.policy.access.compile import errors_of
from authplane.policy.access.settings import Options

_COLOURS = {"allow": "green", "deny": "red", "unavailable": "yellow"}


def check_requests(
    folder: FolderArgument,
    request: Annotated[
        Path, typer.Option("--request", metavar="FILE", help="A request, or a list of them.", show_default=False)
    ],
    explain: Annotated[bool, typer.Option("--explain", help="Show everything that was tried, as a tree.")] = False,
    keys: KeysOption = None,
    fetch: FetchOption = False,
    allow_private_issuers: PrivateOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell how requests would be judged by the AccessPolicies of a folder, and why.

    The decision is in the output: the exit status is 0 whatever it is, and 1 if the file has a mistake.

    Example: authplane check ./gateway --request call.yaml --explain
    """
    set_up_log(level=logging.ERROR)
    found = parse_requests(read_text(request, binary="body"))
    stop_at(found.findings)
    enforced = read_enforced(folder, Options(allow_http_issuers=allow_private_issuers))
    at_hand = read_keys(enforced, keys, fetch=fetch, allow_private=allow_private_issuers)
    given = Circumstances(now=datetime.now(UTC), keys=at_hand)
    checked = [check(enforced.policies, asked, given) for asked in found.requests]
    if output is Output.JSON:
        records = [check_record(each, asked=False) for each in checked]
        print_json(records if found.many else records[0])
    else:
        for index, each in enumerate(checked):
            _print(each, f"{index}: " if found.many else "", explain=explain)
    errors = sum(1 for _ in errors_of(enforced.compiled))
    if errors:
        err.print(f"{errors} errors in policies, which deny what they protect: see authplane lint {folder}")


def _print(checked: Checked, number: str, *, explain: bool) -> None:
    record = check_record(checked, asked=False)
    word, status = record["decision"], record["httpStatus"]
    because = " ".join(filter(None, (record["policy"], record["rule"], record["entry"])))
    said = f"{because}: {record['reason']}" if because else record["reason"]
    out.print(f"{number}[{_COLOURS[word]}]{word}[/]{f' {status}' if status else ''}  {escape(printable(said))}")
    if record["identity"]:
        out.print(f"   identity {printable(record['identity'])}", markup=False)
    for note in checked.notes:
        out.print(f"   {note}", markup=False)
    if explain:
        for line in tree_lines(check_tree(checked, asked=False), "   "):
            out.print(line, markup=False)
