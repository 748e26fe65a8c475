"""Writes the results of tests as JUnit XML, for CI systems."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from authplane.core.problems import printable
from authplane.devkit.policies.policy_tests import Result
from authplane.resources.documents import Finding


def junit_xml(results: Mapping[str, Sequence[Result]], findings: Mapping[str, Sequence[Finding]]) -> bytes:
    """Return the results of each file, and the problems of files that cannot be run."""
    root = Element("testsuites", name="authplane test")
    for file in sorted({*results, *findings}):
        own, wrong = results.get(file, ()), findings.get(file, ())
        failed = sum(bool(each.differences) for each in own)
        counts = {"tests": len(own) + len(wrong), "failures": failed, "errors": len(wrong)}
        suite = SubElement(root, "testsuite", {"name": file, **{name: str(count) for name, count in counts.items()}})
        for result in own:
            case = _case(suite, file, result.case.name, result.case.place.line)
            if result.differences:
                SubElement(case, "failure", message=printable("; ".join(result.differences)))
        for finding in wrong:
            case = _case(suite, file, str(finding.place), finding.place.line)
            SubElement(case, "error", message=printable(finding.problem.message))
    indent(root)
    text: str = tostring(root, encoding="unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()


def _case(suite: Element, file: str, name: str, line: int) -> Element:
    return SubElement(suite, "testcase", classname=file, name=printable(name), file=file, line=str(line))
