#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a header of files: embed.py OUT PREFIX FILE... gives an array PREFIX_<ending> of each."""

import pathlib
import sys


def main():
    out, prefix, *files = sys.argv[1:]
    lines = ["/* Made by tools/embed.py. */"]
    for file in map(pathlib.Path, files):
        lines.append(f"static const unsigned char {prefix}_{file.suffix[1:]}[] = {{")
        data = file.read_bytes()
        for at in range(0, len(data), 16):
            lines.append("\t" + " ".join(f"{byte}," for byte in data[at : at + 16]))
        lines.append("};")
    pathlib.Path(out).write_text("\n".join(lines) + "\n")


main()
