#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation against the program and its tests. Prints TAP.

The argument, if any, is the built gen-states, which prints the state table.
"""

import re
import subprocess
import sys

from tap import ROOT, Skip, find, read, run, test_names

PROTOCOL = 'docs/design/commit-protocol.md'
STATES = 'docs/design/sandbox-states.md'
GUARANTEES = 'docs/guarantees.md'
DOCS = ('*.md', 'docs/**/*.md', 'man/*.scd')


def doc_01_batch_semantics_once():
    """Only the protocol page defines what a commit promises; who promises it points there."""
    if not find(PROTOCOL):
        raise Skip(f'{PROTOCOL} is not there')
    heading = re.compile(r'^#+\s.*\bbatch semantics\b', re.M | re.I)
    promise = re.compile(r'\ball or (?:none|nothing)\b|\bevery resource or none\b', re.I)
    bad = []
    for path in find(*DOCS):
        text = read(path)
        count = len(heading.findall(text))
        if str(path) == PROTOCOL:
            if count != 1:
                bad.append(f'{path}: {count} sections named "Batch semantics", want exactly one')
            continue
        if count:
            bad.append(f'{path}: a second section on batch semantics')
        if promise.search(text) and 'commit-protocol' not in text:
            bad.append(f'{path}: promises all or nothing without pointing to {PROTOCOL}')
    return bad


def doc_02_states_as_built():
    if len(sys.argv) < 2:
        raise Skip('gen-states is not there')
    built = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    block = re.search(r'<!-- generated:states -->\n(.*?)<!-- /generated:states -->',
                      read(STATES), re.S)
    if not block:
        return [f'{STATES}: no block "generated:states"']
    if block[1].strip() == built.strip():
        return []
    return [f'{STATES}: differs from the program; it prints:'] + built.splitlines()


def doc_03_named_tests_exist():
    """Every id such as atm_01 or atm_01_all_or_none in the documentation is a test's name."""
    names = {re.split(r'[:\s]', name)[0] for name, _ in test_names()}
    bad = []
    for path in find(*DOCS):
        for number, line in enumerate(read(path).splitlines(), 1):
            for said in re.findall(r'\b[a-z]{3}_\d\d(?:_\w+)?\b', line):
                if not any(name == said or name.startswith(said + '_') for name in names):
                    bad.append(f'{path}:{number}: there is no test {said}')
    return bad


def doc_03_guarantees_are_tested():
    """Every promise of the page names a test, and all that it names are tests."""
    names = {name for name, _ in test_names()} | {re.split(r'[:\s]', name)[0] for name, _ in test_names()}
    bad, rows = [], 0
    for number, line in enumerate(read(GUARANTEES).splitlines(), 1):
        cells = [cell.strip() for cell in line.split('|')[1:-1]]
        if len(cells) != 3 or cells[2] == 'shown by' or set(cells[2]) == {'-'}:
            continue
        rows += 1
        said = re.findall(r'`(\w+)`', cells[2])
        if not said:
            bad.append(f'{GUARANTEES}:{number}: names no test')
        bad += [f'{GUARANTEES}:{number}: there is no test {name}' for name in said if name not in names]
    return bad or ([] if rows else [f'{GUARANTEES}: promises nothing'])


def check_local_links():
    """Links from one page to another, and to files in the tree, lead somewhere."""
    bad = []
    for path in find('*.md', 'docs/**/*.md'):
        text = re.sub(r'```.*?```', '', read(path), flags=re.S)
        for target in re.findall(r'\]\(([^)#\s]+)(?:#[^)]*)?\)', text):
            if '://' in target or target.startswith('mailto:'):
                continue
            if not ((ROOT / path).parent / target).exists():
                bad.append(f'{path}: link to {target} leads nowhere')
    return bad


sys.exit(run([
    doc_01_batch_semantics_once,
    doc_02_states_as_built,
    doc_03_named_tests_exist,
    doc_03_guarantees_are_tested,
    check_local_links,
]))
