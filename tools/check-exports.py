#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libatoll.so exports what atoll.h declares, and nothing else. Argument: the library. TAP."""

import re
import subprocess
import sys

from tap import read, run, strip_c


def exported():
    done = subprocess.run(['nm', '-D', '--defined-only', sys.argv[1]], check=True,
                          capture_output=True, text=True)
    symbols = (line.split() for line in done.stdout.splitlines())
    return {symbol[-1].split('@')[0] for symbol in symbols if symbol[-2] != 'A'}


def declared():
    return set(re.findall(r'\bATOLL_API\b[^;]*?\b(atoll_\w+)\s*\(', strip_c(read('include/atoll.h'))))


def check_exports():
    return ([f'{name} is declared but not exported' for name in sorted(declared() - exported())] +
            [f'{name} is exported but not declared' for name in sorted(exported() - declared())])


sys.exit(run([check_exports]))
