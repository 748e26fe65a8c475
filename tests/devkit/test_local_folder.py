"""What `authplane run` derives from a folder: URLs, programs to start, ports, and what to try."""

import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.ports import free_port

from authplane.authserver.backends.testserver import Mode
from authplane.cli.shared.built_folder import read_generation
from authplane.controlplane.serving.generation import Generation
from authplane.devkit.local.claimed_ports import PortNeededError, claim_parts
from authplane.devkit.local.needed_parts import Part, needed_parts
from authplane.devkit.local.quickstart import QuickstartState, agent_program, agent_tries, tries
from authplane.devkit.local.served_urls import served_urls
from authplane.devkit.local.workspace import Workspace, prepare_identities, prepare_workspace
from authplane.runtime.servers.listen import TcpAddress

NOW = datetime.now(UTC)
PORTS = {Part.AUTHSERVER: 9443, Part.ECHO: 9080, Part.TOOLS: 9082, Part.ISSUER: 9445}
OFFERED = {part: TcpAddress(host="127.0.0.1", port=port) for part, port in PORTS.items()}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = prepare_workspace(tmp_path, NOW)
    prepare_identities(made, "127.0.0.1", NOW)
    return made


def edit(workspace: Workspace, file: str, old: str, new: str) -> Generation:
    path = workspace.quickstart / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return read_generation(workspace.quickstart)


@pytest.mark.requirement("O05")
def test_urls_have_the_paths_of_routes_and_what_authorizes_them(workspace: Workspace) -> None:
    graph = read_generation(workspace.quickstart).built.graph
    assert [(each.url, *each.details) for each in served_urls(graph)] == [
        ("https://localhost:8090/mcp", "MCP server default/tools", "checked by AccessPolicies"),
        (
            "https://localhost:8091/mcp",
            "MCP server default/tools",
            "checked by AccessPolicies",
            "client certificate required",
        ),
        ("https://localhost:8443/public", "default/echo:80", "authorization disabled"),
        ("https://localhost:8443/", "default/echo:80", "checked by default/authserver"),
    ]


def test_urls_of_backends_without_a_gateway(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ALONE, encoding="utf-8")
    [served] = served_urls(read_generation(tmp_path).built.graph)
    assert (served.url, served.mcp) == ("http://127.0.0.1:8090/shop/notes", True)


ALONE = """\
apiVersion: v1
kind: Service
metadata: {name: notes, namespace: shop}
spec:
  ports: [{name: mcp, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: notes-1, namespace: shop, labels: {kubernetes.io/service-name: notes}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{name: mcp, port: 7000}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: notes, namespace: shop}
spec:
  type: MCP
  mcp: {serviceName: notes, port: 80, path: /mcp}
"""


@pytest.mark.requirement("O05")
def test_only_what_resources_refer_to_is_needed(workspace: Workspace, tmp_path: Path) -> None:
    assert needed_parts(OFFERED, read_generation(workspace.quickstart)) == set(Part)
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.yaml").write_text(ALONE, encoding="utf-8")
    assert needed_parts(OFFERED, read_generation(own)) == set()
    elsewhere = {**OFFERED, Part.TOOLS: TcpAddress(host="127.0.0.1", port=7000)}
    assert needed_parts(elsewhere, read_generation(own)) == {Part.TOOLS}


REMOVED = {
    Part.ECHO: ("echo.yaml", "port: 9080", "port: 7001"),
    Part.TOOLS: ("tools.yaml", "port: 9082", "port: 7001"),
    Part.AUTHSERVER: ("authserver.yaml", "- name: grpc\n  port: 9443", "- name: grpc\n  port: 7001"),
    Part.ISSUER: ("tools.yaml", "issuerUrl: https://127.0.0.1:9445", "issuerUrl: https://idp.example"),
}


@pytest.mark.parametrize("part", Part)
def test_a_part_that_nothing_refers_to_is_not_needed(part: Part, workspace: Workspace) -> None:
    generation = edit(workspace, *REMOVED[part])
    assert needed_parts(OFFERED, generation) == set(Part) - {part}


def test_a_policy_server_of_the_configuration_is_not_the_sample_authorization_service(workspace: Workspace) -> None:
    (workspace.quickstart / "authserver.yaml").unlink()
    (workspace.quickstart / "echo.yaml").unlink()
    generation = edit(
        workspace, "gateway.yaml", "  gateway:\n", "  policyServer: {address: '127.0.0.1:9443'}\n  gateway:\n"
    )
    assert Part.AUTHSERVER not in needed_parts(OFFERED, generation)


