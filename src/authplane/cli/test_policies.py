"""`authplane test`."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

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

_READ: Final = (".yaml", ".yml", ".json")
"""How the files end that tests depend on."""


class Run(NamedTuple):
    """The outcome of all tests."""

    results: list[Result]
    findings: dict[str, tuple[Finding, ...]]
    """Errors in files, by file."""
    missed: tuple[RuleName, ...]
    """Rules that no case exercises."""

    @property
    def wrong(self) -> list[Finding]:
        """All errors in files."""
        return [finding for each in self.findings.values() for finding in each]

    @property
    def failed(self) -> bool:
        """Whether a case failed or a file has an error."""
        return bool(self.findings) or any(result.differences for result in self.results)


def run_policy_tests(
    folder: FolderArgument,
    junit: Annotated[
        Path | None, Option("--junit", metavar="FILE", help="Also write the results as JUnit XML.")
    ] = None,
    keys: KeysOption = None,
    watch: Annotated[
        bool, Option("--watch", help="Run the tests again after each change in the folder, until Ctrl-C.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run the tests of AccessPolicies in all *.test.yaml files of a folder.

    Exit status: 1 if a case fails or a file has an error. With --watch, Ctrl-C ends the command with exit status 0.

    Example: authplane test ./gateway --junit results.xml
    """
    set_up_log(level=logging.ERROR)
    if watch:
        if output is Output.JSON:
            fail("--watch prints text only. Remove -o json, or remove --watch.", status=2)
        _watch(folder, junit, keys)
        return
    run = _run_once(folder, junit, keys)
    if output is Output.JSON:
        print_json(_record(run.results, run.wrong, run.missed))
    else:
        _print(run.results, run.wrong, run.missed)
    if run.failed:
        raise click.exceptions.Exit(1)


def _run_once(folder: Path, junit: Path | None, keys: Path | None) -> Run:
    given = Circumstances(now=datetime.now(UTC), keys=_keys(keys))
    outcomes, findings = _run(folder, given)
    if junit is not None:
        _write(junit, junit_xml({file: each.results for file, each in outcomes.items()}, findings))
    results = [result for outcome in outcomes.values() for result in outcome.results]
    return Run(results, findings, unexercised(list(outcomes.values())))


def _watch(folder: Path, junit: Path | None, keys: Path | None) -> None:
    """Run the tests after each change, until the program is stopped."""
    from authplane.runtime.run_until_stopped import Stop, first_of, run_program  # noqa: PLC0415 (as below)
    from authplane.sources.runtime.watch import changes  # noqa: PLC0415 (it needs an extra, and only --watch does)

    async def follow() -> None:
        before: Run | None = None
        async for seen in changes(folder):
            if seen is not None and not any(path.endswith(_READ) for path in seen):
                continue
            out.print(f"[dim]{datetime.now(UTC).astimezone():%H:%M:%S}[/] running the tests of {escape(str(folder))}")
            # A sentence has said what is wrong; the next change may correct it.
            with suppress(click.exceptions.Exit):
                run = _run_once(folder, junit, keys)
                _print(changed_first(run.results, before.results if before is not None else ()), run.wrong, run.missed)
                before = run

    async def program(stop: Stop) -> None:
        await first_of(stop.asked, follow)

    try:
        run_program(program)
    except OSError as error:
        why = f"Cannot watch {folder}: {error.strerror}."
        fail(
            f"{why} If the limit fs.inotify.max_user_watches is reached, raise it. Otherwise, run the"
            " command without --watch.",
            status=2,
        )


def changed_first(results: Sequence[Result], before: Sequence[Result]) -> list[Result]:
    """Put the results that differ from those before first; without results before, keep the order."""
    known = {(each.case.place.file, each.case.name): each.differences for each in before}

    def is_known(result: Result) -> bool:
        return known.get((result.case.place.file, result.case.name)) == result.differences

    return sorted(results, key=is_known) if before else list(results)


def _run(folder: Path, given: Circumstances) -> tuple[dict[str, Outcome], dict[str, tuple[Finding, ...]]]:
    outcomes: dict[str, Outcome] = {}
    findings: dict[str, tuple[Finding, ...]] = {}
    try:
        files = find_tests(folder)
        if not files:
            fail(f"{folder} has no *.test.yaml file. Add one, or pass the folder that contains the tests.", status=2)
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
        fail(f"Cannot write {path}: {error.strerror}. Check the folder and its permissions.", status=2)


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
        lacks = "no case is granted by" if rule.grants else "no case has a sender of"
        out.print(f"{rule.place}: {lacks} rule {rule.rule} of {rule.policy}", markup=False)
    failed = sum(bool(result.differences) for result in results)
    said = f"{len(results) - failed} passed, {failed} failed"
    said += f", {count(len(findings), 'error')} in files" if findings else ""
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
