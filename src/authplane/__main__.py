"""``python -m authplane``."""

from authplane.cli.main import main

main()
