#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines of the directories that keep the promise were reached by the tests.

usage: coverage.py [--check] [--lines] BUILD|TRACE

BUILD was configured by `./setup coverage`: every process counts in a file below BUILD/profile that it shares
with the others of its program, so that one that is killed has counted all the same. Prints a table, and what
was not reached, by function; with --lines the lines themselves. TRACE is what LLVM said, kept. --check: each of these functions must have a
reason in docs/coverage.md, and each directory must have MINIMUM.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / 'docs/coverage.md'
DIRECTORIES = ['txn', 'fs', 'plan', 'lock', 'strategy']
MINIMUM = 95.0


def export(build):
    """What LLVM says of the library, which has all that is asked about; what other programs ran of it counts."""
    merged = build / 'coverage.profdata'
    counts = sorted(str(path) for path in (build / 'profile').glob('*.profraw'))
    if not counts:
        sys.exit(f'coverage.py: nothing was run in {build}')
    subprocess.run(['llvm-profdata', 'merge', '-sparse', '-o', str(merged), *counts], check=True)
    library = next(path for path in sorted((build / 'src').glob('libatoll.so.*')) if path.is_file())
    return subprocess.run(['llvm-cov', 'export', '-format=lcov', '-instr-profile', str(merged), str(library)],
                          check=True, capture_output=True, text=True).stdout


def read_lines(text):
    """{file: ({line: count}, [(first line, function)])} of a trace in lcov's format."""
    files, path = {}, None
    for entry in text.splitlines():
        kind, _, rest = entry.partition(':')
        if kind == 'SF':
            path = (ROOT / rest).resolve().relative_to(ROOT).as_posix()
            lines, functions = files.setdefault(path, ({}, []))
        elif kind == 'FN':
            number, name = rest.split(',', 1)
            functions.append((int(number), name.split(':')[-1]))
        elif kind == 'DA':
            number, count = rest.split(',')[:2]
            lines[int(number)] = max(lines.get(int(number), 0), int(count))
    return files


def macros(path):
    """Numbers of the lines that define one: LLVM counts what came of them there, too."""
    found, inside = set(), False
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        inside = inside or bool(re.match(r'\s*#\s*define\b', line))
        if inside:
            found.add(number)
        inside = inside and line.endswith('\\')
    return found


class Directory:
    def __init__(self, name, files):
        self.name = name
        self.lines = self.reached = 0
        self.missed = {}  # (file, function): lines
        for path, (lines, functions) in sorted(files.items()):
            if path.startswith(f'src/{name}/') and path.endswith('.c'):
                self.add(path, lines, sorted(functions))

    def add(self, path, lines, functions):
        no_code = macros(path)
        for number, count in sorted(lines.items()):
            if number in no_code:
                continue
            self.lines += 1
            if count:
                self.reached += 1
                continue
            function = [name for first, name in functions if first <= number][-1]
            self.missed.setdefault((path, function), []).append(number)

    def percent(self):
        return 100 * self.reached / self.lines if self.lines else 100.0


def ranges(numbers):
    """12, 13, 14, 20: "12-14 20"."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ' '.join(str(a) if a == b else f'{a}-{b}' for a, b in found)


def explained():
    """(file, function) of the page: a row is `| file | function, function | reason |`."""
    names = set()
    for row in re.findall(r'^\| `src/([^`]+)` \| ([^|]+) \|', PAGE.read_text(), re.M):
        names |= {(f'src/{row[0]}', function) for function in re.findall(r'`([^`]+)`', row[1])}
    return names


def show(directories, with_lines):
    for directory in directories:
        for (path, function), numbers in directory.missed.items():
            print(f'{path}: {function}: {ranges(numbers)}')
            if with_lines:
                source = (ROOT / path).read_text().splitlines()
                for number in numbers:
                    print(f'    {number:4} {source[number - 1]}')
    print(f'\n{"directory":<14} {"lines":>6} {"reached":>8} {"percent":>8}')
    for directory in directories:
        print(f'src/{directory.name:<10} {directory.lines:6} {directory.reached:8} {directory.percent():8.1f}')


def check(directories):
    wrong = []
    known, missed = explained(), set()
    for directory in directories:
        missed |= set(directory.missed)
        if directory.percent() < MINIMUM:
            wrong.append(f'src/{directory.name}: less than {MINIMUM:.0f} percent')
    wrong += [f'{path}: {function}: not reached, and {PAGE.relative_to(ROOT)} has no reason for it'
              for path, function in sorted(missed - known)]
    for path, function in sorted(known - missed):
        print(f'{path}: {function}: has a reason not to be reached, and was', file=sys.stderr)
    for text in wrong:
        print(f'coverage.py: {text}', file=sys.stderr)
    return 1 if wrong else 0


if __name__ == '__main__':
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument('--check', action='store_true')
    PARSER.add_argument('--lines', action='store_true')
    PARSER.add_argument('build', type=Path)
    ARGS = PARSER.parse_args()
    FILES = read_lines(ARGS.build.read_text() if ARGS.build.is_file() else export(ARGS.build))
    FOUND = [Directory(name, FILES) for name in DIRECTORIES]
    show(FOUND, ARGS.lines)
    sys.exit(check(FOUND) if ARGS.check else 0)
