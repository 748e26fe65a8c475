"""Contour's configuration file: found among documents, and read."""

import difflib
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem
from authplane.resources.kinds.contour_file import BARE, GLOBAL, KEY, ContourFile, WrittenFile
from authplane.resources.kinds.core import ConfigMap
from authplane.resources.typed.shapes import INVALID, Report, read_fields, shape_of
from authplane.resources.yaml.nodes import Fields, Node, Scalar, is_null, parse_nodes

BARE_REF: Final = Ref(BARE, "", KEY)


def is_bare_file(root: Fields) -> bool:
    """Tell whether a document without API version and kind is Contour's file.

    It is if nothing else is in it, or if it has what may be meant as global authorization.
    """
    names = tuple(root.entries)
    if not names or "apiVersion" in names or "kind" in names:
        return False
    shape = shape_of(WrittenFile)
    known = {*shape.readers, *shape.upstream.silent, *shape.upstream.ignored}
    return known.issuperset(names) or bool(difflib.get_close_matches(GLOBAL, names, n=1, cutoff=0.75))


def read_bare_file(root: Fields, report: Report) -> ContourFile | None:
    """Read Contour's configuration from a file that is not in a ConfigMap; None after an error."""
    return _read(root, BARE_REF, (), report)


def holds_file(config_map: ConfigMap) -> bool:
    """Tell whether a ConfigMap is where Contour would read its file: installers name it as they like."""
    return KEY in config_map.data


def read_config_map(config_map: ConfigMap, report: Report) -> ContourFile | None:
    """Read the file in a ConfigMap; None after an error."""
    above: Path = ("data", KEY)
    ref = Ref("ConfigMap", config_map.metadata.namespace, config_map.metadata.name)
    parsed = parse_nodes(config_map.data[KEY])
    for problem, line, _ in parsed.spots:
        message = f"Line {line} of {KEY}: {problem.message}"
        report.problems.append(Problem((*above, *problem.path), problem.reason, message, problem.severity))
    if parsed.spots:
        return None
    root: Node = parsed.root if parsed.root is not None and not is_null(parsed.root) else Fields({}, 1, 1)
    if isinstance(root, Scalar):
        report.mismatch(above, "a mapping", root)
        return None
    return _read(root, ref, above, report)


def _read(root: Node, ref: Ref, above: Path, report: Report) -> ContourFile | None:
    value = read_fields(shape_of(WrittenFile), root, above, report)
    if value is INVALID or not isinstance(value, WrittenFile):
        return None
    return ContourFile(ref=ref, above=above, spec=value.meant)
