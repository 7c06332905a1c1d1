# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: finding the project's files, and printing TAP."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', Path(__file__).resolve().parent.parent))


class Skip(Exception):
    """Raised by a check that cannot run; the text says why."""


def find(*patterns):
    """Files below the root that match a pattern (as in Path.glob), sorted, as relative paths."""
    found = set()
    for pattern in patterns:
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT)
            if path.is_file() and not re.match(r'build|\.git$', name.parts[0]):
                found.add(name)
    return sorted(found)


def read(path):
    return (ROOT / path).read_text(encoding='utf-8', errors='replace')


def strip_c(text, keep_strings=False):
    """C without comments (and without what strings hold), its lines where they were."""
    def blank(match):
        token = match[0]
        if token.startswith('/'):
            return ' ' + '\n' * token.count('\n')
        return token if keep_strings else token[0] * 2
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)


def row_macros():
    """Names of the macros that make a cmocka row of a function."""
    return {m[1] for path in find('tests/**/*.[ch]') for m in re.finditer(
        r'^#define (\w+)\(\w+\)(?:\\\n|.)*?\bcmocka_unit_test', read(path), re.M)}


def test_names():
    """(name, file) of every test case: cmocka functions, bats titles, checks and Python tests."""
    names = []
    rows = '|'.join(sorted(row_macros()))
    for path in find('tests/**/*.c'):
        text = strip_c(read(path))
        used = set(re.findall(rf'\b(?:cmocka_unit_test\w*|{rows})\(\s*(\w+)', text))
        names += [(m[1], path) for m in re.finditer(
            r'^(?:static )?void (\w+)\(void \*\*\w*\)\s*\{', text, re.M) if m[1] in used]
    for path in find('tests/**/*.bats'):
        names += [(m[1], path) for m in re.finditer(r'^@test ["\'](.+?)["\'] \{', read(path), re.M)]
    for path in find('tests/**/*.py', 'tools/check-*.py'):
        names += [(m[1], path) for m in re.finditer(
            r'^\s*def ((?:test_|[a-z]{3}_\d\d_|check_)\w+)\(', read(path), re.M)]
    return names


def run(checks):
    """Runs functions that return a list of complaints; prints TAP named after them."""
    print(f'1..{len(checks)}')
    bad = False
    for number, check in enumerate(checks, 1):
        try:
            complaints = check()
        except Skip as why:
            print(f'ok {number} - {check.__name__} # SKIP {why}')
            continue
        print(f"{'not ok' if complaints else 'ok'} {number} - {check.__name__}")
        for complaint in complaints:
            print(f'# {complaint}')
        bad = bad or bool(complaints)
        sys.stdout.flush()
    return 1 if bad else 0
