# SPDX-License-Identifier: Apache-2.0
"""^C, SIGTERM and SIGHUP while a plan's work is committed, undone, dropped or taken away: before the decision
nothing was changed, after it the work is carried out, and a second signal leaves the rest to recovery. In the
foreground of a terminal, since a script's background job ignores ^C. Where a signal arrives is said by strace:
on the N-th call of a kind."""

import collections
import json
import os
import re
import signal
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from terminals import ATOLL, World  # noqa: E402

LONG = os.environ.get('ATOLL_LONG') == '1'
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FILES = 40
CHANGE = 'for f in f[0-9]*; do echo new >$f; done'
UNCHANGED = 'atoll: interrupted; nothing was changed'
FINISHING = r'finishing \(\^C again leaves the rest to atoll recover\)'


class Copies(World):
    """A plan of two directories, of which the first one's files are all changed."""

    def __init__(self, files=FILES, strategy='copy'):
        super().__init__()
        self.files = [self.root / f'f{i}' for i in range(files)]
        self.other = self.top / 'other'
        self.other.mkdir()
        self.atoll('stop', 'p')
        self.env['ASAN_OPTIONS'] = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'  # strace traces, so it cannot
        for path in self.files:
            path.write_text('old\n')
        self.must('start', 'p', '--strategy', strategy, '--dir', str(self.root), '--dir', str(self.other))
        self.must('exec', 'p', '--', 'sh', '-c', CHANGE)

    def must(self, *words):
        said = self.atoll(*words)
        same(said.returncode, 0, f'atoll {" ".join(words)}: {said.stderr.decode()}')
        return said.stdout.decode()

    def traced(self, what, *words):
        """`atoll WORDS` on a terminal, with what strace is to inject. Not into a barrier: it is one syncfs() only
        where little is dirty on the whole machine (fs/sync.c), else several threads of fsync()."""
        return self.terminal('strace', '-f', '-qq', '-o', '/dev/null', '-e', 'signal=none', '-e', f'trace={what.split(":")[0]}',
                             '-e', f'inject={what}', ATOLL, *words)

    def contents(self):
        return {path.read_text() for path in self.files}

    def plan(self):
        plans = [p for p in json.loads(self.must('list', '--json'))['plans'] if p['name'] == 'p']
        return plans[0] if plans else None

    def is_open(self):
        need(not self.plan()['in_doubt'], 'it is in doubt')
        same(self.plan()['state'], 'OPEN', 'the plan')


# What takes the place of an answer.
CONFIRMED = {'stop': ('--force', '--yes'), 'reset': ('--yes',), 'rollback': ('--yes',)}
SLOW = 'renameat2:delay_enter=20000'

# Verb, where its signal arrives, whether that is before the decision.
PLACES = (
    ('commit', 'fdatasync:when=1', True),             # that it begins is being recorded
    ('commit', 'unlinkat:when=2', True),              # the changes are staged, and are to be made durable
    ('commit', 'fdatasync:when=2', False),            # the decision is being recorded
    ('commit', f'renameat2:when={FILES + 5}', False),  # a few files are exchanged
    ('commit', f'renameat2:when={2 * FILES}', False),  # the last one is, and then the exchanges made durable
    ('commit', 'fdatasync:when=3', False),            # that it is done is being recorded
    ('rollback', 'renameat2:when=5', False),
    ('rollback', 'fdatasync:when=1', False),
    ('undo', 'renameat2:when=5', False),
    ('undo', 'fdatasync:when=1', False),
    ('redo', 'renameat2:when=5', False),
    ('redo', 'fdatasync:when=1', False),
    ('reset', 'fdatasync:when=1', False),
    ('refresh', 'fdatasync:when=1', False),
    ('stop', 'fdatasync:when=1', False),
)


def signal_at(verb, place, early, sig):
    call, when = place.split(':')
    with Copies() as w:
        if verb in ('rollback', 'undo', 'redo'):
            w.must('commit', 'p')
        if verb == 'redo':
            w.must('undo', 'p')
        before = w.contents()
        words = [verb, *CONFIRMED.get(verb, ()), 'p']
        t = w.traced(f'{call}:signal={sig.name[3:]}:{when}', *words)
        where = f'{sig.name} at {place} of {verb}'
        if early:
            t.expect(UNCHANGED, f'{where}: that it was interrupted')
            same(t.end(), -sig, f'{where}: its end')
            same(w.contents(), before, f'{where}: the files')
            w.is_open()
            w.must(verb, 'p')
        else:
            t.expect(FINISHING, f'{where}: that it goes on')
            same(t.end(), 0, f'{where}: exit status')
        same(w.contents(), {'new\n'} if verb in ('commit', 'redo') else {'old\n'}, f'{where}: the files')
        same(w.plan() is None, verb == 'stop', f'{where}: is the plan gone?')
        need(verb == 'stop' or not w.plan()['in_doubt'], f'{where}: the plan is in doubt')


