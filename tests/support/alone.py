"""Keeps a test that is not marked ``real`` in its process and on this machine, so that ``make test-fast`` stays fast.

Python tells a hook of each start of a program and of each connection before it happens. The hook refuses what the test
that runs may not do; the refusal is no `Exception`, so that no code of ours takes it for a failure of the other side.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import pytest

_STARTS: Final[Mapping[str, int]] = {"subprocess.Popen": 0, "os.posix_spawn": 0, "os.exec": 0, "os.system": 0}
"""Events of programs that start, and which argument names the program."""
_FORKS: Final = frozenset({"os.fork", "os.forkpty", "pty.spawn"})
_KEPT: list[str] = []
"""The test that runs, if it may not leave."""


@contextmanager
def alone(test: str) -> Iterator[None]:
    """Refuse what this test, known by its name, may not do."""
    _KEPT.append(test)
    try:
        yield
    finally:
        _KEPT.remove(test)


def watch() -> None:
    """Have Python ask us from now on, once for a process."""
    sys.addaudithook(_judge)


def _judge(event: str, arguments: tuple[Any, ...]) -> None:
    if not _KEPT:
        return
    if event in _STARTS:
        _refuse(f"starts {arguments[_STARTS[event]]}")
    elif event in _FORKS:
        _refuse("starts a copy of itself")
    elif event == "socket.connect" and _leads_away(arguments[1]):
        _refuse(f"connects to {arguments[1]}")


def _leads_away(address: object) -> bool:
    match address:
        case (str(host), int(), *_):
            return host not in {"localhost", ""} and not _is_here(ip_address(host.partition("%")[0]))
        case _:
            return False


def _is_here(address: IPv4Address | IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _refuse(what: str) -> None:
    pytest.fail(f"{_KEPT[-1]} {what}: mark it with @pytest.mark.real, or have it do without", pytrace=False)
