# SPDX-License-Identifier: Apache-2.0
"""Plans to which something happens while they are started, committed, undone, recovered or stopped; what they
must be before and after; and that one can go on then."""

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile

from crashlib import Broken, World, traced
from mixed import KINDS, Five


class Trees:
    """A directory as overlay and one as copy, and a database, through the library."""

    resources = ['o1', 'c1', 'd1.db']
    verbs = {'start': ['start=o1:overlay,c1:copy,d1.db:sqlite'], 'commit': ['commit'], 'rollback': ['rollback'],
             'recover': ['recover=all'], 'stop': ['stop=force']}
    env = {}

    def __init__(self, verb, top):
        self.world, self.verb = World(self.resources, where=top), verb
        if verb != 'start':
            self.world.open_plan()
            self.world.edit()
        if verb in ('rollback', 'keep', 'stop'):
            self.world.must('commit')
        if verb == 'recover':
            self.world.kill('txn.after-decision', 'commit')

    def run(self, wrap, words=None):
        return self.world.run(*(words or self.verbs[self.verb]), wrap=wrap, env=self.env)

    def must(self, verb):
        return self.world.must(*self.verbs[verb], env=self.env)

    def registry(self):
        return self.world.base / 'store/atoll.db'

    def state(self, settled=True):  # pylint: disable=unused-argument
        return self.world.state()

    def plans(self):
        return self.world.plans()

    def gone(self):
        self.world.nothing_left()

    def end(self):
        self.world.__exit__()


class Four:
    """These, and a repository, by the command."""

    verbs = {'start': ['start', '--file', 'plan'], 'commit': ['commit', 'p'], 'rollback': ['rollback', 'p'], 'recover': ['recover'],
             'stop': ['stop', '--force', 'p']}

    def __init__(self, verb, top):
        self.verb = verb
        self.top = tempfile.mkdtemp(dir=top)
        self.world = Five(None, self.top, KINDS[:4])
        if verb == 'start':
            self.must('stop')
        if verb in ('rollback', 'stop'):
            self.must('commit')
        if verb == 'recover' and not self.world.kill('txn.after-decision'):
            raise Broken('did not die')

    def run(self, wrap, words=None):
        done = subprocess.run([*wrap, os.environ['ATOLL'], *(words or self.verbs[self.verb])], env={**self.world.env, **traced()},
                              cwd=self.world.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors='replace', timeout=120, check=False)
        return done.returncode, done.stdout

    def must(self, verb):
        status, output = self.run((), self.verbs[verb])
        if status:
            raise Broken(f'{verb}: exit {status}: {output.strip()}')
        return output

    def registry(self):
        return self.world.home / 'atoll.db'

    def state(self, settled=True):
        """SETTLED: and nothing of ours is in the way. What cannot be removed is, until it is recovered."""
        seen = self.world.seen()
        if len(set().union(*seen.values())) != 1:
            raise Broken(f'neither old nor new: {seen}')
        return self.world.all('old', 'new') if settled else seen['git'].pop()

    def plans(self):
        return self.world.plans()

    def gone(self):
        if self.world.plans():
            raise Broken(f'there still is a plan: {self.world.plans()}')
        left = [str(path) for path in (self.world.home / 'plans').glob('*')]
        if left:
            raise Broken(f'left behind: {left}')

    def end(self):
        for folder, folders, _ in os.walk(self.top):
            for name in folders:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(self.top, ignore_errors=True)


class Directories(Trees):
    """Without the database."""

    resources = ['o1', 'c1']
    verbs = {**Trees.verbs, 'start': ['start=o1:overlay,c1:copy'], 'keep': ['rollback=keep-work'], 'part': ['commit=part']}
    paths = ['a.txt', 'gone', 'gonetree', 'd/e/f', 'newtree/2/3', 'swapfile', 'locked', 'xadir']
    env = {'SCENARIO_PART': '\n'.join(paths)}

    def __init__(self, verb, top):
        super().__init__(verb, top)
        if verb == 'part':
            self.world.expect_part([path.encode() for path in self.paths])

    def kept(self):
        """Is what was installed the work that was kept? The times of its directories are put back as well as can be."""
        def plain(trees):
            return {name: {path: entry[:4] + entry[5:] if entry[0] == str(stat.S_IFDIR) else entry for path, entry in tree.items()}
                    for name, tree in trees.items()}
        return plain(self.world.look(inodes=False)) == plain(self.world.new)


class Rows(Trees):
    """A directory, and databases of which rows and the schema are changed."""

    resources = ['c1', 'd1.db', 'w2.db']
    verbs = {**Trees.verbs, 'start': ['start=c1:copy,d1.db:sqlite,w2.db:sqlite']}


SUBJECTS = {'directories': Directories, 'rows': Rows, 'trees': Trees, 'four': Four}
BEFORE = {'start': 'old', 'commit': 'old', 'part': 'old', 'rollback': 'new', 'keep': 'new', 'recover': None, 'stop': 'new'}
AFTER = {'start': 'old', 'commit': 'new', 'part': 'new', 'rollback': 'old', 'keep': 'old', 'recover': 'new', 'stop': 'new'}


def check_store(subject):
    store = sqlite3.connect(subject.registry(), timeout=20)
    try:
        found = store.execute('PRAGMA integrity_check').fetchall()
    finally:
        store.close()
    if found != [('ok',)]:
        raise Broken(f'the store is damaged: {found}')


def finish(subject, verb, done):
    """The fault is gone: the same command works, and so does what comes after it."""
    check_store(subject)
    if not done:
        subject.must(verb)
    if verb == 'stop':
        return subject.gone()
    if subject.state() != AFTER[verb]:
        raise Broken(f'{verb} says that it is done, and it is not')
    if verb in ('keep', 'part'):
        subject.world.new = getattr(subject.world, 'full', subject.world.new)
        subject.must('commit')
        if not subject.kept():
            raise Broken('the work was not kept')
    if verb in ('commit', 'keep', 'part', 'recover'):
        subject.must('rollback')
        if subject.state() != 'old':
            raise Broken('not undone')
    subject.must('stop')
    return subject.gone()
