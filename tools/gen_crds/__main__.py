"""Writes the file of the definitions."""

import sys

from tools.gen_crds.definitions import FILE, text_of_definitions

if __name__ == "__main__":
    FILE.write_text(text_of_definitions(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")
