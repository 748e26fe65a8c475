"""Documents to compiled policies, and what is said of them."""

from authplane.core.problems import Problem, Severity
from authplane.policy.attached.attachments import Policies
from authplane.policy.compile.compile_policies import Compiled, compile_policies
from authplane.policy.rules.access_settings import Options
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library


def load(*documents: str) -> Loaded:
    library = Library()
    library.changed("a.yaml", "\n---\n".join(documents).encode())
    return library.current()


def compiled(*documents: str, options: Options | None = None) -> Compiled:
    return compile_policies(load(*documents).resources, options)


def policies(*documents: str, options: Options | None = None) -> Policies:
    """Compile what must be without an error."""
    made = compiled(*documents, options=options)
    assert errors(made) == []
    return made.policies


def errors(made: Compiled) -> list[str]:
    return said(made, Severity.ERROR)


def warnings(made: Compiled) -> list[str]:
    return said(made, Severity.WARNING)


def said(made: Compiled, severity: Severity) -> list[str]:
    found: list[Problem] = [each for problems in made.problems.values() for each in problems]
    return [str(each) for each in found if each.severity is severity]
