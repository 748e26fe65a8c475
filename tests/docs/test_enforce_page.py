"""The page about gRPC servers that enforce policies: its program, bootstrap and commands work together."""

import json
import time
from pathlib import Path

import pytest
from tests.docs.tutorial_shell import shell
from tests.support.eventually import START_LIMIT
from tests.support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "enforce-policies-in-grpc-servers.md"
CLIENT = """
import grpc, sys
ca, key, chain = (open(f".authplane/dev/{name}", "rb").read() for name in ("tls-ca.crt", "web.key", "web.crt"))
with grpc.secure_channel("localhost:50051", grpc.ssl_channel_credentials(ca, key, chain)) as channel:
    for method in ("List", "Cancel"):
        try:
            print(channel.unary_unary(f"/shop.Orders/{method}")(b"", timeout=5).decode())
        except grpc.RpcError as error:
            print(error.code().name)
"""


@pytest.mark.real
@pytest.mark.slow
def test_the_server_of_the_page_enforces_the_policies_of_the_example(tmp_path: Path) -> None:
    shown = {block.language: block.text for block in blocks(PAGE) if block.language in {"python", "json"}}
    assert json.loads(shown["json"])["node"] == {"id": "orders-1"}
    files = {"orders_server.py": shown["python"], "bootstrap.json": shown["json"], "client.py": CLIENT}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    typed = [block.text.splitlines() for block in blocks(PAGE) if block.language == "sh"]
    [certificates] = [lines for lines in typed if lines[0].startswith("authplane dev")]
    [programs] = [lines for lines in typed if lines[0].startswith("authplane control")]
    with shell(tmp_path) as terminal:
        terminal.run(f"export XDG_STATE_HOME={tmp_path}/state; " + "; ".join(certificates))
        for each in programs:
            terminal.start(each)
        until = time.monotonic() + START_LIMIT
        said = ""
        while said != "order 1, order 2\nPERMISSION_DENIED\n" and time.monotonic() < until:
            time.sleep(0.2)
            said = terminal.run("python client.py 2>&1")
        assert said == "order 1, order 2\nPERMISSION_DENIED\n", terminal.logs()
