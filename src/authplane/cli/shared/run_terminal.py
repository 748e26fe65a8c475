"""What `authplane run` prints while it runs."""

import asyncio
from collections.abc import Sequence
from typing import Final, NoReturn, assert_never

from rich.markup import escape

from authplane.cli.shared.access_lines import is_access, json_record, request_line
from authplane.cli.shared.change_lines import applied_line, changes_line
from authplane.cli.shared.console import out, print_hanging
from authplane.cli.shared.output import count, print_finding
from authplane.controlplane.serving.runtime.ads_stream import Connected, Disconnected
from authplane.controlplane.serving.runtime.control_plane import Rebuilt
from authplane.controlplane.serving.runtime.policy_server_probe import PolicyServerTried
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.core.problems import Severity
from authplane.core.text import name_some
from authplane.devkit.local.joined_requests import JoinedRequest, JoinedRequests
from authplane.devkit.local.local_stack import NODE, Decided, Output, RunEvent, RunSettings, Serving
from authplane.devkit.local.needed_parts import Part, needed_parts
from authplane.devkit.local.quickstart import QuickstartState, agent_program, agent_tries, tries
from authplane.devkit.local.served_urls import ServedUrl, served_urls
from authplane.resources.documents import Finding
from authplane.runtime.child_processes import Line, Stream
from authplane.runtime.clock import now
from authplane.runtime.log import event_words
from authplane.xds.server.stream_messages import Acked, Nacked

_MOST_URLS: Final = 20
_COLUMN: Final = "               "
_PAUSE: Final = 0.5
_MOST_RESOLVED: Final = 3


