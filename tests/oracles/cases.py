"""Cases at random, each known by a kind and a number: what is compared, and what is said of one that differs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from google.protobuf import text_format
from tests.oracles.composites import DRAWN, Configs, our_judge
from tests.oracles.expressions import Expr, Expressions, Values, text_of, value_of
from tests.oracles.hostile import Hostile
from tests.oracles.plans import Choice, Config, Inner, Pass, Run, judged
from tests.oracles.policies import Policies
from tests.oracles.resources import render_listener
from tests.oracles.shrink import shrunk, smaller_messages
from tests.support.cel.expressions import known
from tests.support.cel.reference import FAILURE
from tests.support.matching.trees import PACKAGES, Request, Trees, kinds, verdict
from tests.support.matching.unparse import unparsed
from tests.support.mcp.generated_messages import Messages, disagreement
from tests.support.mcp.lua_reader import LuaReader

from authplane.cel.calls.call_vocabulary import SERVER_CALLS
from authplane.cel.calls.wire import checked_expression, parse_checked
from authplane.cel.check.admissible_data import Admitted
from authplane.cel.check.expression_lint import lint
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Failed
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.evaluate.facts import Lookup
from authplane.cel.explain.explain_expression import Shown
from authplane.cel.explain.explain_expression import explain as explain_expression
from authplane.cel.syntax.tree import Call, Loop, Message, walk
from authplane.cel.syntax.vocabulary import ACCESS_POLICY
from authplane.core.problems import Problems
from authplane.matching.explain_tree import explain
from authplane.matching.tree_inputs import HasHeaders
from authplane.matching.tree_search import as_search
from authplane.matching.tree_wire import parse_tree


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to make cases."""

    cases: int
    """How many comparisons a number stands for."""
    differs: Callable[[int], str]
    """Makes the cases of a number; returns what differs, made as small as it gets, or nothing."""


# --- Trees

_REQUESTS: Final = 20


