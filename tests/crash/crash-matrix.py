#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The crash matrix. Every crash point in the source is killed in every scenario that passes it:
at its first and last time (as a user: one of them; $ATOLL_LONG: each time). A new process
recovers; then all resources together are exactly old or exactly new, and which of the two follows
from where it was killed. Points of recovery are killed too, and recovery after that. Prints TAP.

usage: crash-matrix.py root|user
"""

import os
import shutil
import sqlite3
import sys
from multiprocessing import Pool

from trees import replace
from crashlib import (LONG, WORKERS, Broken, World, become, ctimes, database_content, edit_again, manifest,
                      points_in_source, put, run)


class Scenario:
    """Something to kill: VERBS with ENV, after prepare(). Up to the point LAST_BEFORE the outcome
    is BEFORE, from FIRST_AFTER on AFTER; between the two, where the decision is written, either."""

    resources = ['r1', 'r2']
    verbs = ()
    env = {}
    recovery_env = {}
    before = after = 'old'
    last_before = first_after = None

    def prepare(self, world):
        world.open_plan()
        world.edit()

    def look(self, world, point):
        """What must hold besides, after recovery from a death at POINT."""

    def finish(self, world, state):
        """Goes on from STATE: nothing of the work, and nothing of what undo needs, was lost."""
        if state == 'old':
            world.must('commit')
            world.expect('new')
        world.must('rollback')
        world.expect('old')

    def outcomes(self, passed, index):
        """States allowed when killed at the INDEX-th of the points PASSED."""
        if self.last_before in passed and index <= passed.index(self.last_before):
            return {self.before}
        if self.first_after in passed and index >= passed.index(self.first_after):
            return {self.after}
        return {self.before, self.after}


class Commit(Scenario):
    verbs = ('commit',)
    before, after = 'old', 'new'
    last_before, first_after = 'txn.after-barrier-1', 'txn.after-decision'


class CommitThree(Commit):
    resources = ['r1', 'v', 'r2']


class RefuseRecovery(CommitThree):
    """What was decided a participant refuses for good when recovery comes to finish it."""
    recovery_env = {'SCENARIO_FAIL': 'conflict'}

    def outcomes(self, passed, index):
        return {'old'} if index <= passed.index('txn.after-barrier-3') else {'old', 'new'}


class CommitForGood(Commit):
    verbs = ('commit=no-undo',)

    def finish(self, world, state):
        if state == 'old':
            world.must('commit')
            world.expect('new')


class CommitFinal(CommitForGood):
    """One that cannot go back comes last."""
    resources = ['f', 'r1', 'v', 'r2']
    verbs = ('commit',)


class Undo(Scenario):
    resources = ['r1', 'v', 'r2']
    verbs = ('rollback',)
    before, after = 'new', 'old'
    last_before, first_after = 'txn.undo.prepared', 'txn.undo.after-decision'

    def prepare(self, world):
        Scenario.prepare(self, world)
        world.must('commit')

    def finish(self, world, state):
        if state == 'new':
            world.must('rollback')
            world.expect('old')


class UndoTwoBatches(Undo):
    resources = ['r1', 'r2']

    def prepare(self, world):
        super().prepare(world)
        world.find_works(world.must('path'))
        world.edit(edit_again)
        world.must('commit')


class UndoOne(Undo):
    """One commit is taken back; what a redo needs is there, whenever it died."""
    resources = ['r1', 'o2']
    verbs = ('undo',)

    def finish(self, world, state):
        if state == 'new':
            world.must('undo')
            world.expect('old')
        world.must('redo')
        world.expect('new')
        world.must('undo')
        world.expect('old')


class UndoLastOfTwo(UndoOne):
    """The commit before it stays, and is taken back next."""

    def prepare(self, world):
        Scenario.prepare(self, world)
        first = world.look()
        world.must('commit')
        world.between = world.look()
        world.find_works(world.must('path'))
        world.edit(edit_again)
        world.must('commit')
        world.first, world.old = first, world.between

    def finish(self, world, state):
        super().finish(world, state)
        world.old = world.first
        world.must('undo')
        world.expect('old')


class RedoOne(Scenario):
    """What was undone comes back, from what the undo kept."""
    resources = ['r1', 'o2']
    verbs = ('redo',)
    before, after = 'old', 'new'
    last_before, first_after = 'txn.redo.prepared', 'txn.redo.after-decision'

    def prepare(self, world):
        super().prepare(world)
        world.must('commit')
        world.must('undo')

    def finish(self, world, state):
        if state == 'old':
            world.must('redo')
            world.expect('new')
        world.must('undo')
        world.expect('old')
        world.must('redo')
        world.expect('new')


class Withdraw(Scenario):
    """A participant refuses to prepare: nothing is touched, not even a ctime."""
    resources = ['r1', 'r2', 'v']
    verbs = ('commit',)
    env = {'SCENARIO_FAIL': 'prepare'}

    def prepare(self, world):
        super().prepare(world)
        world.ctimes = [ctimes(world.base / name) for name in ('r1', 'r2')]

    def finish(self, world, state):
        if world.ctimes != [ctimes(world.base / name) for name in ('r1', 'r2')]:
            raise Broken('a withdrawn commit touched an original')
        super().finish(world, state)


class DryRun(Withdraw):
    resources = ['r1', 'r2']
    verbs = ('commit=dry-run',)
    env = {}


class Revoke(Scenario):
    """A participant refuses to commit after the decision. Recovery meets no refusal."""
    resources = ['r1', 'v', 'r2']
    verbs = ('commit',)
    env = {'SCENARIO_FAIL': 'commit'}
    before, after = 'new', 'old'
    last_before, first_after = None, 'txn.revoke.recorded'

    def outcomes(self, passed, index):
        if index <= passed.index('txn.after-barrier-1'):
            return {'old'}
        return super().outcomes(passed, index)


class RevokeLast(Revoke):
    resources = ['r1', 'r2', 'v']


class Redo(Undo):
    """A participant refuses to be undone after the decision."""
    env = {'SCENARIO_FAIL': 'undo'}

    def outcomes(self, passed, index):
        recorded = passed.index('txn.redo.recorded')
        if index >= recorded:
            return {'new'}
        if 'txn.undo.participant' not in passed[index:recorded]:
            return {'old', 'new'}  # REDOING is being written
        return super().outcomes(passed, index)


class UndoWithdrawn(Redo):
    """The same, of one commit."""
    verbs = ('undo',)


OURS = {'SCENARIO_OURS': 'a.txt\ngone\nswapfile\nnewtree/2/3\nrun.sh\nempty\nto'}


def interfere(world):
    """Another process writes to what the commit changed, replaces, deletes and makes entries, and sets attributes.
    Times of directories stay as they were: they are not what this is about."""
    for name in (name for name in world.resources if name[0] in 'ro'):
        tree = world.base / name
        times = {path: path.lstat().st_mtime_ns for path in [tree, tree / 'newtree', tree / 'newtree/2/3']
                 if path.is_dir()}
        with open(tree / 'a.txt', 'ab') as file:
            file.write(b' of another process')
        replace(tree / 'run.sh', b'replaced', 0o755)
        (tree / 'empty').chmod(0o701)
        if (tree / 'newtree').is_dir():  # the commit stands
            put(tree / 'gone/is', b'a directory now')
            put(tree / 'newtree/2/3/more', b'more')
            shutil.rmtree(tree / 'swapfile')
            (tree / 'to').unlink()
        else:
            (tree / 'gone').unlink()
            put(tree / 'newtree', b'in the way of a directory')
            with open(tree / 'swapfile', 'ab') as file:
                file.write(b' of another process')
        for path, when in times.items():
            os.utime(path, ns=(when, when))


class UndoOurs(UndoOne):
    """Of a commit to which another process wrote since: its versions are moved away, and a redo brings them
    back. What was not decided binds no other undo."""
    verbs = ('undo=sides',)
    env = OURS

    def prepare(self, world):
        Undo.prepare(self, world)
        interfere(world)
        world.new = world.look(inodes=False)

    def finish(self, world, state):
        if state == 'new':
            world.must('undo', status=3)
            world.expect('new')
            world.must('undo=sides', env=OURS)
            world.expect('old')
        for _ in range(2):
            world.must('redo')
            world.expect('new')
            world.must('undo')
            world.expect('old')


class UndoOursWithdrawn(UndoWithdrawn):
    """A participant refuses to be undone after the decision."""
    verbs = ('undo=sides',)
    env = {**OURS, 'SCENARIO_FAIL': 'undo'}
    prepare = UndoOurs.prepare

    def finish(self, world, state):  # that participant cannot be done again
        if state == 'new':
            world.must('undo', status=3)
            world.must('undo=sides', env=OURS)
            world.expect('old')


class RedoOurs(RedoOne):
    """Another process wrote to what the undo had put back."""
    verbs = ('redo=sides',)
    env = {'SCENARIO_OURS': OURS['SCENARIO_OURS'] + '\nnewtree'}

    def prepare(self, world):
        super().prepare(world)
        interfere(world)
        world.old = world.look()

    def finish(self, world, state):
        if state == 'old':
            world.must('redo', status=3)
            world.expect('old')
            world.must('redo=sides', env=self.env)
            world.expect('new')
        for _ in range(2):
            world.must('undo')
            world.expect('old')
            world.must('redo')
            world.expect('new')


class Add(Scenario):
    resources = ['r1', 'r2']
    verbs = ('add=r2',)

    def prepare(self, world):
        world.find_works(world.must('start', 'add=r1', 'path'))

    def finish(self, world, state):
        world.run(*self.verbs)  # it may be there already
        world.find_works(world.must('path'))
        world.edit()
        super().finish(world, state)


class OverlayCommit(Commit):
    resources = ['o1', 'r2']


class OverlayUndo(Undo):
    resources = ['o1', 'v', 'o2']


class OverlayRevoke(Revoke):
    resources = ['o1', 'o2', 'v']


class OverlayAdd(Add):
    resources = ['r1', 'o2']
    verbs = ('add=o2:overlay',)


class Part(Commit):
    """A part of the work is committed, then the rest."""
    resources = ['r1', 'o2']
    verbs = ('commit=part',)
    paths = ['a.txt', 'gone', 'gonetree', 'd/e/f', 'newtree/2/3', 'swapfile', 'locked', 'xadir']
    env = {'SCENARIO_PART': '\n'.join(paths)}

    def prepare(self, world):
        super().prepare(world)
        world.expect_part([path.encode() for path in self.paths])

    def finish(self, world, state):
        if state == 'old':
            world.must(*self.verbs, env={'SCENARIO_PART': self.env['SCENARIO_PART']})
            world.expect('new')
        world.new = world.full
        world.must('commit')
        world.expect('new')
        world.must('rollback')
        world.expect('old')


class PartRevoke(Revoke):
    resources = ['r1', 'o2', 'v']
    verbs = ('commit=part',)
    env = {**Revoke.env, **Part.env}
    paths = Part.paths

    def prepare(self, world):
        super().prepare(world)
        world.expect_part([path.encode() for path in self.paths])

    finish = Part.finish


def settle_conflicts(world):
    """Somebody else wrote to what the plan changed, deleted, replaced and moved; from now on 'old' has
    that, and 'new' has it where it is to stay."""
    world.new = dict(world.new)
    for name in (name for name in world.resources if name != 'v'):
        tree = world.base / name
        for path in Settle.written:
            with open(tree / path, 'ab') as file:
                file.write(b' theirs')
        now, new = manifest(tree), dict(world.new[name])
        for path in (path.encode() for path in Settle.theirs):
            for known in list(new):
                if known == path or known.startswith(path + b'/'):
                    del new[known]
            new.update({known: entry for known, entry in now.items()
                        if known == path or known.startswith(path + b'/')})
        world.new[name] = new
    world.old = world.look()


class Settle(Commit):
    """Conflicts are settled, some for the plan and some for what is there."""
    resources = ['r1', 'o2']
    verbs = ('commit=part',)
    written = ['a.txt', 'gone', 'd/e/f/g/deep.txt', 'run.sh', 'swapdir/one', 'from']
    theirs = ['run.sh', 'swapdir', 'from']
    settled = {'SCENARIO_OURS': 'a.txt\ngone\nd', 'SCENARIO_THEIRS': '\n'.join(theirs)}
    env = settled

    def prepare(self, world):
        super().prepare(world)
        settle_conflicts(world)

    def finish(self, world, state):
        if state == 'old':
            world.must('commit=part', env=self.settled)
            world.expect('new')
        world.must('rollback')
        world.expect('old')


class SettleRevoke(Revoke):
    resources = ['r1', 'o2', 'v']
    verbs = ('commit=part',)
    settled = Settle.settled
    env = {**Revoke.env, **settled}

    def prepare(self, world):
        super().prepare(world)
        settle_conflicts(world)

    finish = Settle.finish


class SettleUndo(Undo):
    """What was displaced comes back, the very file."""
    resources = ['o1', 'r2']

    def prepare(self, world):
        world.open_plan()
        world.edit()
        settle_conflicts(world)
        world.must('commit=part', env=Settle.settled)


class PartUndo(Undo):
    """Two parts are undone as one."""
    resources = ['o1', 'r2']

    def prepare(self, world):
        world.open_plan()
        world.edit()
        world.must('commit=part', env=Part.env)
        world.must('commit')


class KeepWork(PartUndo):
    """The originals come back, and the work is work again: a second commit does the same."""
    verbs = ('rollback=keep-work',)

    def finish(self, world, state):
        if state == 'new':
            world.must(*self.verbs)
            world.expect('old')
        world.must('commit')
        world.expect('new')
        world.must('rollback')
        world.expect('old')


class Refresh(Scenario):
    """What somebody else changed comes in; the work is there still."""
    resources = ['r1', 'o2']
    verbs = ('refresh',)
    before = after = 'old'

    def prepare(self, world):
        super().prepare(world)
        for name in self.resources:
            (world.base / name / 'stay/1').write_bytes(b'theirs')
            world.new[name][b'stay/1'] = manifest(world.base / name)[b'stay/1']
        world.old = world.look()


class RefreshTree(Scenario):
    """What somebody else made, removed and wrote to comes in but for a conflict, and is nobody's
    work: a commit that settles the conflict leaves it alone. Cut off, it is simply done again."""
    resources = ['r1', 'o2']
    verbs = ('refresh',)
    before = after = 'old'
    settled = {'SCENARIO_OURS': 'a.txt'}

    def prepare(self, world):
        super().prepare(world)
        for name in self.resources:
            tree = world.base / name
            with open(tree / 'a.txt', 'ab') as file:
                file.write(b' theirs')
            (tree / 'stay/1').write_bytes(b'theirs')
            (tree / 'stay/made/deep').mkdir(parents=True)
            (tree / 'stay/made/deep/file').write_bytes(b'theirs, too')
            shutil.rmtree(tree / 'stay/2')
            now = manifest(tree)
            world.new[name] = {path: entry for path, entry in world.new[name].items()
                               if not path.startswith(b'stay')}
            world.new[name].update({path: entry for path, entry in now.items()
                                    if path.startswith(b'stay')})
        world.old = world.look()

    def finish(self, world, state):
        world.must('refresh')
        if any('stay' in line for line in world.must('diff').splitlines()):
            raise Broken('what somebody else did passes for work')
        world.must('commit=part', env=self.settled)
        world.expect('new')
        world.must('rollback')
        world.expect('old')


class RowsCommit(Commit):
    """Rows of one database, the schema of another, and files."""
    resources = ['r1', 'd1.db', 'w2.db']


class RowsCommitInside(Commit):
    resources = ['o1', 'o1/data/d1.db', 'o1/data/w2.db']


class RowsUndo(Undo):
    resources = ['r1', 'd1.db', 'w2.db']


class RowsUndoTwoBatches(UndoTwoBatches):
    resources = ['d1.db', 'w2.db']


class RowsRevoke(Revoke):
    """The one that refuses comes after the databases, which others may have seen."""
    resources = ['r1', 'd1.db', 'w2.db', 'l']


class RowsRedo(Redo):
    """The one that refuses to be undone comes after the databases are."""
    resources = ['v', 'd1.db', 'w2.db']


class RowsUndoOne(UndoOne):
    resources = ['r1', 'd1.db', 'w2.db']


class RowsRedoOne(RedoOne):
    resources = ['r1', 'd1.db', 'w2.db']


class RowsRedoTaken(Scenario):
    """A redo dies after its decision, and another process changes a row of it: recovery, which is what is
    killed here, withdraws the redo."""
    resources = ['r1', 'o2', 'w2.db', 'd1.db']
    verbs = ('recover',)

    def prepare(self, world):
        super().prepare(world)
        world.must('commit')
        world.must('undo')
        world.kill('txn.apply.participant:2', 'redo')
        write_row(world, 'theirs')
        world.old['d1.db'] = database_content(world.base / 'd1.db')

    def finish(self, world, state):
        world.must('redo', status=3)
        world.expect('old')
        write_row(world, '0000000000')  # as it was
        world.old['d1.db'] = database_content(world.base / 'd1.db')
        world.must('redo')
        world.expect('new')
        world.must('undo')
        world.expect('old')


class RowsTaken(Scenario):
    """A commit dies after its decision, and somebody else changes a row of it: recovery, which is what
    is killed here, takes everything back."""
    resources = ['r1', 'v', 'w2.db', 'd1.db']
    verbs = ('recover',)

    def prepare(self, world):
        super().prepare(world)
        world.kill('txn.apply.participant:2', 'commit')
        write_row(world, 'theirs')
        world.old['d1.db'] = database_content(world.base / 'd1.db')

    def finish(self, world, state):
        world.must('commit', status=3)
        world.expect('old')
        write_row(world, '0000000000')  # as it was
        world.old['d1.db'] = database_content(world.base / 'd1.db')
        super().finish(world, state)


def write_row(world, text):
    database = sqlite3.connect(world.base / 'd1.db', timeout=20)
    database.execute('UPDATE t SET v = ? WHERE id = 5', (text,))
    database.commit()
    database.close()


class Start(Scenario):
    verbs = ('start',)

    def prepare(self, world):
        world.must('recover=all')  # makes the store

    def finish(self, world, state):
        world.open_plan()
        world.edit()
        super().finish(world, state)


class StartWith(Start):
    """A plan with its resources: all of it, or nothing."""
    verbs = ('start=r1:copy,r2:copy',)

    def look(self, world, point):
        if point not in COMPLETE:
            world.nothing_left()
        elif world.plans() != [(0, ','.join('1' * len(self.resources)))]:
            raise Broken(f'not the whole plan: {world.plans()}')

    def finish(self, world, state):
        world.must(*self.verbs)
        self.look(world, COMPLETE[0])
        world.find_works(world.must('path'))
        world.edit()
        Scenario.finish(self, world, state)


class StartWithThree(StartWith):
    resources = ['o1', 'v', 'r2']
    verbs = ('start=o1:overlay,v:value,r2:copy',)


class RowsStart(StartWith):
    resources = ['r1', 'd1.db', 'w2.db']
    verbs = ('start=r1:copy,d1.db:sqlite,w2.db:sqlite',)


class Exec(Scenario):
    verbs = ('exec',)
    before = after = 'old'


class Reset(Scenario):
    verbs = ('reset',)
    before = after = 'old'

    def finish(self, world, state):
        world.find_works(world.must('path'))
        if not any('change ' in line for line in world.must('diff').splitlines()):
            world.edit()
        super().finish(world, state)


class Stop(Scenario):
    verbs = ('stop=force',)
    before = after = 'new'

    def prepare(self, world):
        super().prepare(world)
        world.must('commit')

    def finish(self, world, state):
        world.must('start')
        world.must('stop=force')


SCENARIOS = {cls.__name__: cls() for cls in (
    Commit, CommitThree, RefuseRecovery, CommitForGood, CommitFinal, Undo, UndoTwoBatches, UndoOne, UndoLastOfTwo,
    UndoWithdrawn, RedoOne, UndoOurs, UndoOursWithdrawn, RedoOurs, RowsUndoOne, RowsRedoOne, RowsRedoTaken, Withdraw, DryRun,
    Revoke, RevokeLast, Redo, OverlayCommit, OverlayUndo, OverlayRevoke, OverlayAdd, Part, PartRevoke, PartUndo,
    Settle, SettleRevoke, SettleUndo, KeepWork, Refresh, RefreshTree, Add, Start, StartWith,
    StartWithThree, RowsCommit, RowsCommitInside, RowsUndo, RowsUndoTwoBatches, RowsRevoke, RowsRedo,
    RowsTaken, RowsStart, Exec, Reset, Stop)}

# From where recovery is killed in turn: one for every state it can find.
LEFT_BEHIND = [
    ('CommitThree', 'txn.prepared:1'), ('CommitThree', 'txn.after-decision:1'),
    ('CommitThree', 'dir.apply.op:3'), ('CommitThree', 'txn.apply.participant:1'),
    ('CommitThree', 'txn.after-barrier-3:1'), ('RefuseRecovery', 'txn.after-decision:1'),
    ('Revoke', 'txn.revoke.recorded:1'),
    ('RevokeLast', 'dir.undo.op:4'), ('RevokeLast', 'dir.undo.unstage:2'),
    ('RevokeLast', 'txn.revoke.undone:1'), ('UndoTwoBatches', 'txn.undo.after-decision:1'),
    ('UndoTwoBatches', 'dir.undo.op:5'), ('UndoTwoBatches', 'txn.undo.undone:1'),
    ('Part', 'txn.after-decision:1'), ('Part', 'overlay.commit.rebased:1'),
    ('PartRevoke', 'txn.revoke.recorded:1'),
    ('Settle', 'txn.after-decision:1'), ('Settle', 'dir.apply.op:2'),
    ('SettleRevoke', 'txn.revoke.recorded:1'), ('SettleUndo', 'txn.undo.after-decision:1'),
    ('Redo', 'txn.redo.recorded:1'), ('Redo', 'dir.apply.op:2'),
    ('UndoOne', 'txn.undo.after-decision:1'), ('RedoOne', 'txn.redo.after-decision:1'),
    ('RedoOne', 'dir.apply.op:3'), ('UndoOurs', 'dir.undo.op:4'), ('RedoOurs', 'dir.apply.op:3'),
    ('RowsRedoOne', 'sqlite.committed:1'),
    ('Add', 'plan.add.after-area:1'), ('Add', 'plan.add.after-create:1'),
    ('StartWith', 'plan.add.after-create:2'), ('StartWithThree', 'plan.add.after-create:1'),
    ('RowsCommit', 'txn.after-decision:1'), ('RowsCommit', 'sqlite.committed:1'),
    ('RowsUndoTwoBatches', 'sqlite.undone:2'), ('RowsRevoke', 'txn.revoke.recorded:1'),
    ('RowsRedo', 'txn.redo.recorded:1'), ('RowsTaken', 'recover.revoked:1'),
]
# From here on a plan that was started with its resources is whole.
COMPLETE = ('plan.start.after-complete:1', 'registry.after-commit:2')
# What the next process may be: told to recover, or busy with something else.
NEXT_COMMANDS = [('recover=all',), ('recover',), ('purge', 'recover=all')]


def to_kill(passed, ends_only=False):
    """(point:n, index of it in PASSED)."""
    for number, name in enumerate(dict.fromkeys(passed)):
        places = [i for i, point in enumerate(passed) if point == name]
        ends = [1, len(places)]
        if LONG:
            ends = range(1, len(places) + 1)
        elif sys.argv[1] == 'user' and not ends_only:  # what differs for a user is how he gets there
            ends = ends[number % 2:][:1]
        for n in sorted(set(ends)):
            yield f'{name}:{n}', places[n - 1]


# ---- one case, in a process of the pool ----

def settle(scenario, world, allowed, number, point):
    following = NEXT_COMMANDS[number % len(NEXT_COMMANDS)]
    if isinstance(scenario, Start):
        following = ('recover=all',)
    if not isinstance(scenario, Stop):
        world.recover_twice(*following, env=scenario.recovery_env)
    else:
        world.recover_twice('recover=all')
    state = world.expect(*allowed)
    scenario.look(world, point)
    scenario.finish(world, state)
    if not isinstance(scenario, Stop):
        world.stop_and_count(purged='purge' in following)


def guard(label, body):
    try:
        body()
    except Broken as why:
        return [f'{label}: {why}']
    except Exception as why:  # pylint: disable=broad-except
        return [f'{label}: {type(why).__name__}: {why}']
    return []


def die_once(case):
    name, point, allowed, number = case
    scenario = SCENARIOS[name]

    def body():
        with World(scenario.resources) as world:
            scenario.prepare(world)
            world.kill(point, *scenario.verbs, env=scenario.env)
            settle(scenario, world, allowed, number, point)
    return guard(f'{name} at {point}', body)


def die_in_recovery(case):
    name, point, again, allowed, number = case
    scenario = SCENARIOS[name]

    def body():
        with World(scenario.resources) as world:
            scenario.prepare(world)
            world.kill(point, *scenario.verbs, env=scenario.env)
            world.kill(again, 'recover=all', env=scenario.recovery_env)
            settle(scenario, world, allowed, number, point)
    return guard(f'{name} at {point}, recovery at {again}', body)


def record(name):
    """Points an undisturbed run passes, and complaints about that run."""
    scenario = SCENARIOS[name]
    passed = []

    def body():
        with World(scenario.resources) as world:
            scenario.prepare(world)
            passed.extend(world.points(*scenario.verbs, env=scenario.env))
            settle(scenario, world, {scenario.before, scenario.after}, 0,
                   COMPLETE[0])
    return passed, guard(f'{name}, undisturbed', body)


def record_recovery(left):
    name, point = left
    scenario = SCENARIOS[name]
    with World(scenario.resources) as world:
        scenario.prepare(world)
        world.kill(point, *scenario.verbs, env=scenario.env)
        return world.points('recover=all', env=scenario.recovery_env)


# ---- the tests ----

POOL = None
PASSED = {}     # scenario: points
RECOVERED = {}  # (scenario, point): points of its recovery


def killed(*names):
    complaints, cases = [], []
    for name in names:
        PASSED[name], broken = record(name)
        complaints += broken
        if broken:
            continue
        scenario = SCENARIOS[name]
        for number, (point, index) in enumerate(to_kill(PASSED[name])):
            cases.append((name, point, scenario.outcomes(PASSED[name], index), number))
    for broken in POOL.imap_unordered(die_once, cases, chunksize=2):
        complaints += broken
    print(f'# {", ".join(names)}: {len(cases)} kills')
    if not cases:
        complaints.append('nothing to kill')
    return complaints


def der_01_kill_in_commit():
    return killed('Commit', 'CommitThree', 'CommitForGood', 'CommitFinal')


def der_01_kill_in_undo():
    return killed('Undo', 'UndoTwoBatches')


def der_01_kill_in_undo_of_one_commit():
    return killed('UndoOne', 'UndoLastOfTwo', 'UndoWithdrawn')


def der_01_kill_in_redo_of_one_commit():
    return killed('RedoOne')


def der_01_kill_in_undo_and_redo_that_are_insisted_on():
    return killed('UndoOurs', 'UndoOursWithdrawn', 'RedoOurs')


def der_01_kill_in_undo_and_redo_with_databases():
    return killed('RowsUndoOne', 'RowsRedoOne', 'RowsRedoTaken')


def atm_06_kill_in_withdrawal():
    return killed('Withdraw', 'DryRun')


def atm_01_kill_in_revocation():
    return killed('Revoke', 'RevokeLast')


def der_01_kill_in_redo():
    return killed('Redo')


def der_01_kill_with_overlays():
    return killed('OverlayCommit', 'OverlayUndo', 'OverlayRevoke')


def atm_11_kill_in_a_part():
    return killed('Part', 'PartRevoke', 'PartUndo', 'KeepWork')


def der_03_kill_in_settled_conflicts():
    return killed('Settle', 'SettleRevoke', 'SettleUndo')


def cln_03_kill_in_create():
    return killed('Start', 'Add', 'OverlayAdd')


def der_13_kill_in_start_with_resources():
    return killed('StartWith', 'StartWithThree')


def der_03_kill_in_refresh():
    return killed('Refresh', 'RefreshTree')


def atm_14_kill_in_exec_reset_stop():
    return killed('Exec', 'Reset', 'Stop')


def atm_14_kill_with_databases():
    more = ['RowsCommitInside', 'RowsUndo'] if LONG or sys.argv[1] == 'root' else []
    return killed('RowsCommit', 'RowsUndoTwoBatches', 'RowsRevoke', 'RowsRedo', 'RowsStart', *more)


def atm_14_rows_changed_before_recovery_take_all_back():
    return killed('RowsTaken')


def place(name, point):
    """Index of POINT ("name:n") among the points of an undisturbed run."""
    word, n = point.rsplit(':', 1)
    return [i for i, passed in enumerate(PASSED[name]) if passed == word][int(n) - 1]


def der_01_kill_in_recovery():
    complaints, cases = [], []
    for left, passed in zip(LEFT_BEHIND, POOL.imap(record_recovery, LEFT_BEHIND)):
        RECOVERED[left] = passed
        name, point = left
        if name not in PASSED:  # of interest for its recovery only
            PASSED[name], broken = record(name)
            complaints += broken
        allowed = SCENARIOS[name].outcomes(PASSED[name], place(name, point))
        if len(allowed) > 1 or not passed:
            complaints.append(f'{left}: not a state recovery has one way out of')
        for number, (again, _) in enumerate(to_kill(passed, ends_only=True)):
            cases.append((name, point, again, allowed, number))
    if sys.argv[1] == 'user' and not LONG:  # what differs for one is how it gets there
        cases = cases[::3]
    for broken in POOL.imap_unordered(die_in_recovery, cases, chunksize=2):
        complaints += broken
    print(f'# {len(cases)} kills in recovery')
    return complaints


def tst_08_every_crash_point_reached():
    """A crash point no scenario passes is one nobody can trust."""
    reached = set()
    for passed in list(PASSED.values()) + list(RECOVERED.values()):
        reached |= set(passed)
    # git-crash.py, remote-sessions.py and remote-kills.py have the others.
    known = {name for name in points_in_source() if not name.startswith(('git.', 'worktree.', 'session.', 'remote.'))}
    return ([f'no scenario reaches {name}' for name in sorted(known - reached)] +
            [f'{name} is passed but not in the source' for name in sorted(reached - known)])


if __name__ == '__main__':
    become(sys.argv[1])
    with Pool(WORKERS) as POOL:
        sys.exit(run([
            der_01_kill_in_commit,
            der_01_kill_in_undo,
            der_01_kill_in_undo_of_one_commit,
            der_01_kill_in_redo_of_one_commit,
            der_01_kill_in_undo_and_redo_that_are_insisted_on,
            der_01_kill_in_undo_and_redo_with_databases,
            atm_06_kill_in_withdrawal,
            atm_01_kill_in_revocation,
            der_01_kill_in_redo,
            der_01_kill_with_overlays,
            atm_11_kill_in_a_part,
            der_03_kill_in_settled_conflicts,
            cln_03_kill_in_create,
            der_13_kill_in_start_with_resources,
            der_03_kill_in_refresh,
            atm_14_kill_in_exec_reset_stop,
            atm_14_kill_with_databases,
            atm_14_rows_changed_before_recovery_take_all_back,
            der_01_kill_in_recovery,
            tst_08_every_crash_point_reached,
        ]))
