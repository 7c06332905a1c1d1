#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, and included twice. Arguments: the compiler. Prints TAP.

The public header is also read as plain C11 without _GNU_SOURCE, and as C++ where clang is
there to do it: that is how strangers will include it.
"""

import shutil
import subprocess
import sys

from tap import ROOT, Skip, find, run

WARNINGS = ['-Wall', '-Wextra', '-Wpedantic', '-Wundef', '-Werror']
PUBLIC = 'include/atoll.h'


def complaints(compiler, language, header, *flags):
    source = f'#include "{header}"\n#include "{header}"\ntypedef int not_empty;\n'
    done = subprocess.run(
        [*compiler, '-fsyntax-only', *flags, *WARNINGS, f'-I{ROOT}/include', f'-I{ROOT}/src',
         '-x', language, '-'], input=source, capture_output=True, text=True, cwd=ROOT)
    return done.stderr.splitlines()[:5] if done.returncode else []


def check_headers_alone():
    bad = []
    for path in find('src/**/*.h', PUBLIC):
        bad += complaints(sys.argv[1:], 'c', path, '-std=c17', '-D_GNU_SOURCE')
    return bad


def check_public_header_c11():
    return complaints(sys.argv[1:], 'c', PUBLIC, '-std=c11')


def check_public_header_cplusplus():
    if not shutil.which('clang'):
        raise Skip('clang is not installed')
    return complaints(['clang'], 'c++', PUBLIC, '-std=c++11')


sys.exit(run([check_headers_alone, check_public_header_c11, check_public_header_cplusplus]))
