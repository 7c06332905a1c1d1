# SPDX-License-Identifier: Apache-2.0
"""What happens on the disk whose power is cut, and what is demanded of it afterwards.

A story lives on a mounted disk. prepare() makes resources and a plan with work; act() commits, undoes and
recovers, and says by marks what was begun and what was acknowledged; after the cut, recovered() is what
the real program made of it. BUSY: on a machine with much to write. All of it can be pickled."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from crashlib import Broken, World  # first: it says where the others are
from cluster import Cluster
from mixed import KINDS, Five

# What may be found after a cut, by the last thing that had been announced.
ALLOWED = {'': ('old',),
           'commit': ('old', 'new'), 'committed': ('new',),
           'undo': ('old', 'new'), 'undone': ('old',),
           'commit, killed': ('old', 'new'), 'recovered': ('new',),
           'undo, killed': ('old', 'new'), 'undo recovered': ('old',)}
DECIDED, UNDO_DECIDED = 'txn.after-decision', 'txn.undo.after-decision'


def act(disk, killed, do, expect):
    """There and back: by commit and undo, or KILLED, by the recovery of each of them."""
    steps = [('commit', DECIDED, 'new'), ('rollback', UNDO_DECIDED, 'old')]
    marks = ['commit, killed', 'recovered', 'undo, killed', 'undo recovered'] if killed else \
            ['commit', 'committed', 'undo', 'undone']
    for verb, point, state in steps:
        disk.mark(marks.pop(0))
        do(verb, point if killed else None)
        disk.mark(marks.pop(0))
        expect(state)


class Trees:
    """Directories, as overlay and as copy, and databases, compared to the last attribute."""

    size = {'ext4': 96, 'xfs': 320, 'btrfs': 160}

    def __init__(self, killed=False, busy=False, env=()):
        self.world, self.killed, self.busy, self.env = None, killed, busy, dict(env)

    def prepare(self, where):
        self.world = World(['o1', 'c1', 'd1.db', 's1.db'], where=where)
        self.world.open_plan()
        self.world.edit()

    def act(self, disk):
        def do(verb, point):
            if point:
                self.world.kill(point, verb, env=self.env)
            self.world.must('recover=all' if point else verb, env=self.env)
        act(disk, self.killed, do, self.world.expect)

    def end(self):
        """Nothing of it is at work on the disk."""

    def atoll(self, *words):
        return subprocess.run([os.environ['ATOLL'], *words], cwd='/', env={**os.environ, 'ATOLL_HOME': str(self.world.base / 'store')},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def must(self, *words):
        done = self.atoll(*words)
        if done.returncode:
            raise Broken(f'{words[0]}: exit {done.returncode}: {done.stdout.strip()}')

    def recovered(self, mark, thorough):
        """'old' or 'new', as MARK allows. THOROUGH: and then one can go on."""
        self.must('recover')
        state = self.world.expect(*ALLOWED[mark])
        if thorough:
            if state == 'old' and mark.startswith('commit'):
                # Work that cannot be trusted after a power cut is refused, not committed in part.
                self.world.expect('new' if self.atoll('commit', 'p').returncode == 0 else 'old')
            self.world.stop_and_count()
        return state


class Parts(Trees):
    """A part of the work is committed, then the rest; an undo makes all of it work again, and that is committed:
    records of what the workspace began from take each other's names after a decision."""

    paths = ['a.txt', 'gone', 'gonetree', 'd/e/f', 'newtree/2/3', 'swapfile', 'locked', 'xadir']
    # Verb, where it dies, what is there before and after it.
    steps = [('commit=part', DECIDED, 'old', 'part'), ('commit', DECIDED, 'part', 'new'),
             ('rollback=keep-work', UNDO_DECIDED, 'new', 'old'), ('commit', DECIDED, 'old', 'new')]

    def __init__(self, killed=False, busy=False, env=()):
        super().__init__(killed, busy, env)
        self.trees = {}

    def prepare(self, where):
        self.world = World(['o1', 'c1'], where=where)
        self.world.open_plan()
        self.world.edit()
        self.trees['new'] = self.trees['old'] = self.world.new
        self.world.expect_part([path.encode() for path in self.paths])
        self.trees['part'] = self.world.new

    def expect(self, *states):
        """As the world's; 'part' is another kind of new."""
        for state in states:
            self.world.new = self.trees[state]
            with suppress(Broken):
                self.world.expect('old' if state == 'old' else 'new')
                return state
        raise Broken(f'not {" or ".join(states)}: {self.why()}')

    def why(self):
        try:
            return self.world.state()
        except Broken as why:
            return str(why)

    def act(self, disk):
        part = {**self.env, 'SCENARIO_PART': '\n'.join(self.paths)}
        for number, (verb, point, _, after) in enumerate(self.steps):
            disk.mark(f'begun {number}')
            if self.killed:
                self.world.kill(point, verb, env=part)
            self.world.must('recover=all' if self.killed else verb, env=part)
            disk.mark(f'done {number}')
            self.expect(after)

    def recovered(self, mark, thorough):
        how, _, number = mark.partition(' ')
        before, after = self.steps[int(number)][2:] if mark else ('old', 'old')
        self.must('recover')
        state = self.expect(*{before, after} if how == 'begun' else {after})
        if state != 'new':  # All of the work was on disk before, if not known to be. The rest of it goes through.
            self.must('recover', '--accept', 'p')
            self.must('commit', 'p')
            self.expect('new')
        if thorough:
            self.must('rollback', 'p')
            self.expect('old')
            self.world.stop_and_count()
        return 'new' if state == 'part' else state


