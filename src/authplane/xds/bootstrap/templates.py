"""Names of Listeners, made from the templates of a bootstrap."""

from typing import Final
from urllib.parse import quote

from authplane.xds.bootstrap.xds_bootstrap import Bootstrap

_PATH_CHARACTERS: Final = "/:@!$&'()*+,;="
"""Characters that the path of a URI may have unencoded, beside letters, digits and ``-._~`` (RFC 3986, 3.3)."""


def fill_template(template: str, value: str) -> str:
    """Put a value in place of every ``%s``; percent-encoded if the result is an ``xdstp:`` name."""
    return template.replace("%s", quote(value, safe=_PATH_CHARACTERS) if template.startswith("xdstp:") else value)


def server_listener_name(bootstrap: Bootstrap, address: str) -> str | None:
    """Name the Listener of a server that listens on ``IP:port``; None if the bootstrap has no template for servers."""
    template = bootstrap.listener_template
    return None if template is None else fill_template(template, address)


def client_listener_name(bootstrap: Bootstrap, target: str, authority: str = "") -> str | None:
    """Name the Listener of a client of ``xds://authority/target``; None if the bootstrap does not know the authority.

    A target without an authority uses the template that is there for those.
    """
    if not authority:
        return fill_template(bootstrap.client_listener_template, target)
    known = bootstrap.authorities.get(authority)
    return None if known is None else fill_template(known.listener_template, target)
