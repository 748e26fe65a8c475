"""`authplane test`."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import click
from rich.markup import escape

from authplane.cli.shared.console import out
from authplane.cli.shared.folder_argument import FolderArgument
from authplane.cli.shared.output import Output, OutputOption, count, fail, print_finding, print_json
from authplane.cli.shared.parameters import Option
from authplane.cli.shared.policy_files import KeysOption, read_text, stop_at, warn_of_errors
from authplane.controlplane.status.findings import finding_record
from authplane.core.problems import printable
from authplane.devkit.policies.checking import Circumstances, Keys, parse_keys
from authplane.devkit.policies.junit import junit_xml
from authplane.devkit.policies.policy_folders import find_tests
from authplane.devkit.policies.policy_tests import (
    Outcome,
    PolicySets,
    Result,
    RuleName,
    find_ways,
    parse_tests,
    run_tests,
    unexercised,
)
from authplane.resources.documents import Finding
from authplane.runtime.log import set_up_log
from authplane.sources.runtime.read_folder import FolderError


def run_policy_tests(
    folder: FolderArgument,
    junit: Annotated[Path | None, Option("--junit", metavar="FILE", help="Write the results as JUnit XML too.")] = None,
    keys: KeysOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run the tests of AccessPolicies: all files of a folder that are called *.test.yaml.

    Exit status 1 if a case fails or a file has a mistake.

    Example: authplane test ./gateway --junit results.xml
    """
    set_up_log(level=logging.ERROR)
    given = Circumstances(now=datetime.now(UTC), keys=_keys(keys))
    outcomes, findings = _run(folder, given)
    missed = unexercised(list(outcomes.values()))
    if junit is not None:
        _write(junit, junit_xml({file: each.results for file, each in outcomes.items()}, findings))
    results = [result for outcome in outcomes.values() for result in outcome.results]
    wrong = [finding for each in findings.values() for finding in each]
    if output is Output.JSON:
        print_json(_record(results, wrong, missed))
    else:
        _print(results, wrong, missed)
    if wrong or any(result.differences for result in results):
        raise click.exceptions.Exit(1)


def _run(folder: Path, given: Circumstances) -> tuple[dict[str, Outcome], dict[str, tuple[Finding, ...]]]:
    outcomes: dict[str, Outcome] = {}
    findings: dict[str, tuple[Finding, ...]] = {}
    try:
        files = find_tests(folder)
        if not files:
            fail(f"there is no file *.test.yaml in {folder}", status=2)
        sets = PolicySets(folder if folder.is_dir() else folder.parent)
        for path in files:
            tests = parse_tests(read_text(path, binary="body"))
            enforced = tests.findings or sets.of(tests, path.parent)
            if isinstance(enforced, tuple):
                findings[tests.text.file] = enforced
                continue
            tests = find_ways(tests, enforced)
            if tests.findings:
                findings[tests.text.file] = tests.findings
            outcomes[tests.text.file] = run_tests(tests.cases, enforced, given)
    except FolderError as error:
        fail(str(error), status=2)
    warn_of_errors(sets.all(), folder)
    return outcomes, findings


def _keys(path: Path | None) -> Keys:
    if path is None:
        return {}
    keys, findings = parse_keys(read_text(path))
    stop_at(findings)
    return keys


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", status=2)


def _print(results: list[Result], findings: list[Finding], missed: tuple[RuleName, ...]) -> None:
    width = max((len(printable(result.case.name)) for result in results), default=0)
    for result in results:
        colour, word = ("red", "FAIL") if result.differences else ("green", "ok  ")
        status = result.record["httpStatus"] or ""
        got = f"{result.record['decision']} {status}".strip()
        name = escape(printable(result.case.name).ljust(width))
        out.print(f"[{colour}]{word}[/]  {name}  {got:<15}  [dim]{escape(str(result.case.place))}[/]".rstrip())
        for difference in result.differences:
            out.print(f"      {printable(difference)}", markup=False)
    for finding in findings:
        print_finding(finding)
    for rule in missed:
        out.print(f"no case exercises the rule {rule.rule} of {rule.policy} ({rule.place})", markup=False)
    failed = sum(bool(result.differences) for result in results)
    said = f"{len(results) - failed} passed, {failed} failed"
    said += f", {count(len(findings), 'mistake')} in files" if findings else ""
    out.print(said + (f"; {count(len(missed), 'rule')} without a case" if missed else ""), markup=False)


def _record(results: list[Result], findings: list[Finding], missed: tuple[RuleName, ...]) -> dict[str, Any]:
    failed = sum(bool(result.differences) for result in results)
    return {
        "passed": len(results) - failed,
        "failed": failed,
        "cases": [
            {
                "name": result.case.name,
                "file": result.case.place.file,
                "line": result.case.place.line,
                "passed": not result.differences,
                "differences": list(result.differences),
                "got": result.record,
            }
            for result in results
        ],
        "findings": [finding_record(finding) for finding in findings],
        "unexercised": [
            {"policy": each.policy, "rule": each.rule, "file": each.place.file, "line": each.place.line}
            for each in missed
        ],
    }
