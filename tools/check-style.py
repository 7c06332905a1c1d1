#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/STYLE.md and docs/ARCHITECTURE.md that a program can check. Prints TAP."""

import re
import sys

from tap import Skip, find, read, run, strip_c, test_names

# Folder -> folders whose headers it may include. docs/ARCHITECTURE.md carries the same table
# for people, and check_layer_table_documented keeps the two equal.
MAY_USE = {
    'util': [],
    'fs': ['util'],
    'lock': ['fs', 'util'],
    'registry': ['lock', 'fs', 'util'],
    'diff': ['fs', 'util'],
    'strategy': ['diff', 'postgres', 'fs', 'util'],
    'token': ['strategy', 'lock', 'fs', 'util'],
    'txn': ['strategy', 'registry', 'fs', 'util'],
    'exec': ['fs', 'util'],
    'plan': ['txn', 'strategy', 'registry', 'lock', 'diff', 'exec', 'fs', 'util'],
    'auth': ['plan', 'registry', 'lock', 'fs', 'util'],
    'remote': ['token', 'plan', 'strategy', 'registry', 'sync', 'lock', 'fs', 'util'],
    'helper': ['exec', 'fs', 'util'],
    'sync': ['fs', 'util'],
    'postgres': ['fs', 'util'],
    'answer': ['plan', 'diff', 'util'],
    'daemon': ['answer', 'auth', 'plan', 'registry', 'sync', 'diff', 'fs', 'util'],
    'cli': ['answer', 'remote', 'auth', 'plan', 'registry', 'helper', 'diff', 'util'],
}
# From these folders only the headers named.
ONLY_HEADERS = {
    ('lock', 'fs'): {'fs/mount.h'},
    ('helper', 'exec'): {'exec/request.h'},
    ('strategy', 'postgres'): {'postgres/protocol.h'},
    ('token', 'strategy'): {'strategy/result.h'},
    ('remote', 'strategy'): {'strategy/git-call.h', 'strategy/result.h'},
    ('cli', 'registry'): {'registry/session.h'},
    ('cli', 'helper'): {'helper/run.h'},
    ('remote', 'token'): {'token/curl.h'},
}

# What makes a thing exist, vanish or last: only fs/ does that, so that one place knows the
# order in which it happens.
DURABLE = re.compile(
    r'(?<![\w.>])(rename|renameat2?|link|linkat|symlink|symlinkat|mkdir|mkdirat|unlink|unlinkat|'
    r'rmdir|remove|mknod|mknodat|mkfifo|mkfifoat|creat|fsync|fdatasync|syncfs|sync|'
    r'sync_file_range|ftruncate|truncate|mkstemp|mkostemp|mkdtemp|tmpfile)\s*\(|'
    r'\b(O_CREAT|O_TMPFILE)\b')
# The lock file is made and cut by its own module: it holds nothing that must last.
DURABLE_ALLOWED = {'lock': {'O_CREAT', 'ftruncate'}}

PRINTS = re.compile(
    r'(?<![\w.>])(v?printf|puts|putchar|perror|v?warnx?|v?errx?|syslog|exit|_exit|_Exit|'
    r'quick_exit)\s*\(|\b(stdout|stderr)\b')
MAY_PRINT = {'cli', 'helper', 'postgres', 'daemon'}
PRINTS_ALLOWED = {
    'src/util/error.c': {'stderr'},  # error_bug() says where, then aborts
    'src/sync/main.c': {'stderr'},   # the program; the rest of the folder is a library
}

LINES_WARN = 600
LINES_MAX = 1000
WHOLE = {'include/atoll.h'}  # the public interface, which is one header

SOURCES = ('include/*.h', 'src/**/*.[ch]', 'tests/**/*.[ch]', 'tools/*.c', 'bench/**/*.[ch]')
SCRIPTS = ('setup', '.ci/run', '**/meson.build', 'meson_options.txt', 'tools/*.py', 'tools/*.sh',
           'tests/**/*.py', 'tests/**/*.sh', 'tests/**/*.bash', 'tests/**/*.bats', 'bench/**/*.py',
           'bench/**/*.sh')


def matches(paths, pattern, strip=True):
    """(path, line number, what matched) over all files, comments and strings left out."""
    for path in paths:
        text = strip_c(read(path)) if strip else read(path)
        for number, line in enumerate(text.splitlines(), 1):
            for match in pattern.finditer(line):
                yield path, number, next((g for g in match.groups() if g), match[0])


def includes():
    """(path, line number, header) of every #include "..." below src/."""
    pattern = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
    for path in find('src/**/*.[ch]'):
        text = strip_c(read(path), keep_strings=True)
        for number, line in enumerate(text.splitlines(), 1):
            match = pattern.match(line)
            if match:
                yield path, number, match[1]


def check_layers():
    bad = []
    for path, number, header in includes():
        own = path.parts[1]
        folder = header.split('/')[0]
        where = f'{path}:{number}'
        if own not in MAY_USE:
            bad.append(f'{where}: folder {own} is not in the layer table')
        elif '/' not in header:
            bad.append(f'{where}: write "{own}/{header}": includes start at src/')
        elif folder != own and folder not in MAY_USE[own]:
            bad.append(f'{where}: {own} may not use {folder} ({header})')
        elif header not in ONLY_HEADERS.get((own, folder), {header}):
            bad.append(f'{where}: {own} may not use {header}')
    return bad