SETTINGS: dict[str, tuple[str, int, str]] = {
    "HTTPProxies": (
        "gateway.yaml",
        8443,
        "set spec.listeners.https.port of the AuthplaneConfiguration to another port.",
    ),
    "plain HTTP": ("gateway.yaml", 8080, "set spec.listeners.http.port of the AuthplaneConfiguration to another port."),
    "a Gateway": ("tools.yaml", 8091, "set spec.listeners[1].port of Gateway default/agents to another port."),
}


def free_ports(workspace: Workspace) -> None:
    for port in (8080, 8443, 8090, 8091):
        free = free_port()
        for path in workspace.quickstart.iterdir():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(f"ort: {port}\n", f"ort: {free}\n"), encoding="utf-8")


@pytest.mark.requirement("O07")
@pytest.mark.parametrize(("file", "port", "remedy"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_taken_port_of_the_gateway_names_process_and_setting(
    file: str, port: int, remedy: str, workspace: Workspace
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        edit(workspace, file, f"port: {port}\n", f"port: {number}\n")
        free_ports(workspace)
        generation = read_generation(workspace.quickstart)
        with pytest.raises(PortNeededError) as raised:
            claim_parts({}, generation, strict=True)
    assert str(raised.value).startswith(f"Cannot listen on 127.0.0.1:{number}: process ")
    assert str(raised.value).endswith(f" listens there. Stop that program, or {remedy}")


def test_a_taken_port_of_a_part_names_the_option_and_in_an_own_folder_is_used(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        edit(workspace, "echo.yaml", "port: 9080\n", f"port: {number}\n")
        free_ports(workspace)
        generation = read_generation(workspace.quickstart)
        offered = {Part.ECHO: TcpAddress(host="127.0.0.1", port=number)}
        with pytest.raises(PortNeededError, match=r"set --echo-address to another port, and use"):
            claim_parts(offered, generation, strict=True)
        [(part, who)] = claim_parts(offered, generation, strict=False).items()
    assert part is Part.ECHO
    assert who.startswith("process ")


def test_a_port_for_two_names_both_settings(workspace: Workspace) -> None:
    generation = edit(workspace, "tools.yaml", "port: 8090\n", "port: 9080\n")
    with pytest.raises(PortNeededError) as raised:
        claim_parts(OFFERED, generation, strict=True)
    settings = "spec.listeners[0].port of Gateway default/agents and --echo-address"
    assert str(raised.value) == f"Several settings use port 9080: {settings}. Use another port in one of them."


def state(workspace: Workspace, generation: Generation | None = None, mode: Mode = Mode.PATH) -> QuickstartState:
    found = generation or read_generation(workspace.quickstart)
    return QuickstartState(workspace=workspace, generation=found, parts=needed_parts(OFFERED, found), mode=mode)


def statuses(given: QuickstartState) -> list[str]:
    return [each.answer[:3] for each in (*tries(given), *agent_tries(given, NOW)) if not each.line.startswith("TOKEN")]


def test_the_quickstart_as_it_is(workspace: Workspace) -> None:
    given = state(workspace)
    assert statuses(given) == ["200", "401", "200", "401", "200", "403", "200"]
    assert "https://localhost:8090/mcp" in agent_program(given)


EDITS: dict[str, tuple[tuple[str, str, str], list[str]]] = {
    "a route that is gone": (("echo.yaml", "/public", "/open"), ["200", "401", "401", "200", "403", "200"]),
    "a tool that people may call now": (
        ("tools.yaml", "      - read_note\n", "      - read_note\n      - delete_note\n"),
        ["200", "401", "200", "401", "200", "200", "200"],
    ),
    "another audience": (
        ("tools.yaml", "        - notes\n", "        - mine\n"),
        ["200", "401", "200", "401", "401", "401", "200"],
    ),
    "another origin": (("tools.yaml", "port: 9082", "port: 7001"), ["200", "401", "200"]),
    "another host": (("echo.yaml", "fqdn: localhost", "fqdn: a.localhost"), ["401", "200", "403", "200"]),
}


@pytest.mark.requirement("O06")
@pytest.mark.parametrize(("change", "want"), EDITS.values(), ids=EDITS.keys())
def test_after_an_edit_only_what_is_true_is_shown(
    change: tuple[str, str, str], want: list[str], workspace: Workspace
) -> None:
    assert statuses(state(workspace, edit(workspace, *change))) == want


def test_an_authorization_service_that_grants_everything_denies_nothing(workspace: Workspace) -> None:
    assert statuses(state(workspace, mode=Mode.ALL))[:2] == ["200", "200"]


def test_without_a_policy_that_trusts_the_issuer_there_is_no_token_to_try(workspace: Workspace) -> None:
    generation = edit(workspace, *REMOVED[Part.ISSUER])
    given = state(workspace, generation)
    lines = [each.line for each in agent_tries(given, NOW)]
    assert not any("TOKEN" in line for line in lines)
    assert agent_program(given) == ""
