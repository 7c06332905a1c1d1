#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format has nothing to change. Argument: the clang-format to run. Prints TAP."""

import subprocess
import sys

from tap import ROOT, find, run


def check_clang_format():
    paths = find('include/*.h', 'src/**/*.[ch]', 'tests/**/*.[ch]', 'tools/*.c', 'bench/**/*.[ch]')
    done = subprocess.run(
        [sys.argv[1], '--dry-run', '-Werror', '--ferror-limit=1', *map(str, paths)],
        cwd=ROOT, capture_output=True, text=True)
    bad = sorted({line.split(':')[0] for line in done.stderr.splitlines() if ' error: ' in line})
    if done.returncode and not bad:
        bad = done.stderr.splitlines()[:5]
    return [f'{name}: run clang-format -i on it' for name in bad]


sys.exit(run([check_clang_format]))
