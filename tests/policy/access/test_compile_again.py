"""What later passes share with earlier ones."""

from tests.policy.access.world import BACKEND, SERVICES, SHOP, anybody, asks, policy, rule

from authplane.policy.access.compile import PolicyCompiler
from authplane.policy.access.model import AnyPolicy
from authplane.policy.access.targets import Aim
from authplane.resources.library import Library

OTHER = BACKEND.replace("name: shop}", "name: other}", 1)


def passes(*texts: dict[str, str]) -> list[tuple[AnyPolicy, ...]]:
    """Return the policies before the shop, each time after the files changed."""
    library, compiler, found = Library(), PolicyCompiler(), []
    for files in texts:
        for name, text in files.items():
            library.changed(name, text.encode())
        found.append(compiler.compile(library.current().resources).policies.guards[Aim(SHOP)].policies)
    return found


def test_a_policy_is_the_same_object_while_neither_it_nor_what_it_names_changes() -> None:
    held = policy(anybody(f"[{asks()}]"))
    first, beside, moved, edited = passes(
        {"a.yaml": BACKEND, "p.yaml": held, "s.yaml": SERVICES},
        {"b.yaml": OTHER},
        {"s.yaml": SERVICES.replace("9000", "9001")},
        {"p.yaml": policy(rule())},
    )
    assert beside[0] is first[0]
    assert moved != first
    assert len({id(each) for found in (first, moved, edited) for each in found}) == 3
