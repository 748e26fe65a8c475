"""The command lines in the manifests are those that authplane has."""

from typing import Any

import click
import pytest
from tests.deploy.command_lines import parse
from tests.deploy.installed_objects import VARIANTS, chart_objects, plain_objects, pod_templates
from tests.support.kubernetes.api_objects import Object


def command_lines(objects: list[Object]) -> dict[str, list[str]]:
    """Return the command lines of authplane in Pods, by Pod and container."""
    found = {}
    for name, template in pod_templates(objects):
        spec: Any = template["spec"]
        for each in (*spec.get("initContainers", []), *spec["containers"]):
            match each["command"]:
                case ["authplane", *command]:
                    found[f"{name} {each['name']}"] = [*command, *each["args"]]
                case ["sh", "-c", script, "sh"]:
                    assert script.startswith('exec authplane bootstrap "$@" > ')
                    found[f"{name} {each['name']}"] = ["bootstrap", *each["args"]]
                case command:
                    assert command == ["envoy"]
    return found


def test_authplane_accepts_the_command_lines_of_the_manifests() -> None:
    found = command_lines(plain_objects())
    assert len(found) == 5
    for argv in found.values():
        parse(argv)


@pytest.mark.real
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_authplane_accepts_the_command_lines_of_the_chart(options: tuple[str, ...]) -> None:
    for argv in command_lines(chart_objects(*options)).values():
        parse(argv)


def test_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError, match="--no-such-option"):
        parse(["bootstrap", "--no-such-option"])


@pytest.mark.real
def test_values_become_options() -> None:
    [control] = [
        argv
        for name, argv in command_lines(chart_objects(*VARIANTS["some namespaces"])).items()
        if name.endswith(" control")
    ]
    given = parse(control)
    assert (given["kubernetes"], given["namespaces"]) == (True, "shop,tools,authplane-system")
    assert given["selector"] == "team=shop"