class Four:
    """A directory as overlay and one as copy, a repository and an SQLite file, by the command."""

    size = {'ext4': 96, 'xfs': 320, 'btrfs': 160}
    kinds = KINDS[:4]

    def __init__(self, killed=False, busy=False, env=()):
        self.world, self.killed, self.busy, self.env = None, killed, busy, dict(env)

    def prepare(self, where):
        self.world = Five(None, where, self.kinds)

    def act(self, disk):
        def do(verb, point):
            if point and not self.world.kill(point, verb, 'p', **self.env):
                raise Broken(f'did not die at {point}')
            self.world.must(*(('recover',) if point else (verb, 'p')), **self.env)
        act(disk, self.killed, do, self.world.all)

    def end(self):
        pass

    def recovered(self, mark, thorough):
        self.world.must('recover')
        state = self.world.all(*ALLOWED[mark])
        if thorough and state == 'old' and mark.startswith('commit'):
            self.world.all('new' if self.world.atoll('commit', 'p').code == 0 else 'old')
        return state


class All(Four):
    """And a PostgreSQL database, whose server is on the same disk. Its commit cannot be undone."""

    size = {'ext4': 192, 'xfs': 320, 'btrfs': 288}
    kinds = KINDS

    def prepare(self, where):
        place = Path(where) / 'server'
        place.mkdir(mode=0o755)
        os.chmod(where, 0o755)
        cluster = Cluster(place, fsync='on')
        cluster.__enter__()
        self.world = Five(cluster, where, self.kinds)

    def act(self, disk):
        disk.mark('commit')
        self.world.must('commit', 'p', **self.env)
        disk.mark('committed')
        self.world.all('new')

    def end(self):
        if self.world:
            self.world.cluster.stop('immediate')

    def recovered(self, mark, thorough):
        cluster = self.world.cluster
        for name in (cluster.data / 'postmaster.pid', *cluster.socket.glob('*')):  # of a process of another boot
            name.unlink(missing_ok=True)
        cluster.start()
        try:
            return super().recovered(mark, False)
        finally:
            cluster.stop('immediate')


# Which of a hundred images are of which.
STORIES = {'trees': (Trees(), 22), 'trees-busy': (Trees(busy=True), 12), 'trees-killed': (Trees(killed=True), 22),
           'parts': (Parts(), 6), 'parts-busy': (Parts(killed=True, busy=True), 10),
           'four': (Four(), 8), 'four-killed': (Four(killed=True), 6), 'four-busy': (Four(killed=True, busy=True), 10),
           'all': (All(), 4)}