def atm_14_one_signal_in_each_place():
    """Each verb, interrupted in each phase."""
    for verb, place, early in PLACES:
        signal_at(verb, place, early, signal.SIGINT)


def atm_14_each_signal():
    """What a terminal sends, a service manager, and a terminal that goes away: the same."""
    for sig, place in zip(SIGNALS[1:], (PLACES[0], PLACES[3])):
        signal_at(*place, sig)


def atm_14_ctrl_c_while_waiting():
    """Who waits for the plan's lock stops at once."""
    with Copies() as w:
        holder = w.terminal(ATOLL, 'exec', 'p', '--', 'sh', '-c', 'echo begun; exec sleep 1000')
        holder.expect('begun')
        for words in (['commit'], ['undo'], ['rollback', '--yes'], ['reset', '--yes'], ['refresh']):
            t = w.terminal(ATOLL, *words, 'p')
            t.expect('waiting for')
            t.type('\x03')
            t.expect(UNCHANGED)
            same(t.end(), -signal.SIGINT, f'the end of {words[0]}')
        holder.type('\x03')
        holder.end()
        w.is_open()
        same(w.contents(), {'old\n'}, 'the files')
        w.must('commit', 'p')


def looks(log):
    """At the files: the number of each among the calls of its thread; and None where the signal arrived."""
    calls = collections.Counter()
    for line in log.read_text().splitlines():
        thread = line.split()[0]
        calls[thread] += ' statx(' in line
        if '--- SIGINT' in line:
            yield None
        elif re.search(r' statx\(\d+, "(|[^"]*/)f[0-9]+"', line):
            yield calls[thread]


