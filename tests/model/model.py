#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The model of the commit protocol, searched to its end by spin; and once more with each step left out or
out of its place, which must be found. Prints TAP.

usage: model.py [DEATHS]   how many kills and power cuts a run may have; 3, without saying so
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODEL = Path(__file__).resolve().parent / 'commit.pml'
LONG = os.environ.get('ATOLL_LONG') == '1'
DEATHS = int(sys.argv[1]) if len(sys.argv) > 1 else 6 if LONG else 3

# What is broken, and how many deaths are enough to see it.
BROKEN = {
    'NO_BARRIER_1': 1,          # contents and manifests are not waited for
    'NO_BARRIER_2': 1,          # nor what others did before a database commits
    'NO_BARRIER_3': 1,          # nor the renames before COMMITTED
    'NO_BARRIER_REVOKE': 1,
    'NO_BARRIER_UNDO_1': 1,     # nor what an undo is to leave alone
    'NO_BARRIER_UNDO': 1,
    'NO_BARRIER_REDO': 1,
    'NO_REGISTRY_SYNC': 1,      # a record returns before it is on disk
    'NO_ANNOUNCE': 2,           # recovery acts on what it read, and that was not on disk
    'NO_REVOKED': 1,            # taken back without being recorded
    'NO_UNDOING': 1,
    'NO_REDOING': 1,
    'NO_MARK': 1,               # who recovers cannot tell that others were let in
    'NO_LOOK_AT_DISPLACED': 0,  # what came in at the last moment passes for the original
    'DECIDE_BEFORE_BARRIER': 1,
    'APPLY_BEFORE_DECISION': 0,
    'TELL_EARLY': 0,            # "committed" when it is only decided
    'RELEASE_EARLY': 0,         # originals go before COMMITTED
    'FINAL_FIRST': 0,           # the database commits before those that can go back
    'NO_ASKING': 0,             # all go back, and the database was committed: its answer was lost
    'NO_ASKING_IN_RECOVERY': 1, # the same, and nobody was there to hear it
    'COMMIT_WHAT_WAS_LET_GO': 2,  # what a database let go when it was asked passes for committed
    'UNLOCK_EARLY': 0,          # others are let in while it may still be taken back
}


def search(work, deaths, broken=None):
    """(violated assertion or None, states, what pan said)."""
    work.mkdir()
    shutil.copy(MODEL, work)
    defines = [f'-DDEATHS={deaths}'] + ([f'-D{broken}'] if broken else [])

    def run(*command):
        return subprocess.run(command, cwd=work, check=True, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    run('spin', '-a', *defines, MODEL.name)
    run('gcc', '-w', '-O0' if broken else '-O1', '-DSAFETY', '-DNOREDUCE', '-DNOFAIR', '-o', 'pan', 'pan.c')
    said = subprocess.run(['./pan', '-m1000000', '-w22', '-n'], cwd=work, text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout
    states = re.search(r'^\s*(\S+) states, stored', said, re.M)
    if not states or 'max search depth too small' in said or 'out of memory' in said:
        raise RuntimeError(said)
    violated = re.search(r'assertion violated (.*?) \(at depth', said)
    errors = re.search(r'errors: (\d+)', said)
    if errors and errors[1] != '0' and not violated:
        raise RuntimeError(said)
    return violated[1] if violated else None, int(float(states[1])), said


def atm_14_every_run_of_the_model(scratch):
    violated, states, said = search(scratch / 'whole', DEATHS)
    print(f'# {states} states, {DEATHS} deaths at most')
    return [f'violated: {violated}'] + said.splitlines() if violated else []


def tst_05_every_step_of_the_model_counts(scratch):
    text = MODEL.read_text()
    bad = [f'{name}: not in the model' for name in BROKEN if not re.search(rf'\b{name}\b', text)]
    bad += [f'{name}: in the model, and not tried' for name in
            set(re.findall(r'^#ifn?def (\w+)', text, re.M)) - set(BROKEN) - {'DEATHS'}]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda b: (b, search(scratch / b[0], b[1], b[0])), BROKEN.items())
        for (name, deaths), (violated, _, _) in found:
            if violated:
                print(f'# {name}: {violated}')
            else:
                bad.append(f'{name}: not noticed, with {deaths} deaths')
    return bad


def main():
    if not shutil.which('spin'):
        print('1..0 # SKIP spin is not installed')
        return 0
    checks = [atm_14_every_run_of_the_model, tst_05_every_step_of_the_model_counts]
    print(f'1..{len(checks)}')
    failed = False
    with tempfile.TemporaryDirectory(prefix='atoll-model.') as scratch:
        for number, check in enumerate(checks, 1):
            bad = check(Path(scratch))
            failed = failed or bool(bad)
            print(f"{'not ok' if bad else 'ok'} {number} - {check.__name__}")
            for line in bad:
                print(f'# {line}')
            sys.stdout.flush()
    return int(failed)


sys.exit(main())
