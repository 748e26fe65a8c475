"""A proxy that refuses a listener is not sent routes that need it."""

import pytest
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import Gateway, gateway, kill
from tests.support.gateways.status_conditions import conditions

REFUSED = "203.0.113.1"
"""An address that this machine does not have: valid for us, impossible for Envoy."""

REFUSAL = "proxy rejected configuration"
REBUILT = '"event": "rebuilt configuration"'


def host(name: str, authorization: str = "") -> str:
    """Return a host without TLS: all of them share a connection manager."""
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {name}}}
spec:
  virtualhost: {{fqdn: {name}.example{authorization}}}
  routes:
  - services: [{{name: echo, port: 80}}]
"""


def checked(more: str = "") -> str:
    return f", authorization: {{extensionRef: {{name: auth}}, responseTimeout: 2s{more}}}"


async def statuses(it: Gateway, *names: str) -> list[int]:
    return [(await it.get_plain("/secret", f"{name}.example")).status_code for name in names]


async def become(it: Gateway, want: dict[str, int]) -> None:
    async def holds() -> bool:
        return await statuses(it, *want) == list(want.values())

    await eventually(holds)


async def rebuilt(it: Gateway, name: str, text: str) -> None:
    """Write a file and wait until what follows from it was published."""
    before = it.count("control", REBUILT)
    it.write(name, text)

    async def holds() -> bool:
        return it.count("control", REBUILT) > before

    await eventually(holds)


OTHERS = {
    "no filter is there": (False, {"open": ""}),
    "the filters are others": (True, {"open": "", "one": checked(), "two": checked(", failOpen: true")}),
}
"""The variant, and what the listener serves that stays: hosts and their authorization."""


@pytest.mark.real
@pytest.mark.requirement("X04")
@pytest.mark.parametrize(("delta", "others"), OTHERS.values(), ids=OTHERS.keys())
async def test_a_host_does_not_appear_on_a_listener_without_its_filter(delta: bool, others: dict[str, str]) -> None:
    async with gateway(delta=delta) as it:
        text = (it.folder / "gateway.yaml").read_text(encoding="utf-8")
        allowed = text + "  contour: {allowInsecureAuthorization: true}\n"
        it.write("gateway.yaml", allowed)
        it.write("others.yaml", "---".join(host(name, how) for name, how in others.items()))
        before = {name: 401 if how else 200 for name, how in others.items()}
        await become(it, before)
        # Its check sends the body along, which is a filter of its own; Envoy refuses the listener that has it.
        new = host("new", checked(", withRequestBody: {maxRequestBytes: 9}"))
        refused = allowed.replace("http: {address: 127.0.0.1", f"http: {{address: {REFUSED}")
        it.write("gateway.yaml", f"{refused}---{new}")
        await it.says("control", REFUSAL)
        assert await statuses(it, "new", *before) == [404, *before.values()]
        programmed = (await conditions(it.folder, "HTTPProxy", "new"))["Programmed"]
        assert (programmed["status"], programmed["reason"]) == ("False", "Rejected")
        assert REFUSED in programmed["message"]
        # What follows is held back as well, also by a control plane that has not seen the refusal.
        await rebuilt(it, "later.yaml", host("later"))
        assert it.count("control", REFUSAL) == 1
        assert await statuses(it, "new", "later", *before) == [404, 404, *before.values()]
        await kill(it.control)
        async with it.running_control():

            async def refused_again() -> bool:
                return it.count("control", REFUSAL) > 1

            await eventually(refused_again)  # Envoy takes its time to come back
            assert await statuses(it, "new", "later", *before) == [404, 404, *before.values()]
            it.write("gateway.yaml", f"{allowed}---{new}")
            await become(it, {"new": 401, "later": 200} | before)
