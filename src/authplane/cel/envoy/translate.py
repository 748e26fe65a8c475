"""Checked expressions to conditions of Envoy's RBAC filter that give the same answer, or why there is none.

One condition that Envoy refuses costs the whole listener or route table. So what it might refuse, and what it would
answer otherwise than we do, is found here, and is a reason to leave the expression to the policy server.
"""

from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from authplane.cel.check.program import Program
from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.envoy_attributes import claims, is_unicode, mcp_params, presence, safe_match, variables
from authplane.cel.envoy.fitness import fault_in_argument, fault_in_call, fault_in_header, fault_in_leaf, is_too_deep
from authplane.cel.envoy.request_checks import ALWAYS, Check, every
from authplane.cel.syntax.read_paths import read_path
from authplane.cel.syntax.tree import Call, Const, Entries, Has, Ident, Items, Loop, Message, Node, Select, path_of
from authplane.cel.syntax.vocabulary import MAPS, Variable
from authplane.cel.wire.expressions import parse_overloads
from authplane.core.envoy_releases import Release
from authplane.core.values import dataclass

_UNREAD: Final = {
    "request.mcp.params": "reads all tool arguments instead of one by name",
    "request.headers": "reads all headers instead of one by name",
    "identity": "reads all claims instead of one by name",
}


@dataclass(frozen=True, slots=True)
class Members:
    """An identity of which the rule itself says everything."""

    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Certified:
    """One of several workloads: the first URI in the certificate is its id."""


@dataclass(frozen=True, slots=True)
class Claims:
    """A sender with a token; the jwt_authn filter puts its claims under this key."""

    key: str


Who: TypeAlias = Members | Certified | Claims

