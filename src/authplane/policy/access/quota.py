"""How many policies a namespace may have: who writes masses of them must not slow down the others."""

from collections import Counter, defaultdict

from authplane.base.names import Ref
from authplane.policy.access.drafts import seniority_of
from authplane.resources.documents import Resources


def over_quota(resources: Resources, most: int) -> frozenset[Ref]:
    """Return the policies that their namespaces have no room for: in each, the youngest."""
    tables = (("AccessPolicy", resources.access_policies), ("XAccessPolicy", resources.x_access_policies))
    counts = Counter(name.namespace for _, table in tables for name in table)
    crowded = {namespace for namespace, count in counts.items() if count > most}
    if not crowded:
        return frozenset()
    found: dict[str, list[tuple[tuple[str, str, str], Ref]]] = defaultdict(list)
    for kind, table in tables:
        for name, written in table.items():
            if name.namespace in crowded:
                found[name.namespace].append((seniority_of(written), Ref(kind, name.namespace, name.name)))
    return frozenset(ref for policies in found.values() for _, ref in sorted(policies)[most:])
