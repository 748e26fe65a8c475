"""`authplane check`."""

import logging
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape

from authplane.authserver.backends.runtime.check_once import ask_once
from authplane.authserver.backends.runtime.external_endpoints import asked_endpoints
from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.console import out
from authplane.cli.shared.output import Output, OutputOption, print_json
from authplane.cli.shared.parameters import Option
from authplane.cli.shared.policy_files import (
    FetchOption,
    KeysOption,
    PrivateOption,
    read_enforced,
    read_keys,
    read_text,
    stop_at,
    warn_of_errors,
)
from authplane.core.problems import printable
from authplane.devkit.policies.check_records import check_record, check_tree, tree_lines
from authplane.devkit.policies.checking import Circumstances, check
from authplane.devkit.policies.request_files import AskedRequest, parse_requests
from authplane.devkit.policies.request_routes import find_way
from authplane.resources.documents import Finding
from authplane.runtime.log import set_up_log

_COLOURS = {"allow": "green", "deny": "red", "unavailable": "yellow"}


@with_cluster
def check_requests(
    folder: Place,
    request: Annotated[
        Path,
        Option("--request", metavar="FILE", help="YAML file with a request or a list of requests.", show_default=False),
    ],
    explain: Annotated[
        bool, Option("--explain", help="Show every evaluated policy, rule and expression as a tree.")
    ] = False,
    keys: KeysOption = None,
    fetch: FetchOption = False,
    allow_private_issuers: PrivateOption = False,
    ask: Annotated[
        bool, Option("--ask", help="Call external authorization services, as the policy server does.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Evaluate requests against the AccessPolicies of a folder and show each decision with its reason.

    Exit status: 1 if a file has an error. Otherwise 0, whatever the decisions are.

    Example: authplane check ./gateway --request call.yaml --explain
    """
    set_up_log(level=logging.ERROR)
    enforced = read_enforced(folder)
    text = read_text(request, binary="body")
    found = parse_requests(text)
    stop_at(found.findings)
    ways = [find_way(asked, enforced, text) for asked in found.requests]
    stop_at(tuple(each for each in ways if isinstance(each, Finding)))
    at_hand = read_keys(enforced, keys, fetch=fetch, allow_private=allow_private_issuers)
    endpoints = asked_endpoints(enforced.policies, enforced.loaded.resources)
    answer = partial(ask_once, endpoints) if ask else None
    checked = [
        check(enforced.policies, asked, Circumstances(now=datetime.now(UTC), keys=at_hand, answer=answer))
        for asked in ways
        if isinstance(asked, AskedRequest)
    ]
    records = [check_record(each, asked=ask) for each in checked]
    if output is Output.JSON:
        print_json(records if found.many else records[0])
    else:
        for index, (record, each) in enumerate(zip(records, checked, strict=True)):
            _print(record, f"{index}: " if found.many else "")
            for line in tree_lines(check_tree(each, asked=ask), "   ") if explain else ():
                out.print(line, markup=False)
    warn_of_errors([enforced], folder)


def _print(record: dict[str, Any], number: str) -> None:
    word, status = record["decision"], record["httpStatus"]
    because = " ".join(filter(None, (record["policy"], record["rule"], record["entry"])))
    said = f"{because}: {record['reason']}" if because else record["reason"]
    out.print(f"{number}[{_COLOURS[word]}]{word}[/]{f' {status}' if status else ''}  {escape(printable(said))}")
    if record["identity"]:
        out.print(f"   identity {printable(record['identity'])}", markup=False)
    for note in record["notes"]:
        out.print(f"   {note}", markup=False)
