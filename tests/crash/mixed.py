#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Up to five kinds in one plan: a directory by overlay, one by copy, a repository whose branch somebody else
moved on, so that it is merged, an SQLite file, and a PostgreSQL database. Something goes wrong in every
phase of each of them, or dies: atoll at every step of the protocol, git, the holder of the transaction, the
server. Then all are exactly old or exactly new, and nothing of ours is left in them. Prints TAP.

usage: mixed.py root|user
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from multiprocessing import Process, Queue
from pathlib import Path

from crashlib import KILL_AT, KILLED, LONG, become, points_in_source, run

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster  # noqa: E402
from expect import need, same  # noqa: E402
from kinds import TABLE, World, until  # noqa: E402

GIT = shutil.which('git')
KINDS = ('overlay', 'copy', 'git', 'sqlite', 'postgres')
WORKERS = 2
DEAD = -signal.SIGKILL

RESOURCE = {'overlay': 'kind = dir\npath = d', 'copy': 'kind = dir\npath = c\nstrategy = copy', 'git': 'kind = git\npath = repo',
            'sqlite': 'kind = sqlite\npath = lite.db', 'postgres': 'kind = postgres\npath = "{url}"'}
WORK = {'overlay': 'echo new >d/f; mkdir d/more; echo new >d/more/f', 'copy': 'echo new >c/f; rm c/gone',
        'git': 'cd repo; sed -i s/^3$/new/ file; git commit -qam new; git tag new; echo new >loose; cd ..',
        'sqlite': 'sqlite3 lite.db "update t set v = \'new\'"',
        'postgres': 'psql -Xqc "insert into t values (6); delete from t where id = 1"'}


