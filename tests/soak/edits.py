"""Faults that are mistakes in files, and changes that must disturb nobody."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from tests.soak.documents import BANK, SHOP, WEB, policy, policy_file
from tests.soak.programs import PATIENCE
from tests.soak.stage import LOOSENED, Measured, Stage
from tests.support.certificates import authority, tls_secret
from tests.support.eventually import eventually

from authplane.devkit.identities.throwaway_certificates import Leaf, issue

_WHILE: Final = 6.0
"""Seconds for which a mistake stays: longer than a change waits that loosens."""
_BROKEN: Final = "\n---\nkind: AccessPolicy\nspec: {rules: [\n"
_SHOWN: Final = 5.0
"""Seconds until new connections see a renewed certificate."""


@asynccontextmanager
async def broken_policy(stage: Stage) -> AsyncGenerator[None]:
    """Write a mistake over a policy, in place as editors do; it is repaired when the block ends."""
    async with stage.editing:
        path = stage.world.folder / policy_file(stage.random.choice((SHOP, BANK)))
        good = path.read_text(encoding="utf-8")
        path.write_text(good.replace("rules:", "rules: [", 1), encoding="utf-8")
        try:
            await asyncio.sleep(_WHILE)
            yield
        finally:
            path.write_text(good, encoding="utf-8")


async def break_policy(stage: Stage) -> None:
    async with broken_policy(stage):
        pass


async def add_broken_file(stage: Stage) -> None:
    async with stage.editing:
        path = stage.world.folder / "new.yaml"
        other = not stage.announced.sells(SHOP)
        path.write_text(policy(SHOP, stage.world.issuer.url, sells=other, name="new") + _BROKEN, encoding="utf-8")
        await asyncio.sleep(_WHILE)
        path.unlink()


async def pause_inside_document(stage: Stage) -> None:
    """Write a policy anew in two pieces; the first ends where YAML is whole and a rule is missing."""
    async with stage.editing:
        path = stage.world.folder / policy_file(stage.random.choice((SHOP, BANK)))
        good = path.read_text(encoding="utf-8")
        middle = good.index("  - {name: agents")
        with path.open("w", encoding="utf-8") as file:
            file.write(good[:middle])
            file.flush()
            await asyncio.sleep(_WHILE)
            file.write(good[middle:])


async def delete_policy(stage: Stage) -> None:
    """Add a second policy that allows the same as the first, and delete it: nobody's rights change."""
    async with stage.editing:
        same = stage.announced.sells(SHOP)
        stage.world.write("second.yaml", policy(SHOP, stage.world.issuer.url, sells=same, name="second"))
        await asyncio.sleep(LOOSENED)
        (stage.world.folder / "second.yaml").unlink()
        await asyncio.sleep(LOOSENED)


async def renew_certificates(stage: Stage) -> None:
    """Replace the certificate of all listeners, and wait until new connections see the next one."""
    leaf = Leaf(name="localhost", dns=("localhost", WEB), ips=("127.0.0.1",))
    pair = issue(authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))
    wanted = load_pem_x509_certificate(pair.certificate).fingerprint(SHA256())
    async with stage.editing:
        begun = stage.now()
        stage.world.write("tls.yaml", tls_secret("tls", pair))

        async def seen() -> bool:
            return await _shown(stage.world.ports.web) == wanted

        await eventually(seen, limit=PATIENCE)
        stage.measured.append(Measured("renewed certificate is shown", stage.now() - begun, _SHOWN))


async def _shown(port: int) -> bytes:
    trust = ssl.create_default_context(cadata=authority().certificate.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=WEB)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return load_der_x509_certificate(shown).fingerprint(SHA256())
