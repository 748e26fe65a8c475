"""Finds the Gateway and listener of a described request, because their policies apply too."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.devkit.policies.checking import Enforced
from authplane.devkit.policies.request_files import AskedRequest
from authplane.devkit.strict_files import Text
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.resources.documents import Finding
from authplane.resources.typed.shapes import suggestion


def find_way(asked: AskedRequest, enforced: Enforced, text: Text) -> AskedRequest | Finding:
    """Return a request with its listener, or a finding if several listeners with different policies are possible.

    A request that names no Gateway comes through any that leads to its target. Where those have different policies, the
    request must name one.
    """
    target, policies = asked.target, enforced.policies
    if not policies.closed and policies.chain(target) is None:
        return text.finding(Problem((*asked.path, "target"), "TargetNotFound", _unknown(target, policies)))
    ways = list(_ways(target, enforced))
    fitting = [each for each in ways if _is_meant(each, target)]
    if not fitting:
        lost = bool(ways) and target.gateway is not None
        return replace(asked, remarks=(_no_way(target),)) if lost else asked
    groups: dict[tuple[Ref, ...], list[RequestTarget]] = defaultdict(list)
    for each in fitting:
        groups[_policies(each, policies)].append(each)
    if len(groups) > 1:
        path = (*asked.path, "target")
        return text.finding(Problem(path, "GatewayAmbiguous", _ambiguity(target, groups.items())))
    [(found, _)] = groups.items()
    told = found and target.gateway is None
    remark = (f"assumed: the request comes through {_listener(fitting[0])}",) if told else ()
    return replace(asked, target=fitting[0], remarks=remark)


def _unknown(target: RequestTarget, policies: Policies) -> str:
    named = str(target.backend or target.gateway)
    close = suggestion(named, [str(aim.ref) for aim in policies.attachments])
    return f"{named} is not a target of this folder.{close} Use the kind, namespace and name of a resource."


def _ways(target: RequestTarget, enforced: Enforced) -> Iterator[RequestTarget]:
    """Yield the ways to a target, each through one listener."""
    if target.backend is not None:
        yield from (each for each in enforced.routed if each.backend == target.backend and each.gateway is not None)
    else:
        aims = enforced.policies.attachments
        yield from (RequestTarget(gateway=aim.ref, section=aim.section) for aim in aims if aim.section)


def _is_meant(way: RequestTarget, target: RequestTarget) -> bool:
    return target.gateway in {None, way.gateway} and target.section in {"", way.section}


def _policies(way: RequestTarget, policies: Policies) -> tuple[Ref, ...]:
    attachment = policies.attachments.get(PolicyTarget(way.gateway, way.section)) if way.gateway is not None else None
    return () if attachment is None else tuple(each.ref for each in (*attachment.policies, *attachment.shadows))


def _listener(way: RequestTarget) -> str:
    return f"{way.gateway}/{way.section}" if way.section else str(way.gateway)


def _no_way(target: RequestTarget) -> str:
    return f"impossible: no route leads from {_listener(target)} to {target.backend}"


def _ambiguity(target: RequestTarget, groups: Iterable[tuple[tuple[Ref, ...], list[RequestTarget]]]) -> str:
    ways = (
        f"{', '.join(map(_listener, listeners))} ({', '.join(map(str, refs)) or 'no policy'})"
        for refs, listeners in groups
    )
    if target.backend is None:
        said, field = f"The listeners of {target.gateway} have different policies", "target.sectionName"
    else:
        said, field = f"Requests reach {target.backend} through Gateways with different policies", "target.gateway"
    return f"{said}: {'; '.join(ways)}. Set {field} to one of them."
