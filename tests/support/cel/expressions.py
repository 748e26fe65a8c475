"""Short ways to check and evaluate an expression."""

from collections.abc import Mapping

from authplane.cel.check.expression_outcome import Code, Failed, Outcome
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.evaluate.facts import ABSENT, Lookup, build_fact
from authplane.cel.syntax.expression_problem import CelProblem
from authplane.cel.syntax.vocabulary import ACCESS_POLICY, Vocabulary


def program(text: str, vocabulary: Vocabulary = ACCESS_POLICY) -> Program:
    compiled = compile_expression(text, vocabulary)
    assert isinstance(compiled, Program), [str(each) for each in compiled]
    return compiled


def problems(text: str, vocabulary: Vocabulary = ACCESS_POLICY) -> tuple[CelProblem, ...]:
    compiled = compile_expression(text, vocabulary)
    assert not isinstance(compiled, Program)
    return compiled


def said(text: str, vocabulary: Vocabulary = ACCESS_POLICY) -> list[str]:
    """Return what is wrong with an expression, as people read it."""
    return [f"{each} [{each.reason}]" for each in problems(text, vocabulary)]


def outcome(text: str, identity: object = None, **request: object) -> Outcome:
    """Evaluate an expression for an identity and members of a request; ``mcp_`` stands for ``mcp.``."""
    facts: dict[str, object] = {f"request.{name.replace('mcp_', 'mcp.')}": value for name, value in request.items()}
    return evaluate(program(text), known({**facts, "identity": {} if identity is None else identity}))


def known(values: Mapping[str, object]) -> Lookup:
    """Return what finds these variables, by dotted names."""
    return lambda name: build_fact(values.get(name, ABSENT))


def of(facts: Mapping[str, object], text: str) -> Outcome:
    return evaluate(program(text), known(facts))


def failed(code: Code) -> Failed:
    return Failed(code)
