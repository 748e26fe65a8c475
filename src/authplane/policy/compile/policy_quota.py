"""Limits the number of policies in a namespace, so that no namespace slows down the others."""

from collections import Counter, defaultdict

from authplane.core.names import Ref
from authplane.policy.compile.policy_drafts import is_shadow, seniority_of
from authplane.resources.documents import Resources


def over_quota(resources: Resources, most: int) -> frozenset[Ref]:
    """Return the policies that their namespaces have no room for: in each, the youngest.

    Those in shadow come after all others: none of them may take the place of one that is enforced.
    """
    tables = (("AccessPolicy", resources.access_policies), ("XAccessPolicy", resources.x_access_policies))
    counts = Counter(name.namespace for _, table in tables for name in table)
    crowded = {namespace for namespace, count in counts.items() if count > most}
    if not crowded:
        return frozenset()
    found: dict[str, list[tuple[bool, tuple[str, str, str], Ref]]] = defaultdict(list)
    for kind, table in tables:
        for name, written in table.items():
            if name.namespace in crowded:
                ref = Ref(kind, name.namespace, name.name)
                found[name.namespace].append((is_shadow(written), seniority_of(written), ref))
    return frozenset(ref for policies in found.values() for _, _, ref in sorted(policies)[most:])
