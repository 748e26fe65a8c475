"""Which versions of files come into force: whole files, and what takes protection away only in its time."""

import pytest

from authplane.resources.loaded_resources import Held
from authplane.sources.document_versions import Library

POLICY = """---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: NAME}
spec: {targetRefs: [{kind: Backend, name: mine}], rules: [{tools: [TOOLS]}]}
"""
BROKEN = "---\napiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: x}]}\n"
NO_YAML = "kind: AccessPolicy\n  a: b: c"


def policy(name: str, tools: str = "add") -> str:
    return POLICY.replace("NAME", name).replace("TOOLS", tools)


def service(name: str) -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"


class Files(Library):
    """A library that is told of files as texts, and has read some at its start."""

    def __init__(self, **files: str) -> None:
        super().__init__()
        self.put(**files)  # type: ignore[arg-type] # none of them is called like an option

    def put(self, *, fresh: bool = False, unit: str = "", **files: str | None) -> "Files":
        for file, text in files.items():
            if text is None:
                self.removed(file)
            else:
                self.changed(file, text.encode(), unit)
        self.settle(frozenset(files) if fresh else frozenset())
        return self

    @property
    def names(self) -> list[str]:
        """What is in force, with the tools of policies."""
        resources = self.current().resources
        policies = (
            f"{name.name}:{','.join(each.spec.rules[0].tools or ())}"
            for name, each in resources.access_policies.items()
        )
        return sorted([*policies, *(name.name for name in resources.services)])

    @property
    def problems(self) -> list[str]:
        return [
            f"{each.place.file}: {each.problem.message.removesuffix('.').replace('?', '.').rpartition('. ')[2]}"
            for each in self.current().findings
        ]


KEPT = "The last good version of the file stays in force"
UNUSED = "authplane uses nothing from the file until you correct it"


@pytest.mark.requirement("F13")
def test_a_file_with_one_broken_document_keeps_all_its_last_good_documents() -> None:
    files = Files(a=policy("p") + service("s"))
    files.put(a=policy("p", "add, rm") + service("t") + BROKEN)
    assert files.names == ["p:add", "s"]
    assert files.problems == [f"a: {KEPT}"]
    assert {ref.name for ref in files.current().last_good} == {"p", "s"}
    assert files.put(a=policy("p", "rm") + service("t")).names == ["p:rm", "t"]
    assert files.current().last_good == frozenset()


@pytest.mark.requirement("F13")
@pytest.mark.parametrize("text", [NO_YAML, policy("q") + BROKEN, "\ufffe", policy("q").replace("rules", "ruels")])
def test_a_new_file_that_cannot_be_used_changes_nothing_but_status(text: str) -> None:
    files = Files(a=policy("p") + service("s"))
    before = files.current().resources
    files.put(b=text)
    assert files.current().resources == before
    assert set(files.problems) == {f"b: {UNUSED}"}


def test_a_file_that_cannot_be_read_changes_nothing_either() -> None:
    files = Files(a=policy("p"))
    before = files.current().resources
    files.unreadable("b", "Permission denied.")
    assert files.current().resources == before
    assert set(files.problems) == {f"b: {UNUSED}"}


def test_at_the_first_start_a_file_that_cannot_be_read_closes_what_it_may_protect() -> None:
    files = Files(a=NO_YAML, b=policy("p"))
    assert files.current().resources.doubt == "a may contain a policy and cannot be read"
    assert files.put(a=NO_YAML + "\n" + service("s")).current().resources.doubt
    assert not files.put(a=policy("q")).current().resources.doubt
    assert files.names == ["p:add", "q:add"]


def test_a_name_that_another_file_has_keeps_the_whole_file_out() -> None:
    files = Files(a=policy("p"))
    files.put(b=policy("p", "rm") + service("s"))
    assert files.names == ["p:add"]
    assert files.put(a=None).names == ["p:rm", "s"]


