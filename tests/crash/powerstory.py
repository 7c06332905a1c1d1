# SPDX-License-Identifier: Apache-2.0
"""What happens on the disk whose power is cut, and what is demanded of it afterwards.

A story lives on a mounted disk. prepare() makes resources and a plan with work; act() commits, undoes and
recovers, and says by marks what was begun and what was acknowledged; after the cut, recovered() is what
the real program made of it. BUSY: on a machine with much to write. All of it can be pickled."""

import os
import subprocess
import time
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


class First:
    """The first commands of a plan. They begin before it is on disk that they did, so the workspace itself must tell whether
    there is anything in it: what is committed is of whole commands, and what may be torn is refused."""

    size = {'ext4': 96, 'xfs': 320, 'btrfs': 160}
    busy = False
    versions = ('old', 'one', 'two')
    files, length = 24, 40000
    # What a commit may make of the tree, by the last mark. In another boot a command's work counts only once it was noted.
    commits = {'one': ('old', 'one'), 'two': ('one', 'two'), 'noted': ('two',)}

    def __init__(self):
        self.base = None

    def text(self, version):
        return f'{version}\n' * (self.length // (len(version) + 1))

    def atoll(self, *words):
        env = {**os.environ, 'ATOLL_HOME': str(self.base / 'store')}
        return subprocess.run([os.environ['ATOLL'], *words], cwd='/', env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def must(self, *words):
        done = self.atoll(*words)
        if done.returncode:
            raise Broken(f'{words[0]}: exit {done.returncode}: {done.stdout.strip()}')

    def prepare(self, where):
        self.base = Path(where)
        (self.base / 'tree').mkdir()
        for i in range(self.files):
            (self.base / 'tree' / f'{i}').write_text(self.text('old'))
        self.must('list')

    def write(self, version):
        """In place, as far as there is something in place."""
        script = f'i=0; while [ $i -lt {self.files} ]; do yes {version} | head -c {len(self.text(version))} 1<> $i; ' \
                 f'echo {version} > new-$i; i=$((i+1)); done'
        self.must('exec', 'p', '--', 'sh', '-c', f'cd {self.base}/tree && {script}')

    def noted(self, number):
        """Until what the NUMBERth command left is on disk."""
        for _ in range(6000):
            notes = [note for note in self.base.rglob('durable') if note.read_text().strip() == str(number)]
            if notes:  # it shows before it is on disk
                area = os.open(notes[0].parent, os.O_RDONLY)
                os.fsync(area)
                os.close(area)
                return
            time.sleep(0.01)
        raise Broken(f'command {number} was never noted')

    def act(self, disk):
        disk.mark('start')
        self.must('start', 'p', '--dir', str(self.base / 'tree'))
        disk.mark('started')
        self.must('exec', 'p', '--', 'true')
        disk.mark('one')
        self.write('one')
        self.noted(1)
        disk.mark('two')
        self.write('two')
        self.noted(2)
        disk.mark('noted')

    def end(self):
        pass

    def state(self):
        """The version of all files; Broken when they are not of one."""
        found = set()
        for i in range(self.files):
            here, new = self.base / 'tree' / f'{i}', self.base / 'tree' / f'new-{i}'
            version = next((v for v in self.versions if here.read_text() == self.text(v)), 'torn')
            found.add(version)
            found.add(new.read_text().strip() if new.exists() else 'old')
        if len(found) != 1 or 'torn' in found:
            raise Broken(f'the tree is of {sorted(found)}')
        return found.pop()

    def refused(self):
        """It can be looked at and then accepted or given up, or it is said that nothing of it is there."""
        done = self.atoll('diff', 'p')
        if done.returncode and 'the machine went down before' not in done.stdout:
            raise Broken(f'diff: exit {done.returncode}: {done.stdout.strip()}')
        if not done.returncode:
            self.must('recover', '--accept', 'p')
        self.must('reset', 'p')
        self.must('exec', 'p', '--', 'true')

    def recovered(self, mark, thorough):
        self.must('recover')
        before = self.state()
        if before != 'old':
            raise Broken(f'{before} without a commit')
        if mark in ('', 'start') and self.atoll('show', 'p').returncode:
            return 'old'
        allowed = self.commits.get(mark, ('old',))
        if self.atoll('commit', 'p').returncode == 0:
            state = self.state()
            if state not in allowed:
                raise Broken(f'committed {state} instead of one of {allowed}')
        elif mark == 'noted':
            raise Broken(f'what was noted was refused: {self.atoll("show", "p").stdout}')
        else:
            state = self.state()
            if state != 'old':
                raise Broken(f'refused, and {state}')
            self.refused()
        if thorough:
            self.must('stop', '--force', '--yes', 'p')
        return 'old' if state == 'old' else 'new'


# Which of a hundred images are of which.
STORIES = {'trees': (Trees(), 20), 'trees-busy': (Trees(busy=True), 11), 'trees-killed': (Trees(killed=True), 20),
           'parts': (Parts(), 6), 'parts-busy': (Parts(killed=True, busy=True), 10), 'first': (First(), 8),
           'four': (Four(), 7), 'four-killed': (Four(killed=True), 5), 'four-busy': (Four(killed=True, busy=True), 9),
           'all': (All(), 4)}