NOBODY: Final = Members()
TRUE: Final = condition_nodes.literal(value=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition for Envoy: native matchers, and an expression for the rest. Both must match."""

    check: Check = ALWAYS
    """Is looked at first, and never fails."""
    tree: Node = TRUE
    conversion: bool = False
    """It needs ``cel_config.enable_string_conversion``."""
    concatenation: bool = False
    """It needs ``cel_config.enable_string_concat``."""
    reads_mcp: bool = False
    """It needs what the reader inside Envoy finds in the body."""

    @property
    def expressed(self) -> bool:
        """Whether there is an expression besides the check."""
        return self.tree != TRUE

    @property
    def always(self) -> bool:
        """Whether it is true for every request."""
        return self.check == ALWAYS and not self.expressed

    def and_then(self, other: "Condition") -> "Condition":
        """Return the conjunction; the cheaper parts are evaluated first, and then this one before the other."""
        return Condition(
            check=every((self.check, other.check)),
            tree=condition_nodes.every(each.tree for each in (self, other) if each.expressed),
            conversion=self.conversion or other.conversion,
            concatenation=self.concatenation or other.concatenation,
            reads_mcp=self.reads_mcp or other.reads_mcp,
        )


def translate(program: Program, who: Who, envoy: Release) -> Condition | tuple[str, ...]:
    """Return the condition that is true in Envoy exactly if the expression is here, or all reasons why there is none.

    A reason continues a sentence about the expression: "uses exists()".
    """
    translator = _Translator(program, who, envoy)
    tree = translator.node(program.tree)
    if not translator.refused and is_too_deep(tree):
        translator.refuse("is nested deeper than Envoy supports")
    if translator.refused:
        return tuple(translator.refused)
    return Condition(
        tree=tree,
        conversion=translator.conversion,
        concatenation=translator.concatenation,
        reads_mcp=any(each.startswith("request.mcp.") for each in program.variables),
    )


class _Translator:
    """Rewrites one expression, and collects why that cannot be done."""

    def __init__(self, program: Program, who: Who, envoy: Release) -> None:
        self._program = program
        self._who = who
        self._envoy = envoy
        self._overloads = parse_overloads(program.checked)
        self.refused: dict[str, None] = {}
        self.conversion = False
        self.concatenation = False

    def refuse(self, why: str) -> Node:
        self.refused[why] = None
        return condition_nodes.literal(value=False)

    def node(self, node: Node) -> Node:
        """Rewrite a node and all below it."""
        path = path_of(node)
        if path is not None and path[0] in self._program.vocabulary.roots:
            return self._path(path)
        match node:
            case Const() | Ident() | Loop() | Message():
                fault = fault_in_leaf(node)
                return self.refuse(fault) if fault else replace(node, id=0, at=0)
            case Select() | Has():
                return self._select(node)
            case Call():
                return self._call(node)
            case Items(values=values):
                return Items(id=0, at=0, values=tuple(map(self.node, values)))
            case Entries(pairs=pairs):
                return Entries(id=0, at=0, pairs=tuple((self.node(key), self.node(value)) for key, value in pairs))
            case _:
                assert_never(node)

    def _call(self, node: Call) -> Node:
        tested = self._tested(node)
        if tested is not None:
            return self._contains(*tested)
        overloads = self._overloads.get(node.id, frozenset())
        fault = fault_in_call(node, overloads, self._envoy)
        if fault:
            return self.refuse(fault)
        self.conversion |= node.function == "string"
        self.concatenation |= node.function == "_+_" and "add_string" in overloads
        target = None if node.target is None else self.node(node.target)
        args = tuple(map(self.node, node.args))
        made = Call(id=0, at=0, function=node.function, target=target, args=args)
        return safe_match(args[0] if target is None else target, made) if node.function == "matches" else made

    def _tested(self, node: Call) -> tuple[str, str] | None:
        """Return the variable and the key of ``"key" in variable``, if a node is that."""
        match node:
            case Call(function="@in", args=(Const(value=str(key)), container)):
                path = path_of(container)
                variable, keys = (None, ()) if path is None else self._found(path)
                return None if variable is None or keys or variable.kind not in MAPS else (variable.name, key)
            case _:
                return None

    def _select(self, node: Select | Has) -> Node:
        if isinstance(node, Select):
            return condition_nodes.select(self.node(node.operand), node.field)
        above = path_of(node.operand)
        if above is None or above[0] not in self._program.vocabulary.roots:
            return condition_nodes.has(self.node(node.operand), node.field)
        variable, keys = self._found((*above, node.field))
        if variable is not None and len(keys) == 1:
            return self._contains(variable.name, node.field)
        if variable is not None and keys:
            return condition_nodes.has(self._path(above), node.field)
        name = ".".join((*above, node.field))
        tests = presence(knows_method="request.mcp.method" in self._program.variables)
        return tests[name] if name in tests else self.refuse(f"tests whether {name} is present")

    def _found(self, path: tuple[str, ...]) -> tuple[Variable | None, tuple[str, ...]]:
        return read_path(path, self._program.vocabulary) or (None, ())

    def _path(self, path: tuple[str, ...]) -> Node:
        """Rewrite ``request.headers["a"]``, ``identity.a.b`` and the like."""
        variable, keys = self._found(path)
        if variable is None:
            return self.refuse(f"reads {'.'.join(path)}")
        if not keys:
            return self._whole(variable.name)
        if variable.name == "request.mcp.params" and len(keys) > 1:
            return self.refuse(f"reads {'.'.join(path)}, which is a member of an argument")
        container = self._map(variable.name, keys[0])
        found = condition_nodes.member(container, *keys)
        if variable.name != "request.headers":
            return found
        there = condition_nodes.call("@in", condition_nodes.literal(keys[0]), container)
        return condition_nodes.only_if(there, condition_nodes.only_if(is_unicode(found), found))

    def _contains(self, variable: str, key: str) -> Node:
        """Rewrite ``"key" in variable`` and ``has(variable.key)``."""
        found = self._map(variable, key)
        test = condition_nodes.call("@in", condition_nodes.literal(key), found)
        if variable != "request.headers":
            return test
        readable = condition_nodes.only_if(
            is_unicode(condition_nodes.member(found, key)), condition_nodes.literal(value=True)
        )
        return condition_nodes.call("_?_:_", test, readable, condition_nodes.literal(value=False))

    def _map(self, variable: str, key: str) -> Node:
        """Return a map of which one key is looked at."""
        if variable == "request.mcp.params":
            fault = fault_in_argument(key)
            return self.refuse(fault) if fault else mcp_params()
        fault = ""
        if variable == "request.headers":
            fault = fault_in_header(key)
        elif isinstance(self._who, Claims) and key in {"scope", "scp"}:
            fault = f"reads identity.{key}, which Envoy splits into single scopes"
        if fault:
            return self.refuse(fault)
        return self._identity() if variable == "identity" else condition_nodes.name(variable)

    def _whole(self, variable: str) -> Node:
        known = variables()
        if variable in known:
            return known[variable]
        if variable == "identity" and not isinstance(self._who, Claims):
            return self._identity()
        return self.refuse(_UNREAD.get(variable, f"reads {variable}"))

    def _identity(self) -> Node:
        match self._who:
            case Members(values=values):
                return condition_nodes.record((key, condition_nodes.literal(value)) for key, value in values)
            case Certified():
                return condition_nodes.record(
                    (("spiffe_id", condition_nodes.name("connection.uri_san_peer_certificate")),)
                )
            case Claims(key=key):
                return claims(key)
            case _:
                assert_never(self._who)
