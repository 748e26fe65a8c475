"""`authplane echo`: the origin of the quickstart."""

from authplane.cli.shared.listen_options import AddressOption, LogFormatOption, serving
from authplane.devkit.local.echo_program import serve_echo_origin
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.servers.listen import parse_address


def echo(address: AddressOption = "127.0.0.1:9080", log_format: LogFormatOption = LogFormat.AUTO) -> None:
    """Answer every HTTP request with a description of that request.

    Example: authplane echo --address 127.0.0.1:9080
    """
    set_up_log(log_format)
    with serving():
        serve_echo_origin(parse_address(address))