def atm_14_a_signal_while_it_compares():
    """It stops there, and does not look at all the files first."""
    many = 300
    for strategy in ('copy', 'overlay'):
        with Copies(many, strategy) as w:
            log = w.top / 'trace'
            trace = ['strace', '-f', '-qq', '-o', str(log), '-e', 'trace=statx']
            w.terminal(*trace, ATOLL, 'commit', '--dry-run', 'p').end()
            middle = list(looks(log))[many // 2]
            t = w.terminal(*trace, '-e', f'inject=statx:signal=INT:when={middle}', ATOLL, 'commit', 'p')
            t.expect(UNCHANGED)
            same(t.end(), -signal.SIGINT, f'the end of a commit, {strategy}')
            seen = list(looks(log))
            need(len(seen) - seen.index(None) < many // 4, f'{strategy}: {len(seen) - seen.index(None)} looks afterwards')
            w.is_open()
            same(w.contents(), {'old\n'}, 'the files')


def two_signals(w, t, first_sign, verb, files):
    """^C when it is seen to be at work, and again when it has said that it goes on."""
    while not first_sign():
        t.read(0)
    t.type('\x03')
    t.expect(FINISHING)
    t.type('\x03')
    t.expect(r'not finished: [\d,]+ of %s files; atoll recover finishes it' % f'{files:,}')
    same(t.end(), 7, f'exit status of {verb}')
    need(w.plan()['in_doubt'], 'it is not left to a recovery')
    same(w.contents(), {'old\n', 'new\n'}, 'the files')


def atm_14_a_second_signal_leaves_it_to_recovery():
    """Of a commit and of an undo; what is left is finished by the next command."""
    with Copies() as w:
        two_signals(w, w.traced(SLOW, 'commit', 'p'), lambda: 'new\n' in w.contents(), 'commit', FILES)
        t = w.traced(SLOW, 'recover')
        t.expect('committing')
        t.type('\x03')
        t.expect('atoll: interrupted; atoll recover finishes what another process began')
        same(t.end(), -signal.SIGINT, 'the end of recover')
        need(w.plan()['in_doubt'], 'it is not left to a recovery')
        w.must('recover', 'p')
        same(w.contents(), {'new\n'}, 'the files after a recovery')
        two_signals(w, w.traced(SLOW, 'rollback', 'p'), lambda: 'old\n' in w.contents(), 'rollback', FILES)
        w.must('diff', 'p')
        w.must('exec', 'p', '--', 'true')
        same(w.contents(), {'old\n'}, 'the files after the next command')


def atm_14_a_second_signal_in_stop():
    """It stops between two resources, and the same again finishes it."""
    with Copies() as w:
        def left():
            """Files of the workspace: what else is removed meanwhile does not count."""
            return sum(name[1:].isdigit() for _, _, names in os.walk(w.env['ATOLL_HOME'] + '/plans') for name in names)
        before = left()
        need(before >= FILES, f'{before} files are in the workspace')
        t = w.traced('unlinkat:delay_enter=20000', 'stop', '--force', '--yes', 'p')
        while left() == before:
            t.read(0)
        t.type('\x03')
        t.expect(FINISHING)
        t.type('\x03')
        t.expect('not finished: 1 of 2 resources')
        same(t.end(), 7, 'exit status')
        w.must('stop', '--force', '--yes', 'p')
        same(w.plan(), None, 'the plan')


def atm_14_signals_in_run():
    """Its commit: before the decision the plan is kept, after it the exit status is the command's."""
    for where, said, end, files in (('unlinkat:signal=INT:when=5', UNCHANGED, -signal.SIGINT, {'old\n'}),
                                    (f'renameat2:signal=TERM:when={FILES + 5}', FINISHING, 0, {'new\n'})):
        with Copies() as w:
            w.must('reset', 'p')
            t = w.traced(where, 'run', '--strategy', 'copy', '--commit', '--', 'sh', '-c', CHANGE)
            t.expect(said)
            t.expect('kept' if end else 'committed')
            same(t.end(), end, f'the end of run with {where}')
            same(w.contents(), files, 'the files')
            for plan in json.loads(w.must('list', '--json'))['plans']:
                need(not plan['in_doubt'] and not plan['abandoned'], f'{plan}')
                if plan['name'] != 'p':
                    w.must('stop', '--force', '--yes', plan['name'])
    with Copies() as w:
        w.must('reset', 'p')
        t = w.traced(SLOW, 'run', '--strategy', 'copy', '--commit', '--', 'sh', '-c', CHANGE)
        while 'new\n' not in w.contents():
            t.read(0)
        t.type('\x03')
        t.expect(FINISHING)
        t.type('\x03')
        t.expect(f'not finished: .* of {FILES} files')
        same(t.end(), 125, 'exit status')
        w.must('recover')
        same(w.contents(), {'new\n'}, 'the files')
        for plan in json.loads(w.must('list', '--json'))['plans']:
            if plan['name'] != 'p':
                w.must('stop', '--force', '--yes', plan['name'])


def atm_14_sixty_thousand_files():
    """ATOLL_LONG: as it is, without strace, for 60,000 files."""
    if not LONG:
        return
    count = 60000
    with Copies(count) as w:
        two_signals(w, w.terminal(ATOLL, 'commit', 'p'), lambda: w.files[0].read_text() == 'new\n', 'commit', count)
        t = w.traced(SLOW, 'recover')
        t.expect('committing')
        t.type('\x03')
        t.expect('atoll: interrupted; atoll recover finishes what another process began')
        same(t.end(), -signal.SIGINT, 'the end of recover')
        need(w.plan()['in_doubt'], 'it is not left to a recovery')
        w.must('recover', 'p')
        same(w.contents(), {'new\n'}, 'the files after a recovery')
        t = w.terminal(ATOLL, 'rollback', '--yes', 'p')
        while w.files[0].read_text() == 'new\n' and w.files[-1].read_text() == 'new\n':
            t.read(0)
        t.type('\x03')
        t.expect(FINISHING)
        same(t.end(), 0, 'exit status of an undo that is finished')
        same(w.contents(), {'old\n'}, 'the files after an undo')


if __name__ == '__main__':
    sys.exit(run([complaining(check) for check in (
        atm_14_one_signal_in_each_place,
        atm_14_each_signal,
        atm_14_ctrl_c_while_waiting,
        atm_14_a_signal_while_it_compares,
        atm_14_a_second_signal_leaves_it_to_recovery,
        atm_14_a_second_signal_in_stop,
        atm_14_signals_in_run,
        atm_14_sixty_thousand_files,
    )]))
