"""`authplane echo`: the origin of the quickstart."""

from authplane.app.echo import serve_echo_origin
from authplane.cli.listen import AddressOption, LogFormatOption, serving
from authplane.io.listen import parse_address
from authplane.io.log import LogFormat, set_up_log


def echo(address: AddressOption = "127.0.0.1:9080", log_format: LogFormatOption = LogFormat.AUTO) -> None:
    """Answer every request with what reached the origin.

    Example: authplane echo --address 127.0.0.1:9080
    """
    set_up_log(log_format)
    with serving():
        serve_echo_origin(parse_address(address))
