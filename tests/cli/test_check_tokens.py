"""Tokens of `authplane check`: verified with keys that somebody gives, or that the issuer publishes."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from tests.cli.test_check import CALL, TARGET, answer, asked, folder, invoke, short
from tests.support.policies.documents import settings
from tests.support.policies.names import ISSUER

from authplane.devkit.identities.signing import SigningKey
from authplane.devkit.local.dev_issuer import IssuerPlan, dev_token, serve_issuer
from authplane.runtime.servers.listen import TcpAddress

__all__ = ["folder"]


class TestTokens:
    """Tokens are verified, with keys that somebody gives or that the issuer publishes."""

    KEY = SigningKey.generate()
    CLAIMS: ClassVar = {"iss": ISSUER, "sub": "ann", "aud": "shop", "group": "admin", "exp": 4_000_000_000}

    def keys(self, folder: Path) -> Path:
        file = folder.parent / "keys.json"
        file.write_text(json.dumps({ISSUER: json.loads(self.KEY.key_set())}), encoding="utf-8")
        return file

    def test_a_token_is_verified_with_the_keys_that_are_given(self, folder: Path) -> None:
        token = self.KEY.sign(self.CLAIMS)
        found = answer(folder, asked(f"{{token: {token}}}"), "--keys", str(self.keys(folder)))
        assert (*short(found), found["notes"]) == ("allow", None, "staff", "granted", [])
        header = f"{{target: {TARGET}, mcp: {CALL}, headers: {{authorization: Bearer {token}}}}}"
        assert short(answer(folder, header, "--keys", str(self.keys(folder)))) == short(found)

    def test_a_token_that_somebody_else_has_signed_proves_nothing(self, folder: Path) -> None:
        other = SigningKey(kid=self.KEY.kid, material=SigningKey.generate().material)
        found = answer(folder, asked(f"{{token: {other.sign(self.CLAIMS)}}}"), "--keys", str(self.keys(folder)))
        assert short(found) == ("deny", 401, "", "bad_token:signature_wrong")

    def test_without_keys_nothing_is_known(self, folder: Path) -> None:
        found = answer(folder, asked(f"{{token: {self.KEY.sign(self.CLAIMS)}}}"))
        assert short(found) == ("unavailable", 503, "", "issuer_not_ready")
        assert found["notes"] == [f"missing: keys of issuer {ISSUER}. Use --keys or --fetch."]

    def test_time_is_that_of_the_request(self, folder: Path) -> None:
        token = self.KEY.sign({**self.CLAIMS, "exp": 1_900_000_000})
        keys = ("--keys", str(self.keys(folder)))
        times = {
            when: f", time: '{when}'"
            for when in ("2030-03-17T17:46:00Z", "2030-03-17T18:46:00+01:00", "2031-01-01T00:00:00Z")
        }
        found = {
            when: short(answer(folder, asked(f"{{token: {token}}}", more=more), *keys))[3]
            for when, more in times.items()
        }
        assert list(found.values()) == ["granted", "granted", "bad_token:token_expired"]

    def test_a_file_of_keys_with_mistakes_is_not_used(self, folder: Path) -> None:
        keys = folder.parent / "keys.yaml"
        keys.write_text(f"{ISSUER}:\n  keyz: []\n", encoding="utf-8")
        request = folder.parent / "r.yaml"
        request.write_text(asked(), encoding="utf-8")
        result = invoke("check", str(folder), "--request", str(request), "--keys", str(keys))
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{keys}:1:1: error: Cannot read the keys" in result.stderr

    async def test_keys_are_fetched_as_a_server_does(self, folder: Path) -> None:
        plan = IssuerPlan(folder=folder.parent / "dev", address=TcpAddress(host="127.0.0.1", port=0))
        now = datetime.now(UTC)
        async with serve_issuer(plan, now) as running:
            text = (folder / "all.yaml").read_text(encoding="utf-8").replace(ISSUER, running.url)
            issuers = f"{{issuers: [{{url: '{running.url}', caFile: '{running.ca_file}'}}]}}"
            (folder / "all.yaml").write_text(f"{text}\n---\n{settings(issuers)}", encoding="utf-8")
            claims = {"sub": "ann", "aud": "shop", "group": "admin"}
            token = dev_token(plan.folder, claims, now=now, lifetime=timedelta(hours=1))
            request = asked(f"{{token: {token}}}")
            found = await asyncio.to_thread(answer, folder, request, "--fetch", "--allow-private-issuers")
            assert short(found) == ("allow", None, "staff", "granted")
            found = await asyncio.to_thread(answer, folder, request, "--fetch")
            assert short(found) == ("unavailable", 503, "", "issuer_not_ready")