class Five(World):
    """A plan of KINDS with work in each of them, and a branch that is not where it was."""

    def __init__(self, cluster, top, kinds=KINDS):
        super().__init__(cluster, top)
        self.kinds = kinds
        self.env.update(HOME=str(self.dir), GIT_CONFIG_NOSYSTEM='1', GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b',
                        GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b')
        (self.dir / 'c').mkdir()
        for name in ('f', 'gone'):
            (self.dir / 'c' / name).write_text('old\n', encoding='utf-8')
        self.shell('git init -q -b main repo; cd repo; seq 20 >file; git add file; git commit -qm old; cd ..; '
                   'sqlite3 lite.db "create table t(id integer primary key, v text); insert into t values (1, \'old\')"')
        plan = '[plan]\nname = p\n' + ''.join(f'[resource "{k}"]\n{RESOURCE[k]}\n' for k in kinds)
        (self.dir / 'plan').write_text(plan.format(url=cluster and cluster.url), encoding='utf-8')
        self.must('start', '--file', 'plan')
        self.work('; '.join(WORK[k] for k in kinds))
        self.shell('cd repo; sed -i s/^18$/theirs/ file; git commit -qam theirs')
        same(self.seen(), dict.fromkeys(kinds, {'old'}), 'before')

    def shell(self, text):
        subprocess.run(['sh', '-ec', text], cwd=self.dir, env=self.env, check=True, stdin=subprocess.DEVNULL)

    def out(self, *argv):
        """Of who only looks: git's status would write an index, which it does not sync."""
        return subprocess.run(argv, cwd=self.dir, env=dict(self.env, GIT_OPTIONAL_LOCKS='0'), check=True, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True).stdout.strip()

    def read(self, name):
        return (self.dir / name).read_text(encoding='utf-8').strip()

    # What each of them shows: old, new, or both.

    def see_overlay(self):
        return {self.read('d/f'), 'new' if (self.dir / 'd/more/f').exists() else 'old'}

    def see_copy(self):
        return {self.read('c/f'), 'old' if (self.dir / 'c/gone').exists() else 'new'}

    def see_git(self):
        there = ('new' in self.out('git', '-C', 'repo', 'log', '--format=%s').split(),
                 'new' in self.out('git', '-C', 'repo', 'show', 'main:file'), 'new' in self.read('repo/file'),
                 'new' in self.out('git', '-C', 'repo', 'tag'), (self.dir / 'repo/loose').exists())
        need('theirs' in self.read('repo/file'), 'what somebody else committed is lost')
        return {'new' if t else 'old' for t in there}

    def see_sqlite(self):
        return {self.out('sqlite3', 'lite.db', 'select v from t')}

    def see_postgres(self):
        return {{'5|1': 'old', '5|2': 'new'}.get(self.cluster.sql('select count(*), min(id) from t'), 'torn')}

    def seen(self):
        return {k: getattr(self, f'see_{k}')() for k in self.kinds}

    def clean(self):
        status = self.out(GIT, '-C', 'repo', 'status', '--porcelain')
        need(status in ('', '?? loose'), f'git status: {status}')
        same(self.out(GIT, '-C', 'repo', 'fsck', '--no-dangling'), '', 'fsck')
        same([str(f) for p in ('*.lock', '*.keep') for f in (self.dir / 'repo/.git').rglob(p)], [], 'left in .git')
        same(self.prepared(), [], 'prepared')
        same(self.out('sqlite3', 'lite.db', 'pragma integrity_check'), 'ok', 'lite.db')

    def all(self, *allowed):
        """Which of ALLOWED all of them are."""
        seen = self.seen()
        states = set().union(*seen.values())
        need(len(states) == 1 and states <= set(allowed), f'not {" or ".join(allowed)}: {seen}')
        self.clean()
        return states.pop()

    def kill(self, point, *words, **env):
        done = self.atoll(*(words or ('commit', 'p')), ATOLL_CRASHPOINT=point, **env)
        need(done.code in (0, DEAD), f'{point}: {done}')
        return done.code == DEAD

    def again(self, *options):
        """All old: the work is there, but for a transaction that could not be kept; and it can be committed."""
        if 'postgres' in self.kinds and (self.sandbox()['state'] == 'ERRORED' or self.atoll('exec', 'p', '--', 'true').code):
            self.must('reset', 'p')
            self.work('; '.join(WORK[k] for k in self.kinds))
        self.must('commit', 'p', *options)
        self.all('new')

    def finish(self, *allowed):
        self.must('recover')
        state = self.all(*allowed)
        if state == 'old':
            self.again()
        return state


# ---- cases: each gets a cluster and a directory ----

def die_at(env, point, allowed, kinds=KINDS, restart=False):
    with Five(*env, kinds) as w:
        need(w.kill(point) or kinds != KINDS, 'did not die')
        if restart:
            w.cluster.stop('immediate')
            w.cluster.start()
        w.finish(*allowed)


def die_in_recovery(env, point, again):
    with Five(*env) as w:
        w.kill(point)
        w.kill(again, 'recover')
        w.finish('old', 'new')


def die_in_rollback(env, point):
    """Of what can be undone."""
    with Five(*env, KINDS[:4]) as w:
        w.must('commit', 'p')
        w.kill(point, 'rollback', 'p')
        w.must('recover')
        if w.all('old', 'new') == 'new':
            w.must('rollback', 'p')
        w.all('old')


def refuse(env, inject, mend, codes, *options):
    """A failure before the decision: all old, and once it is mended, all new."""
    with Five(*env) as w:
        inject(w)
        done = w.atoll('commit', 'p')
        need(done.code in codes, f'{done}')
        mend(w)
        w.all('old')
        w.again(*options)


def stand(env, inject, mend, wanted):
    """A failure after the decision, which whoever comes next meets."""
    with Five(*env) as w:
        need(w.kill('txn.after-decision'), 'did not die')
        inject(w)
        done = w.atoll('recover')
        need(done.code == (0 if wanted == 'old' else 7), f'{done}')
        mend(w)
        w.finish(wanted)


def stay_new(env, inject, mend):
    """The server has committed, which it cannot take back, and somebody stands in the way of another: nobody goes back."""
    with Five(*env) as w:
        w.shell('cp lite.db other.db')
        need(w.kill('txn.after-apply'), 'did not die')
        inject(w)
        for _ in range(2):
            done = w.atoll('recover')
            need(done.code == 7 and 'lite.db' in done.all and 'was committed' in done.all, f'{done}')
            same(w.seen(), {k: {'x'} if k == 'sqlite' else {'new'} for k in w.kinds}, 'recovered')
        if mend:
            mend(w)
            w.finish('new')
        else:
            w.must('stop', '--force', 'p')
            same((w.see_postgres(), w.prepared(), w.plans()), ({'new'}, [], []), 'given up')


def kill_git(env, command, number, also):
    with Five(*env) as w:
        folder = w.dir / 'bin'
        folder.mkdir()
        (folder / 'git').write_text(
            f'#!/bin/sh\nif [ "$1" = {command} ]; then {KILL_AT} {number} {w.dir}/calls {GIT} "$@"; status=$?\n'
            f'[ $status -ne {KILLED} ] || {"kill -9 $PPID" if also else ":"}\nexit $status\nfi\nexec {GIT} "$@"\n')
        (folder / 'git').chmod(0o755)
        done = w.atoll('commit', 'p', PATH=f'{folder}:{os.environ["PATH"]}')
        # In doubt: what would have taken it back was killed, too.
        need(done.code in (0, 4, 7, DEAD), f'{done}')
        w.finish('new' if done.code == 0 else 'old', *(['new'] if done.code == DEAD else []))


def signal_all(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_holder(env, point):
    """Alone, or after atoll has died at POINT."""
    with Five(*env) as w:
        if point:
            need(w.kill(point), 'did not die')
        signal_all(w.holders(), signal.SIGKILL)  # when atoll has died it may be about to end by itself
        until(lambda: not w.holders(), 'the holder lives')
        if not point:
            need('transaction is gone' in w.fails(1, 'commit', 'p').err, 'not said')
        w.finish('old')


def hang(env, point):
    """The server does not answer for a while, before the decision or after atoll died at POINT."""
    with Five(*env) as w:
        need(not point or w.kill(point), 'did not die')
        leader = int((w.cluster.data / 'postmaster.pid').read_text(encoding='utf-8').split()[0])
        pids = [leader, *map(int, Path(f'/proc/{leader}/task/{leader}/children').read_text(encoding='utf-8').split())]
        signal_all(pids, signal.SIGSTOP)
        try:
            done = w.atoll(*(('recover',) if point else ('commit', 'p')))
        finally:
            signal_all(pids, signal.SIGCONT)
        need(done.code == (7 if point else 1) and ('timed out' in done.all or 'timeout' in done.all), f'{done}')
        w.finish('new' if point else 'old')


# ---- carrying them out ----

PLACES = []  # a cluster and a directory for each worker


def work_through(place, cases, complaints):
    for label, how, args in cases:
        try:
            how(place, *args)
        except Exception as why:  # pylint: disable=broad-except
            complaints.put(f'{label}: {type(why).__name__}: {why}'.replace('\n', ' | ')[:1500])
        if not place[0].running:
            place[0].start()
    complaints.put(None)


def everything(cases):
    """CASES are (label, function, arguments), shared out among processes with a server each."""
    complaints, found = Queue(), []
    workers = [Process(target=work_through, args=(place, cases[n::WORKERS], complaints)) for n, place in enumerate(PLACES)]
    for worker in workers:
        worker.start()
    while workers:
        line = complaints.get()
        if line is None:
            workers.pop()
        else:
            found.append(line)
    return found


def steps():
    names = sorted(p for p in points_in_source() if p.startswith('txn.') and not p.startswith(('txn.undo', 'txn.redo', 'txn.revoke',
                                                                                               'txn.keep', 'txn.release')))
    for name in names:
        if name != 'txn.withdrawn':
            yield from ((f'{name}:{n}' for n in range(1, len(KINDS) + 1)) if name.endswith('participant') else (name,))


BEFORE = ('txn.after-preparing', 'txn.prepare.participant', 'txn.prepared', 'txn.after-barrier-1', 'txn.checked')


def side(point):
    return ('old',) if point.split(':')[0] in BEFORE else ('new',)


def atm_14_five_kinds_killed_at_every_step():
    return everything([(point, die_at, (point, side(point))) for point in steps()])


def atm_01_any_two_to_five_kinds_killed_together():
    rng = random.Random(1)
    cases = []
    for n in range(2, 6):
        for kinds in itertools.combinations(KINDS, n):
            cases += [(f'{"+".join(kinds)} at {point}', die_at, (point, ('old', 'new'), kinds)) for point in
                      (steps() if LONG else [rng.choice(['txn.checked', 'txn.after-decision', f'txn.apply.participant:{n - 1}'])])]
    return everything(cases if LONG else cases[::3])


def der_08_five_kinds_and_the_server_dies_too():
    points = [p for p in steps() if LONG or p in ('txn.checked', 'txn.after-decision', 'txn.apply.participant:2',
                                                  'txn.apply.participant:4', 'txn.after-apply')]
    return everything([(f'{point} and the server', die_at, (point, side(point), KINDS, True)) for point in points])


def atm_14_recovery_of_five_kinds_killed():
    agains = ['recover.announced', *(f'txn.apply.participant:{n}' for n in range(1, 6)), 'txn.unlocked', 'recover.applied', 'recover.done']
    return everything([(f'{point}, recovery at {again}', die_in_recovery, (point, again))
                       for point in ('txn.checked', 'txn.after-decision', 'txn.apply.participant:3')
                       for again in agains if LONG or point == 'txn.after-decision'])


def atm_14_rollback_of_four_kinds_killed():
    points = sorted(p for p in points_in_source() if p.startswith('txn.undo.') and p not in ('txn.undo.participant', 'txn.undo.kept'))
    return everything([(f'rollback at {point}', die_in_rollback, (point,)) for point in
                       [*points, 'txn.unlocked', *(f'txn.undo.participant:{n}' for n in range(1, 5))]])


def der_08_five_kinds_and_a_server_that_hangs():
    """A minute each: what is asked has a limit."""
    return everything([('a server that hangs', hang, (None,)), ('a server that hangs in recovery', hang, ('txn.after-decision',))])


# ---- a failure in every phase of each of them ----

def immutable(path, on):
    return lambda w: subprocess.run(['chattr', '+i' if on else '-i', w.dir / path], check=True)


def shell(text):
    return lambda w: w.shell(text)


def nothing(_):
    pass


def fill(w):
    for n in range(20):
        w.cluster.sql(f"begin; create table other{n}(i int); prepare transaction 'other{n}'")


def empty(w):
    for n in range(20):
        w.cluster.sql(f"rollback prepared 'other{n}'")


def take_name(w):
    w.cluster.sql(f"begin; create table other(i int); prepare transaction 'atoll:{w.sandbox()['id']}:1'")


def roll_back(w):
    for gid in w.prepared():
        w.cluster.sql(f"rollback prepared '{gid}'")


def go(w):
    w.cluster.stop('immediate')


def come(w):
    w.cluster.start()


COLLIDE = 'cd repo; sed -i s/^3$/collides/ file; git commit -qam collides'
BACK = 'cd repo; git reset -q --hard HEAD~1'
LOCK, UNLOCK = 'echo x >repo/.git/refs/heads/main.lock', 'rm repo/.git/refs/heads/main.lock'


def atm_01_five_kinds_with_a_failure_in_every_phase():
    """Prepare, the last look before the decision, and commit."""
    cases = [
        ('git, prepare: a commit that collides', refuse, (shell(COLLIDE), shell(BACK), (3,))),
        ('git, check: a ref is locked', refuse, (shell(LOCK), shell(UNLOCK), (1, 4, 5))),
        ('git, commit: a ref is locked', stand, (shell(LOCK), shell(UNLOCK), 'new')),
        ('git, commit: the branch is elsewhere', stand,
         (shell('rm repo/.git/index.lock; cd repo; git commit -q --allow-empty -m theirs2'), nothing, 'old')),
        ('sqlite, prepare: the row is changed', refuse, (shell('sqlite3 lite.db "update t set v = \'x\'"'),
                                                         shell('sqlite3 lite.db "update t set v = \'old\'"'), (3,))),
        ('sqlite, commit: the row is changed', stand, (shell('sqlite3 lite.db "update t set v = \'x\'"'),
                                                       shell('sqlite3 lite.db "update t set v = \'old\'"'), 'old')),
        ('postgres, prepare: no room', refuse, (fill, empty, (4,))),
        ('postgres, check: the name is taken', refuse, (take_name, roll_back, (4,))),
        ('postgres, commit: rolled back by somebody', stand, (roll_back, nothing, 'old')),
        ('postgres, commit: the server is away', stand, (go, come, 'new')),
    ]
    for kind, top in (('overlay', 'd'), ('copy', 'c')):
        cases.append((f'{kind}, prepare: changed', refuse, (shell(f'echo x >{top}/f'), shell(f'echo old >{top}/f'), (3,),
                                                            '--ours', f'{top}/f')))
        if os.geteuid() == 0:
            cases += [(f'{kind}, prepare: immutable', refuse, (immutable(top, True), immutable(top, False), (1, 4))),
                      (f'{kind}, commit: immutable', stand, (immutable(top, True), immutable(top, False), 'new'))]
    return everything(cases)


REPLACE = 'mv lite.db ours.db; cp other.db lite.db; sqlite3 lite.db "update t set v = \'x\'"'


def atm_14_what_cannot_go_back_is_asked_before_all_do():
    return everything([
        ('sqlite is replaced, and put back', stay_new, (shell(REPLACE), shell('mv ours.db lite.db'))),
        ('sqlite is replaced, and the row is as it was', stay_new,
         (shell(REPLACE), shell('sqlite3 lite.db "update t set v = \'old\'"'))),
        ('sqlite is replaced, and the plan given up', stay_new, (shell(REPLACE), None)),
    ])


def git_05_five_kinds_and_git_killed():
    rng = random.Random(5)
    return everything([(f'git {command} at system call {number}', kill_git, (command, number, also))
                       for command, calls in (('update-ref', 330), ('merge-tree', 200), ('update-index', 120), ('index-pack', 150))
                       for also in (False, True) for number in [rng.randrange(1, calls) for _ in range(20 if LONG else 1)]])


def der_08_five_kinds_and_the_holder_killed():
    return everything([(f'the holder, {point or "alone"}', kill_holder, (point,))
                       for point in (None, 'txn.prepare.participant:4', 'txn.prepared', 'txn.after-barrier-1')])


# ---- a merge, at every crash point that it passes ----

class Merge(Five):
    def __init__(self, cluster, top):
        super().__init__(cluster, top, ('git',))

    def points(self, *words):
        log = self.dir / 'points'
        log.touch()
        self.must(*words, ATOLL_CRASHPOINT_LOG=str(log))
        return log.read_text(encoding='utf-8').split()


def die_in_merge(env, point, allowed):
    with Merge(*env) as w:
        need(w.kill(point), 'did not die')
        if w.finish(*allowed) == 'new':
            same(w.out(GIT, '-C', 'repo', 'rev-list', '--count', '--merges', 'main'), '1', 'merges')
        w.must('rollback', 'p')
        w.all('old')


def points_of_merge(env, found):
    with Merge(*env) as w:
        passed = w.points('commit', 'p')
    decided = passed.index('txn.after-barrier-1'), passed.index('txn.after-decision')
    for name in dict.fromkeys(passed):
        places = [i for i, point in enumerate(passed) if point == name]
        for n in range(1, len(places) + 1) if LONG else [len(places)]:
            at = places[n - 1]
            found.append((f'{name}:{n}', ('old',) if at <= decided[0] else ('new',) if at >= decided[1] else ('old', 'new')))


def git_05_a_merge_killed_at_every_point():
    found = []
    points_of_merge(PLACES[0], found)
    need(any(p.startswith('git.commit.index') for p, _ in found), 'no merge')
    return everything([(f'merge at {point}', die_in_merge, (point, allowed)) for point, allowed in found])


def main(tests):
    top = tempfile.mkdtemp(prefix='atoll-mixed-', dir='/var/tmp')
    os.chmod(top, 0o755)
    try:
        with ExitStack() as clusters:
            for n in range(WORKERS):
                place = Path(top) / str(n)
                place.mkdir(mode=0o755)
                PLACES.append((clusters.enter_context(Cluster(place)), place))
            return run(tests)
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
    become(sys.argv[1])
    TESTS = [
        atm_14_five_kinds_killed_at_every_step,
        atm_01_any_two_to_five_kinds_killed_together,
        atm_01_five_kinds_with_a_failure_in_every_phase,
        atm_14_what_cannot_go_back_is_asked_before_all_do,
        der_08_five_kinds_and_the_server_dies_too,
        der_08_five_kinds_and_the_holder_killed,
        *([der_08_five_kinds_and_a_server_that_hangs] if LONG else []),
        git_05_five_kinds_and_git_killed,
        git_05_a_merge_killed_at_every_point,
        atm_14_recovery_of_five_kinds_killed,
        atm_14_rollback_of_four_kinds_killed,
    ]
    # What an ordinary user does otherwise is in the steps themselves.
    if sys.argv[1] == 'user' and not LONG:
        TESTS = [atm_14_five_kinds_killed_at_every_step, atm_01_five_kinds_with_a_failure_in_every_phase]
    sys.exit(main([t for t in TESTS if not sys.argv[2:] or t.__name__ in sys.argv[2:]]))