class RunTerminal:
    """Prints events for the person who started `authplane run`."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._requests = JoinedRequests()
        self._urls: tuple[ServedUrl, ...] | None = None
        self._missing: frozenset[Part] = frozenset()

    def tell(self, event: RunEvent) -> None:
        """Print an event."""
        match event:
            case Rebuilt():
                self._rebuilt(event)
            case Serving():
                self._serving(event)
            case Decided(request, verdict):
                for joined in self._requests.decided(request, verdict, _time()):
                    _print_request(joined)
            case Output(program, line):
                self._output(program, line)
            case Nacked(type_url=type_url, message=message):
                out.print(f"[red]Envoy rejected the {type_url.name.lower()}s[/]: {escape(message)}")
            case Connected() | Disconnected():
                _print_proxy(event)
            case PolicyServerTried(tried, remedy):
                _print_tried(tried, remedy)
            case Acked():
                pass
            case _:
                assert_never(event)

    async def show_open_requests(self) -> NoReturn:
        """Print the decisions of requests that stay open, forever."""
        while True:
            await asyncio.sleep(_PAUSE)
            for joined in self._requests.due(_time()):
                _print_request(joined)

    def _rebuilt(self, event: Rebuilt) -> None:
        for finding in event.appeared:
            print_finding(finding)
        if event.resolved:
            print_hanging("[green]resolved[/] ", escape(_resolved(event.resolved)))
        for held in event.held:
            wait = (
                f"authplane applies this change when the file has been unchanged for {self._settings.loosen_after:g} s"
            )
            print_hanging("[yellow]loosens[/] ", f"{escape(held.file)}: {escape(held.why)}; {wait}")
        if event.first or (event.held and not event.difference):
            return
        why = "updated issuer keys" if event.keys else "reloaded"
        done = changes_line(event.difference)
        if not event.keys:
            done = applied_line(done, errors=any(each.problem.severity is Severity.ERROR for each in event.appeared))
        print_hanging(f"[cyan]{why}[/] ", f"in {event.seconds * 1000:.0f} ms: {escape(done)}")

    def _serving(self, event: Serving) -> None:
        urls = served_urls(event.generation.built.graph)
        missing = needed_parts(self._settings.offered, event.generation) - event.parts.keys()
        if self._urls is None:
            self._welcome(event, urls)
        else:
            _print_urls("[green]now serves[/]     ", tuple(each for each in urls if each not in self._urls))
            gone = {each.url for each in self._urls} - {each.url for each in urls}
            for url in sorted(gone):
                out.print(f"[yellow]stopped[/]        {escape(url)}")
            for part in sorted(missing - self._missing):
                address = self._settings.offered[part]
                print_hanging(
                    "[yellow]not running[/]    ",
                    f"A resource now uses the {part.value} on {address}, which is not running. Restart"
                    f" 'authplane run' to start the {part.value}.",
                )
        self._urls, self._missing = urls, missing

    def _welcome(self, event: Serving, urls: tuple[ServedUrl, ...]) -> None:
        _print_urls("serves         ", urls)
        lead = "also runs      "
        for part, elsewhere in event.parts.items():
            print_hanging(lead, self._part(part, elsewhere))
            lead = _COLUMN
        wait = f"{self._settings.loosen_after:g} s"
        edit = f"[dim](authplane applies a saved change at once; one that removes protection, after {wait})[/]"
        print_hanging("resources      ", f"{escape(str(self._settings.root))} {edit}")
        if self._settings.quickstart:
            self._print_tries(event)
        out.print("[dim]Press Ctrl-C to stop. Requests:[/]")

    def _part(self, part: Part, elsewhere: str) -> str:
        address = self._settings.offered[part]
        if elsewhere:
            who = escape(elsewhere.removesuffix(" listens there"))
            return f"[yellow]{part.value} not started[/]: {who} listens on {address}, and Envoy uses that program"
        match part:
            case Part.AUTHSERVER:
                return f"{part.value} on {address} (testserver, mode {self._settings.mode.value})"
            case Part.ISSUER:
                return f"{part.value} https://{address} [yellow](not for production)[/]"
            case Part.ECHO | Part.TOOLS:
                return f"{part.value} on {address}"
            case _:
                assert_never(part)

    def _print_tries(self, event: Serving) -> None:
        settings = self._settings
        given = QuickstartState(
            workspace=settings.workspace, generation=event.generation, parts=event.parts.keys(), mode=settings.mode
        )
        for each in (*tries(given), *agent_tries(given, now())):
            out.print("\n" + "\n".join(f"  [bold]{escape(line)}[/]" for line in each.line.splitlines()))
            print_hanging("    [dim]→[/] ", f"[dim]{escape(each.answer)}[/]")
        program = agent_program(given)
        if program:
            out.print("\n  The same calls with the MCP SDK for Python:\n")
            out.print(program, markup=False)
        out.print()

    def _output(self, program: str, line: Line) -> None:
        record = json_record(line.text)
        if program == "envoy" and line.stream is Stream.STDOUT and is_access(record):
            _print_request(self._requests.ended(record))
        elif program == "envoy" or (line.stream is Stream.STDERR and record.get("level") not in {"info", "debug"}):
            text = event_words(record) if "event" in record else line.text
            out.print(f"[dim]{program}: {escape(text)}[/]")


def _resolved(findings: Sequence[Finding]) -> str:
    """Name the problems that are gone, by reason and resource."""
    names = [f"{each.problem.reason} of {each.ref or each.place}" for each in findings]
    return f"{count(len(findings), 'problem')}: {name_some(names, _MOST_RESOLVED)}"


def _time() -> float:
    return asyncio.get_running_loop().time()


def _print_request(joined: JoinedRequest) -> None:
    print_hanging(*request_line(joined, now()))


def _print_urls(lead: str, urls: tuple[ServedUrl, ...]) -> None:
    for each in urls[:_MOST_URLS]:
        print_hanging(lead, f"[bold]{escape(each.url)}[/]  {escape(', '.join(each.details))}")
        lead = _COLUMN
    if len(urls) > _MOST_URLS:
        out.print(f"{_COLUMN}and {len(urls) - _MOST_URLS} more: see authplane compile")


def _print_proxy(event: Connected | Disconnected) -> None:
    if event.node != NODE:
        verb = "connected" if isinstance(event, Connected) else "disconnected"
        out.print(f"proxy {escape(event.node)} {verb}")


def _print_tried(tried: Tried, remedy: str) -> None:
    if tried.trial in {Trial.UNREACHABLE, Trial.HANDSHAKE}:
        out.print(f"[red]cannot connect to the policy server[/] {escape(tried.address)}: {escape(tried.why)}")
        out.print(f"    Fix: {escape(remedy)}")