def check_impl_headers():
    return [f'{path}:{number}: {header} is for its own folder only'
            for path, number, header in includes()
            if header.endswith('-impl.h') and header.split('/')[0] != path.parts[1]]


def check_strategies_apart():
    """A file that ends in an ops table is a strategy; overlay-mount.h is a part of overlay."""
    table = re.compile(r'\bstruct strategy_ops \w+ = \{')
    names = {path.stem for path in find('src/strategy/*.c') if table.search(read(path))}
    bad = []
    for path, number, header in includes():
        own = path.stem.split('-')[0]
        other = re.split(r'[-.]', header.split('/')[-1])[0]
        if (path.parts[1] == 'strategy' and header.startswith('strategy/') and
                own in names and other in names and other != own):
            bad.append(f'{path}:{number}: strategy {own} includes {header}')
    return bad


def check_layer_table_documented():
    rows = dict(re.findall(r'^\| `(\w+)/` \|[^|]*\| ([^|]*) \|', read('docs/ARCHITECTURE.md'), re.M))
    bad = [f'docs/ARCHITECTURE.md: no row for {folder}' for folder in MAY_USE if folder not in rows]
    for folder, cell in rows.items():
        told = set(re.findall(r'`(\w+)(?:/[\w.]+)?`', cell))
        if told != set(MAY_USE.get(folder, [])):
            bad.append(f'docs/ARCHITECTURE.md: {folder} may use {sorted(MAY_USE.get(folder, []))}')
    return bad


def check_durable_calls():
    paths = [p for p in find('src/**/*.[ch]') if p.parts[1] != 'fs']
    return [f'{path}:{number}: {call} belongs in fs/'
            for path, number, call in matches(paths, DURABLE)
            if call not in DURABLE_ALLOWED.get(path.parts[1], ())]


def check_printing():
    paths = [p for p in find('src/**/*.[ch]') if p.parts[1] not in MAY_PRINT]
    return [f'{path}:{number}: {call}: only {", ".join(sorted(MAY_PRINT))} print and exit'
            for path, number, call in matches(paths, PRINTS)
            if call not in PRINTS_ALLOWED.get(str(path), ())]


def check_file_length():
    bad = []
    for path in find('include/*.h', 'src/**/*.[ch]'):
        lines = read(path).count('\n')
        if lines >= LINES_MAX and str(path) not in WHOLE:
            bad.append(f'{path}: {lines} lines, split it')
        elif lines > LINES_WARN:
            print(f'# {path}: {lines} lines, look again')
    return bad


def check_spdx():
    return [f'{path}: no SPDX line at its top'
            for path in find(*SOURCES, *SCRIPTS)
            if path.name != 'meson.build' and 'SPDX-License-Identifier: Apache-2.0' not in '\n'.join(
                read(path).splitlines()[:3])]


def check_unfinished_marks():
    pattern = re.compile(r'\b(?:TO' r'DO|FIX' r'ME)\b(?!\(#\d+\))')
    return [f'{path}:{number}: {mark} without an issue number, as in {mark}(#12)'
            for path, number, mark in matches(find(*SOURCES, *SCRIPTS), pattern, strip=False)]


def check_commit_point():
    if not find('src/txn/txn.c'):
        raise Skip('src/txn/txn.c is not there')
    count = read('src/txn/txn.c').count('/* COMMIT POINT */')
    return [] if count == 1 else [f'src/txn/txn.c: {count} commit points marked, want exactly one']


def check_sources_listed():
    """A source or test that no meson.build names is never compiled, and never missed."""
    bad = []
    for path in find('src/*/*.c', 'tests/*/*.c', 'tests/*/*.bats'):
        folder = path.parent / 'meson.build'
        listed = read(folder) if find(str(folder)) else ''
        if f"'{path.name}'" not in listed and f"'{path.stem}'" not in listed:
            bad.append(f'{path}: not listed in {folder}')
    return bad


def tst_01_no_replaced_functions():
    pattern = re.compile(
        r'--wrap\b|\bLD_PRELOAD\b|\b(?:will_return\w*|mock|mock_type|mock_ptr_type|'
        r'expect_(?:any|any_always|any_count|check|function_calls?|function_call_any|in_range|in_set|ignore_function_calls|'
        r'memory|not_in_range|not_in_set|not_memory|not_string|not_value|string|value)(?:_count)?)\s*\(')
    paths = find('tests/**/*.[ch]', 'tests/**/*.bats', 'tests/**/*.sh', 'tests/**/*.py',
                 'tests/**/meson.build')
    return [f'{path}:{number}: {what}: tests use the real thing'
            for path, number, what in matches(paths, pattern, strip=False)]


def tst_09_unique_names():
    first = {}
    bad = []
    for name, path in test_names():
        if name in first:
            bad.append(f'{path}: {name} is already in {first[name]}')
        first.setdefault(name, path)
    return bad


sys.exit(run([
    check_layers,
    check_impl_headers,
    check_strategies_apart,
    check_layer_table_documented,
    check_durable_calls,
    check_printing,
    check_file_length,
    check_spdx,
    check_unfinished_marks,
    check_commit_point,
    check_sources_listed,
    tst_01_no_replaced_functions,
    tst_09_unique_names,
]))
