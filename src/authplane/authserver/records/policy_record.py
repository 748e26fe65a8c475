"""The lines of the decision log; a decision by policies has more fields than others."""

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from authplane.authserver.records.decision_record import (
    Entry,
    Record,
    build_record,
    has_plain_path,
    line_of,
    shown,
    time_text,
)
from authplane.policy.verdicts.verdict import Grounds, Shadowed

_SHORT: Final = 256
"""No text of this length is cut, in characters."""
_HOLDABLE: Final = 2048
"""Limit of the client's texts in a queued entry, in characters: thousands of entries may wait in the queue."""


def is_small(entry: Entry) -> bool:
    """Tell whether an entry takes little memory, so that it can wait in the queue."""
    grounds = entry.grounds
    size = len(entry.path) + len(entry.host) + len(entry.method) + len(entry.id) + len(entry.identity)
    if grounds is not None:
        size += len(grounds.identity) + len(grounds.mcp_method) + len(grounds.tool)
    return size <= _HOLDABLE


def entry_line(entry: Entry) -> str:
    """Write an entry as one line of JSON, in ASCII, with its end."""
    return _plain_line(entry) or careful_line(entry)


def careful_line(entry: Entry) -> str:
    """Write any entry, with what each policy in shadow mode would do."""
    record = build_record(entry)
    return line_of(record) if entry.grounds is None else _access_line(record, entry.grounds, entry.shadows)


def _plain_line(entry: Entry) -> str:
    """Write an entry without texts to cut or escape, as most are; return an empty text for any other.

    It only saves time: `careful_line` defines the line.
    """
    (
        time, seconds, backend, decision, status,
        path, host, method, ident, source, identity, rule, reason, grounds, shadows,
    ) = entry  # fmt: skip
    policy = part = mcp_method = tool = ""
    if grounds is not None:
        policy, rule, part, known, mcp_method, tool, reason, failures = grounds
        identity = known or identity
        if failures or shadows:
            return ""
    texts = (backend, rule, reason, identity, source, ident, method, host, path, policy, part, mcp_method, tool)
    together = "".join(texts)
    if (
        not (together.isascii() and together.isprintable())
        or '"' in together
        or "\\" in together
        or (len(together) > _SHORT and max(map(len, texts)) > _SHORT)
        or "@" in host
        or not has_plain_path(path)
    ):
        return ""
    more = (
        ""
        if grounds is None
        else f',"policy":"{policy}","entry":"{part}","mcp_method":"{mcp_method}","tool":"{tool}","cel_failures":[]'
    )
    return (
        f'{{"time":"{time_text(time)}","decision":"{decision}","status":{"null" if status is None else status},'
        f'"ms":{seconds * 1000:.3f},"backend":"{backend}","rule":"{rule}","reason":"{reason}",'
        f'"identity":"{identity}","source":"{source}","id":"{ident}",'
        f'"method":"{method}","host":"{host}","path":"{path}"{more}}}\n'
    )


def _access_line(record: Record, grounds: Grounds, shadows: tuple[Shadowed, ...]) -> str:
    policy, _, entry, _, method, tool, _, failures = grounds
    failed = ",".join(quoted(shown(each)) for each in failures)
    return (
        f'{line_of(record)[:-2]},"policy":{quoted(policy)},"entry":{quoted(entry)},'
        f'"mcp_method":{quoted(shown(method))},"tool":{quoted(shown(tool))},"cel_failures":[{failed}]'
        f"{_shadow_members(shadows) if shadows else ''}}}\n"
    )


def _shadow_members(shadows: Iterable[Shadowed]) -> str:
    told = ",".join(
        f'{{"policy":{quoted(each.policy)},"outcome":{quoted(each.would)},"rule":{quoted(shown(each.rule))},'
        f'"entry":{quoted(each.entry)},"reason":{quoted(shown(each.reason))}}}'
        for each in shadows
    )
    return f',"shadow":[{told}]'
