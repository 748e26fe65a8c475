"""The authorization service behind a real Envoy, on both engines."""

from base64 import b64encode
from pathlib import Path

import bcrypt
import pytest
from tests.support.gateways.contour_gateway import gateway, kill, proxy

pytestmark = pytest.mark.real

ENGINES = pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


@ENGINES
async def test_users_with_a_password_reach_the_origin_and_their_password_does_not(engine: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n", encoding="utf-8")
    async with gateway(backend=("htpasswd", "--file", str(users), "--engine", engine)) as it:
        it.write("web.yaml", proxy(authorization="      authPolicy: {context: {realm: default, tenant: blue}}"))
        spoofed = {"auth-username": "root", "auth-context-role": "admin"}

        async def allowed() -> dict[str, str]:
            answer = await it.get("/x", **basic("ann", "secret"), **spoofed)
            assert answer.status_code == 200
            return dict(answer.json()["headers"])

        await it.answers("/x", 401)
        seen = await allowed()
        assert (seen["auth-username"], seen["auth-realm"], seen["auth-handler"]) == ("ann", "default", "htpasswd")
        assert "authorization" not in seen
        assert "auth-context-role" not in seen
        refused = await it.get("/x", **basic("ann", "wrong"))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Basic realm="default", charset="UTF-8"'
        assert (await it.get("/public")).status_code == 200


async def test_the_server_inside_envoy_can_die_and_come_back() -> None:
    async with gateway(backend=("testserver", "--mode", "path", "--engine", "pyvoy")) as it:
        assert (await it.status("/allow"), await it.status("/secret")) == (200, 401)
        await kill(it.authserver)
        await it.answers("/allow", 403)
        assert await it.status("/secret") == 403
        async with it.running_authserver():
            await it.answers("/allow", 200)
            assert await it.status("/secret") == 401
