#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sums the stages of a test run into one closing line, "N passed, N failed".

The argument is a file with one line per stage: name, exit status, Meson's JSON log, and the
programs that failed beside others and passed twice alone, separated by tabs; "-" is a stage that
is one result by itself, "" one that counts only when it fails. Single TAP results are counted, not programs. A failure without a "not ok" (a crash, a
time-out, a broken plan, a build that stopped) counts as one failed. What a program says of a
failure, in comments right behind it, is said again here: the end is what is read first.

A result skipped in one stage but passed in another is not a skip: root-only cases in the
user's run, for example, or in one program that runs as both. What no stage ran is reported as ", N skipped", and counts as failed
when $CI is set: skipped is not passed (rule TST-09).

What was unsteady counts as it was when it ran alone (LOG.again), and is named. With --again LOG, the
programs worth that second look are printed: three at most, and only where no sanitizer spoke and none
is about losses, races or ways out.
"""

import json
import os
import re
import sys

RESULT = re.compile(
    r'(?P<not>not )?ok\b\s*(?P<number>\d+)?[\s-]*(?P<name>[^#]*?)\s*'
    r'(?:#\s*(?P<directive>skip|todo)\S*\s*(?P<reason>.*))?$', re.I)
MOST_SAID = 12
MOST_UNSTEADY = 3
# What is wrong whatever happens when it is run again.
SANITIZER = re.compile(r'(Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: |^==\d+== ', re.M)
# Suites of which one failure tells of a loss, a race or a way out, however rarely it shows.
PROOF = {'kill', 'rounds', 'crash', 'order', 'concurrency', 'security'}
PLAN = re.compile(r'1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?', re.I)


def plain(program):
    """"suite / x-user" is x once more, run by root as an ordinary user; "x-strings" is x once more
    as root, and what is about ordinary users is left to x."""
    return re.sub(r'-(user|strings)$', '', program.split(' / ')[-1])


def case(name):
    """"x, root" and "x, user" are x, by both in one program."""
    return re.sub(r', (root|user)$', '', name)


def programs(log):
    """The programs of a Meson log, as it describes them."""
    with open(log, encoding='utf-8', errors='replace') as lines:
        return [json.loads(line) for line in lines]


def called(run):
    """What `meson test` knows it by."""
    return run['name'].split(' / ')[-1]


def is_proof(run):
    """Meson names a program "project:suite+suite / name"."""
    suites = run['name'].split(' / ')[0].split(':')[-1].split('+')
    return bool(PROOF & set(suites)) or SANITIZER.search(run['stdout'] + run.get('stderr', ''))


def worth_another_look(log):
    failed = [run for run in programs(log) if run['result'] not in ('OK', 'SKIP')]
    if len(failed) > MOST_UNSTEADY or any(is_proof(run) for run in failed):
        return []
    return [called(run) for run in failed]


class Sum:
    def __init__(self):
        self.passed = []   # (program, result)
        self.failed = []   # text, with what the program said of it
        self.skipped = []  # (program, result, stage, reason)
        self.unsteady = []

    def add_program(self, stage, run):
        """One program of a Meson log: its TAP results, or one result in all."""
        program = run['name']
        before = len(self.failed)
        plan = None
        count = 0
        said = 0           # how many more lines of a failure are kept
        for line in run['stdout'].splitlines():
            if said and line.startswith('#'):
                said -= 1
                self.failed[-1] += '\n    ' + line
            else:
                said = 0
            found = PLAN.match(line)
            if found:
                plan = found
                continue
            found = RESULT.match(line)
            if found:
                count += 1
                if self.add_result(stage, program, found):
                    said = MOST_SAID

        where = f'{stage}: {program}'
        if plan and plan[1] == '0' and plan[2]:
            self.skipped.append((program, '', stage, plan[2]))
        elif run['result'] not in ('OK', 'SKIP') and len(self.failed) == before:
            self.failed.append(f"{where}: {run['result']}, exit status {run['returncode']}")
        elif not plan or count != int(plan[1]):
            self.failed.append(f'{where}: {count} results do not match the plan')
        elif count == 0:
            self.failed.append(f'{where}: no results, and no reason given')

    def add_result(self, stage, program, found):
        """True when it is a failure."""
        name = found['name'] or found['number'] or ''
        directive = (found['directive'] or '').lower()
        if directive == 'skip' and found['not'] and not found['name']:
            # Of cmocka 1.1.5: "not ok 3 # SKIP name".
            self.skipped.append((program, found['reason'], stage, ''))
        elif directive == 'skip' and not found['not']:
            self.skipped.append((program, name, stage, found['reason']))
        elif found['not'] or directive == 'todo':
            self.failed.append(f'{stage}: {program}: {name}')
            return True
        else:
            self.passed.append((program, name))
        return False

    def add_stage(self, stage, status, log, unsteady=()):
        before = len(self.failed)
        if log == '-':
            if status == 0:
                self.passed.append((stage, ''))
        elif os.path.exists(log):
            for run in programs(log):
                if called(run) not in unsteady:
                    self.add_program(stage, run)
            if unsteady:
                for run in programs(log + '.again'):
                    self.add_program(stage, run)
                self.unsteady += [f'{stage}: {name}' for name in unsteady]
        if status != 0 and len(self.failed) == before:
            self.failed.append(f'{stage}: exit status {status}')

    def never_run(self):
        """Skips that no other stage made good; each once, though skipped in several."""
        results = {(plain(program), case(name)) for program, name in self.passed}
        programs = {program for program, _ in self.passed}
        seen = {}
        for program, name, stage, reason in self.skipped:
            ran = (plain(program), case(name)) in results if name else program in programs
            if not ran:
                seen.setdefault((plain(program) if name else program, name), (stage, reason))
        return seen


def main():
    if sys.argv[1] == '--again':
        print('\n'.join(worth_another_look(sys.argv[2])))
        return 0
    total = Sum()
    with open(sys.argv[1], encoding='utf-8') as stages:
        for line in stages:
            stage, status, log, *unsteady = line.rstrip('\n').split('\t')
            total.add_stage(stage, int(status), log, ' '.join(unsteady).split())

    skipped = total.never_run()
    for text in total.unsteady:
        print(f'unsteady: {text}')
    for text in total.failed:
        print(f'failed: {text}')
    for (program, name), (stage, reason) in skipped.items():
        print(f"skipped: {stage}: {program}: {name} ({reason or 'no reason given'})")

    failed = len(total.failed)
    tail = ''
    if os.environ.get('CI'):
        failed += len(skipped)
    elif skipped:
        tail = f', {len(skipped)} skipped'
    print(f'{len(total.passed)} passed, {failed} failed{tail}')
    return 1 if failed else 0


sys.exit(main())