def differing_tree(seed: int) -> str:
    """Compare searches in a tree with the model; those that keep matching cannot be made ready for many subjects."""
    made = Trees(seed, keep_matching=seed % 2 == 0)
    message = made.tree(PACKAGES[seed // 2 % 2].Matcher(), depth=5)
    requests = [made.request() for _ in range(_REQUESTS)]
    wrong = _tree_difference(message, requests, ready=seed % 2 == 1)
    if not wrong:
        return ""

    def differs(each: Any) -> bool:
        try:
            found = _tree_difference(each, requests, ready=seed % 2 == 1)
        except (AttributeError, TypeError):
            return False  # the model cannot read what is left
        return bool(found) and found.startswith("refused") == wrong.startswith("refused")

    small = shrunk(message, smaller_messages, differs)
    return f"{_tree_difference(small, requests, ready=seed % 2 == 1)}\n{text_format.MessageToString(small)}"


def _tree_difference(message: Any, requests: list[Request], *, ready: bool) -> str:
    problems = Problems()
    tree = parse_tree(message, kinds(), problems)
    if tree is None:
        return f"refused: {list(problems)}"
    if parse_tree(unparsed(tree, PACKAGES[0].Matcher()), kinds(), Problems()) != tree:
        return "another tree when it is written and read again"
    searches: list[Callable[[HasHeaders], str | None]] = [lambda request: explain(tree, request).action]
    if ready:
        at_once = as_search(tree)
        searches.append(at_once)
    for request in requests:
        want, told = verdict(message, request), explain(tree, request)
        actions = {search(request) for search in searches}
        if (told.noted, told.root.matched) != want or actions != {want.actions[-1] if want.matched else None}:
            return f"{told}, not {want}: {request}"
    return ""


# --- Composite filters

_CALLS: Final = 40


def differing_composite(seed: int) -> str:
    """Compare what becomes of calls with the model."""
    made = Configs(seed)
    config = made.config()
    calls = [(made.request(), made.chance.choice(DRAWN)) for _ in range(_CALLS)]
    wrong = _composite_difference(config, made, seed, calls)
    if not wrong:
        return ""

    def differs(each: Config) -> bool:
        try:
            found = _composite_difference(each, made, seed, calls)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            return False  # the model cannot read what is left
        return bool(found) and found.startswith("refused") == wrong.startswith("refused")

    small = shrunk(config, _smaller_configs, differs)
    return f"{_composite_difference(small, made, seed, calls)}\n{small}"


def _composite_difference(config: Config, made: Configs, seed: int, calls: list[tuple[Request, float]]) -> str:
    judge = our_judge(render_listener(config, Random(seed)).SerializeToString(), made.answers)  # noqa: S311 (cases)
    if isinstance(judge, str):
        return f"refused: {judge}"
    for request, drawn in calls:
        found, want = judge(request, drawn), judged(config, request, drawn)
        if found != want:
            return f"{found}, not {want}: {request}, drawn {drawn}"
    return ""


def _smaller_configs(config: Config) -> Iterator[Config]:
    for level in ("host", "route", "cluster", "filter"):
        choice = getattr(config, level)
        if choice is not None:
            for each in (None, *_smaller_choices(choice)):
                changed: dict[str, Any] = {level: each}
                yield replace(config, **changed)


def _smaller_choices(choice: Choice) -> Iterator[Choice]:
    for tree in smaller_messages(choice.tree):
        yield replace(choice, tree=tree)
    for name, plan in choice.plans.items():
        for each in _smaller_plans(plan):
            yield replace(choice, plans={**choice.plans, name: each})


def _smaller_plans(plan: Pass | Run) -> Iterator[Pass | Run]:
    if isinstance(plan, Pass):
        return
    yield Pass()
    if plan.per_million is not None:
        yield replace(plan, per_million=None)
    for place, each in enumerate(plan.filters):
        before, after = plan.filters[:place], plan.filters[place + 1 :]
        yield replace(plan, filters=(*before, *after))
        for choice in _smaller_choices(each.choice) if isinstance(each, Inner) else ():
            yield replace(plan, filters=(*before, Inner(choice), *after))


def spoiled_listener(made: Configs) -> bytes:
    """Return a resource of which some bytes are others."""
    data = bytearray(render_listener(made.config(), made.chance).SerializeToString(deterministic=True))
    for _ in range(made.chance.randint(1, 5)):
        place = made.chance.randrange(len(data))
        match made.chance.randrange(3):
            case 0:
                data[place] = made.chance.randrange(256)
            case 1:
                del data[place : place + made.chance.randint(1, 8)]
            case _:
                data[place:place] = made.chance.randbytes(made.chance.randint(1, 4))
    return bytes(data)


def differing_spoiled(seed: int) -> str:
    """Spoil a resource: whatever it is then, it is refused or obeyed, and nothing is raised."""
    made = Configs(seed)
    judge = our_judge(spoiled_listener(made), made.answers)
    if not isinstance(judge, str):
        for _ in range(3):
            judge(made.request(), made.chance.choice(DRAWN))
    return ""


# --- Expressions

_VALUES: Final = 5


def differing_expression(seed: int) -> str:
    """Compare what an expression comes to with the language's definition, after it was sent."""
    made = Expressions(seed)
    expr = made.truth()
    for _ in range(_VALUES):
        values = made.values()
        if _expression_difference(expr, values):
            break
    else:
        return ""
    small = shrunk(expr, _smaller_expressions, lambda each: bool(_expression_difference(each, values)))
    return f"{_expression_difference(small, values)}: {text_of(small)} of {values}"


def _expression_difference(expr: Expr, values: Values) -> str:
    message = checked_expression(text_of(expr))
    if isinstance(message, tuple):
        return f"refused: {message}"
    problems = Problems()
    program = parse_checked(message, SERVER_CALLS, problems)
    if program is None:
        return f"refused: {list(problems)}"
    found = evaluate(program, facts_of(values))
    said = {HOLDS: True, HOLDS_NOT: False}.get(found, FAILURE)
    want = value_of(expr, values)
    return "" if said is want else f"{found}, not {'a failure' if want is FAILURE else want}"


def facts_of(values: Values) -> Lookup:
    """Return what is known of a call as expressions read it."""
    return known({**values, "source.port": Admitted(values["source.port"], 8)})


def _smaller_expressions(expr: Expr) -> Iterator[Expr]:
    """Return parts that are bools in place of the whole, and the whole with a part made smaller."""
    operator, *operands = expr
    if operator not in {"&&", "||", "!"}:
        return
    yield from operands
    for place, each in enumerate(operands):
        for smaller in _smaller_expressions(each):
            yield (operator, *operands[:place], smaller, *operands[place + 1 :])


# --- Expressions of strangers


def differing_hostile(seed: int) -> str:
    """Send what nobody honest sends: it is refused, or it is run as what its text says, and has a result."""
    message = Hostile(seed).message()
    if not _hostile_difference(message, seed):
        return ""
    small = shrunk(message, smaller_messages, lambda each: bool(_hostile_difference(each, seed)))
    return f"{_hostile_difference(small, seed)}\n{text_format.MessageToString(small)}"


def _hostile_difference(message: Any, seed: int) -> str:
    problems = Problems()
    program = parse_checked(message, SERVER_CALLS, problems)
    if program is None:
        return "" if problems.errors else "refused without a reason"
    if problems.errors:
        return f"taken in spite of {list(problems)}"
    again = compile_expression(program.text, SERVER_CALLS)
    if not isinstance(again, Program):
        return f"taken, but its text is refused: {program.text}"
    for node in walk(program.tree):
        if isinstance(node, Loop | Message) or (isinstance(node, Call) and node.function not in SERVER_CALLS.functions):
            return f"taken with something that is not allowed: {program.text}"
    facts = facts_of(Expressions(seed).values())
    found = evaluate(program, facts)
    if found not in (HOLDS, HOLDS_NOT) and not isinstance(found, Failed):
        return f"comes to {found}: {program.text}"
    return "" if evaluate(again, facts) == found else f"comes to {found}, and by its text to something else"


# --- Expressions of policies


def differing_policy(seed: int) -> str:
    """Write anything as a policy: it is refused, or has a result, which is the same when it is explained."""
    made = Policies(seed)
    text = made.text()
    program = compile_expression(text, ACCESS_POLICY)
    if not isinstance(program, Program):
        return "" if program else f"refused without a reason: {text}"
    lint(program)
    for _ in range(_VALUES):
        identity = made.identity()
        facts = known({"identity": identity, "request.path": "/a", "request.headers": {"a": "b"}})
        found, told = evaluate(program, facts), explain_expression(program, facts, secret=lambda _: False)
        if told.outcome != found or (found == HOLDS) != (told.root.value == Shown("true")):
            return f"{found}, and explained {told}: {text} of {identity}"
    return ""


# --- Messages to MCP servers

_MESSAGES: Final = 50


def differing_message(seed: int) -> str:
    """Compare the reader inside Envoy with the policy server's: a plain message means the same to both."""
    reader = LuaReader()
    made = Messages(seed)
    return next((said for _ in range(_MESSAGES) if (said := disagreement(reader, made.request()))), "")


KINDS: Final[Mapping[str, Kind]] = {
    "messages": Kind(_MESSAGES, differing_message),
    "trees": Kind(_REQUESTS, differing_tree),
    "composites": Kind(_CALLS, differing_composite),
    "spoiled": Kind(1, differing_spoiled),
    "expressions": Kind(_VALUES, differing_expression),
    "hostile": Kind(1, differing_hostile),
    "policies": Kind(_VALUES, differing_policy),
}