@pytest.mark.requirement("F12")
def test_what_takes_protection_away_waits_and_the_rest_does_not() -> None:
    files = Files(a=policy("p") + policy("q"), b=policy("r", "add, rm"))
    files.put(fresh=True, a=policy("p"), b=policy("r"), c=policy("new"))
    assert files.names == ["new:add", "p:add", "q:add", "r:add"]
    assert files.current().held == (Held("a", "AccessPolicy/default/q is removed"),)
    assert files.problems == []
    assert files.current().last_good == frozenset()
    assert files.settle(frozenset({"a"})) is False
    assert files.settle() is True
    assert files.names == ["new:add", "p:add", "r:add"]
    assert files.current().held == ()


@pytest.mark.requirement("F12")
def test_a_removed_file_with_a_policy_waits() -> None:
    files = Files(a=policy("p"), b=service("s"))
    assert files.put(fresh=True, a=None, b=None).names == ["p:add"]
    files.settle()
    assert files.names == []


def test_what_moves_to_another_file_takes_nothing_away() -> None:
    files = Files(a=policy("p") + policy("q"), b=service("s"))
    assert files.put(fresh=True, a=policy("q"), b=policy("p")).names == ["p:add", "q:add"]
    assert files.current().held == ()
    assert files.put(fresh=True, a=None, c=policy("q")).current().held == ()


def test_who_takes_over_from_a_file_that_waits_waits_too() -> None:
    files = Files(a=policy("p") + policy("q"), b=service("s"))
    files.put(fresh=True, a="# empty now", b=policy("p"))
    assert files.names == ["p:add", "q:add", "s"]
    assert [each.file for each in files.current().held] == ["a"]
    files.settle()
    assert files.names == ["p:add"]
    assert files.problems == []


def test_a_change_back_ends_the_waiting() -> None:
    files = Files(a=policy("p"))
    files.put(fresh=True, a="# nothing")
    assert files.put(fresh=True, a=policy("p")).current().held == ()
    files.settle()
    assert files.names == ["p:add"]


def test_what_a_broken_file_takes_over_stays_as_it_was() -> None:
    files = Files(a=policy("p") + policy("q"))
    files.put(a=policy("q"), b=policy("p") + BROKEN)
    assert files.names == ["p:add", "q:add"]
    assert files.put(b=policy("p", "rm")).names == ["p:rm", "q:add"]


@pytest.mark.requirement("F13")
def test_a_file_that_is_renamed_and_broken_keeps_what_it_held() -> None:
    files = Files(a=policy("p"), c=policy("q"))
    assert files.put(a=None, b=NO_YAML).names == ["p:add", "q:add"]
    assert files.put(c=policy("q", "rm")).names == ["p:add", "q:rm"]
    assert files.put(b=policy("p", "rm")).names == ["p:rm", "q:rm"]
    assert files.put(b=NO_YAML).names == ["p:rm", "q:rm"]
    assert files.put(b=None).names == ["q:rm"]


@pytest.mark.requirement("F14")
def test_files_of_a_unit_come_into_force_together() -> None:
    files = Files(x=service("s")).put(unit="u", a=policy("p"), b=service("t"))
    files.put(unit="u", a=NO_YAML, b=service("v"))
    assert files.names == ["p:add", "s", "t"]
    files.put(unit="u", fresh=True, a="# no policy", b=service("v"))
    assert files.names == ["p:add", "s", "t"]
    files.settle()
    assert files.names == ["s", "v"]


def test_a_broken_policy_of_the_first_start_that_is_deleted_waits() -> None:
    files = Files(a=policy("q").replace("rules", "ruels"), b=NO_YAML)
    files.put(fresh=True, a=None, b=None)
    assert files.current().resources.broken_policies
    assert files.current().resources.doubt
    files.settle()
    assert not files.current().resources.broken_policies
    assert not files.current().resources.doubt
