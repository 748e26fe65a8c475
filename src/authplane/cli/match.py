"""`authplane match`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from authplane.cli.shared.console import out
from authplane.cli.shared.output import Output, OutputOption, print_json
from authplane.cli.shared.parameters import Argument, Option
from authplane.cli.shared.policy_files import read_text, stop_at
from authplane.core.problems import printable
from authplane.devkit.matching.call_files import parse_calls
from authplane.devkit.matching.match_records import match_line, match_record, match_tree
from authplane.devkit.matching.matching_files import parse_tree_file
from authplane.devkit.policies.check_records import tree_lines


def match_calls(
    tree: Annotated[
        Path, Argument(metavar="TREE", help="File with a Matcher or the configuration of a composite filter.")
    ],
    request: Annotated[
        Path, Option("--request", metavar="FILE", help="YAML file with a call or a list of calls.", show_default=False)
    ],
    explain: Annotated[bool, Option("--explain", help="Show every evaluated matcher and input as a tree.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show which branch of a matcher tree each gRPC call matches, and why.

    Exit status: 0 with or without a match, 1 if a file has an error.

    Example: authplane match tree.yaml --request call.yaml --explain
    """
    asked = parse_calls(read_text(request), datetime.now(UTC))
    stop_at(asked.findings)
    written = read_text(tree)
    files = {side: parse_tree_file(written, side) for side in dict.fromkeys(call.side for call in asked.calls)}
    for findings in dict.fromkeys(file.findings for file in files.values()):
        stop_at(findings)
    answers = [(files[call.side], found) for call in asked.calls if (found := files[call.side].explain(call))]
    if output is Output.JSON:
        records = [match_record(file, found) for file, found in answers]
        print_json(records if asked.many else records[0])
        return
    for index, (file, found) in enumerate(answers):
        out.print(printable(f"{f'{index}: ' if asked.many else ''}{match_line(file, found)}"), markup=False)
        for line in tree_lines(match_tree(found), "   ") if explain else ():
            out.print(line, markup=False)
