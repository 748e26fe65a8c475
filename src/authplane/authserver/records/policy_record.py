"""The fields of the decision log for a decision by policies."""

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as quoted

from authplane.authserver.records.decision_record import Record, line_of, shown
from authplane.policy.verdicts.verdict import Grounds, Shadowed


def with_grounds(record: Record, grounds: Grounds) -> Record:
    """Add the rule that decided, its reason and the identity of the sender to a record."""
    return record._replace(
        rule=shown(grounds.rule), reason=shown(grounds.reason), identity=shown(grounds.identity) or record.identity
    )


def access_line(record: Record, grounds: Grounds, shadows: tuple[Shadowed, ...] = ()) -> str:
    """Write a record `with_grounds` and its grounds as one line of JSON, in ASCII, with its end.

    Where policies are in shadow, it says as well what each of them would have done.
    """
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
