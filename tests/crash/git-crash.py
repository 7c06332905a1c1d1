#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A directory and a git repository in one plan. The commands that decide are killed at every crash point
they pass, and at sampled system calls; git itself is killed at system calls, alone and with atoll. A new
process recovers; then directory, working tree, refs, HEAD and index together are exactly old or exactly
new, git finds nothing wrong, and no lock is left. Prints TAP.

usage: git-crash.py root|user [git|worktree]
"""

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from multiprocessing import Pool
from pathlib import Path

from crashlib import KILL_AT, KILLED, LONG, WORKERS, Broken, become, points_in_source, remove, run, traced

ATOLL = os.environ.get('ATOLL', '')
GIT = shutil.which('git')
SAMPLES = 400 if LONG else 12
STRATEGY = (sys.argv[2:] or ['git'])[0]
OURS = {'git': ('git.',), 'worktree': ('git.', 'worktree.')}[STRATEGY]

EDIT = r'''
set -e
cd "$REPO"
echo two >> tracked; git rm -q --cached gone; rm gone; git commit -qam two
git tag -a v1 -m v1
git branch -D -q old
git branch -m away away/further
git checkout -q -b topic/one
mkdir deep; echo three > deep/new; git add deep; git commit -qm three
echo staged > staged; git add staged
echo stashed >> staged-before; git stash -q -- staged-before
echo dirty >> other
echo untracked > untracked
git pack-refs --all
cd "$DIR"
echo changed > file; rm gone; mkdir made; echo made > made/file
'''


def git(root, *args, check=True):
    env = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
    env.update(GIT_AUTHOR_NAME='A', GIT_AUTHOR_EMAIL='a@example.org', GIT_COMMITTER_NAME='C',
               GIT_COMMITTER_EMAIL='c@example.org', GIT_CONFIG_GLOBAL='/dev/null')
    done = subprocess.run([GIT, '-C', str(root), *args], env=env, text=True, errors='replace',
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if check and done.returncode != 0:
        raise Broken(f'git {" ".join(args)}: {done.returncode}: {done.stderr.strip()}')
    return done.stdout


def files(top):
    found = {}
    for folder, names, leaves in os.walk(top):
        names[:] = [name for name in names if name != '.git']
        for name in names + leaves:
            path = Path(folder, name)
            st = path.lstat()
            found[str(path.relative_to(top))] = (
                stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode),
                path.read_bytes() if stat.S_ISREG(st.st_mode) else None)
    return found


class World:
    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix='atoll-git-crash.', dir='/var/tmp'))
        self.dir, self.repo = self.base / 'dir', self.base / 'repo'
        self.log = self.base / 'points'
        self.log.touch()
        self.dir.mkdir()
        for name in ('file', 'gone', 'stays'):
            (self.dir / name).write_text(name)
        self.make_repository()
        self.old = self.look()
        self.new = None
        self.start('p', '--dir', self.dir)
        self.must('exec', 'p', '--', 'sh', '-c', EDIT)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        remove(self.base)

    def make_repository(self):
        git(self.base, 'init', '-q', '-b', 'main', str(self.repo))
        git(self.repo, 'config', 'user.name', 'U')
        git(self.repo, 'config', 'user.email', 'u@example.org')
        for name in ('tracked', 'gone', 'other', 'staged-before'):
            (self.repo / name).write_text(name + '\n')
        git(self.repo, 'add', 'tracked', 'gone', 'other')
        git(self.repo, 'commit', '-qm', 'one')
        git(self.repo, 'add', 'staged-before')
        git(self.repo, 'branch', 'old')
        git(self.repo, 'branch', 'away')
        (self.repo / 'mine').write_text('untracked, of the user\n')

    def look(self):
        ids = git(self.repo, 'for-each-ref', '--format=%(refname) %(objectname)')
        return {'dir': files(self.dir), 'tree': files(self.repo), 'refs': ids,
                'stash': git(self.repo, 'stash', 'list', '--format=%H'), 'head': (self.repo / '.git/HEAD').read_text(), 'index': git(self.repo, 'ls-files', '-s')}

    def environment(self, env):
        settings = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
        settings.update(ATOLL_HOME=str(self.base / 'home'), DIR=str(self.dir), REPO=str(self.repo),
                        XDG_CONFIG_HOME=str(self.base / 'config'), GIT_DIR='/nonsense', **dict(env))
        return settings

    def run(self, *args, env=(), wrap=()):
        settings = self.environment(env)
        if args[0] == 'exec':
            del settings['GIT_DIR']
        done = subprocess.run([*wrap, ATOLL, *map(str, args)], env=settings, text=True, errors='replace',
                              timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    def must(self, *args, env=()):
        status, output = self.run(*args, env=env)
        if status != 0:
            raise Broken(f'{" ".join(map(str, args))}: exit {status}: {output.strip()}')
        return output

    def start(self, name, *args, env=()):
        self.must('start', name, *args, '--git', self.repo, '--strategy', STRATEGY, env=env)

    def points(self, *args):
        self.log.write_text('')
        self.must(*args, env={'ATOLL_CRASHPOINT_LOG': str(self.log)})
        return self.log.read_text().split()

    def kill(self, point, *args):
        status, output = self.run(*args, env={'ATOLL_CRASHPOINT': point})
        if status != -signal.SIGKILL:
            raise Broken(f'{args[0]} did not die at {point}: exit {status}: {output.strip()}')

    def clean(self):
        """Git finds nothing wrong, and nothing of ours is left in the repository."""
        bad = [line for line in git(self.repo, 'fsck', '--no-dangling').splitlines() if line]
        left = [str(path.relative_to(self.repo)) for pattern in ('*.lock', '*.keep', '*.new')
                for path in (self.repo / '.git').rglob(pattern)]
        if bad or left:
            raise Broken(f'fsck: {bad}, left: {left}')

    def state(self):
        now = self.look()
        if now == self.old:
            return 'old'
        if self.new is None or now == self.new:
            return 'new'
        different = {key: (self.old[key], self.new[key], now[key]) for key in now
                     if now[key] not in (self.old[key], self.new[key])}
        raise Broken(f'neither old nor new: {different or [k for k in now if now[k] == self.old[k]]}')

    def settle(self, *allowed):
        self.must('recover')
        self.clean()
        now = self.state()
        if now not in allowed:
            raise Broken(f'{now} where {" or ".join(allowed)} is due')
        return now

    def finish(self):
        """All is still there to go on with."""
        if self.state() == 'old':
            self.must('commit', 'p')
        self.new = self.look()
        if self.new == self.old:
            raise Broken('the work is lost')
        left = json.loads(self.must('diff', '--json', 'p'))['changes']
        if left:
            raise Broken(f'after the commit the plan has {left}')
        self.must('rollback', 'p')
        if self.state() != 'old':
            raise Broken('not undone')
        self.clean()


# ---- cases, in processes of the pool ----

def guard(label, body):
    try:
        body()
    except Broken as why:
        return [f'{label}: {why}'.replace('\n', ' | ')]
    except Exception as why:  # pylint: disable=broad-except
        return [f'{label}: {type(why).__name__}: {why}']
    return []


def decided(passed, index, marks):
    before, after = marks
    if index <= passed.index(before):
        return -1
    return 1 if index >= passed.index(after) else 0


COMMIT_MARKS = ('txn.after-barrier-1', 'txn.after-decision')
UNDO_MARKS = ('txn.undo.prepared', 'txn.undo.after-decision')
WAYS_BACK = {'rollback': UNDO_MARKS, 'undo': UNDO_MARKS, 'redo': ('txn.redo.prepared', 'txn.redo.after-decision')}


def die_in_commit(case):
    point, side = case

    def body():
        with World() as world:
            world.kill(point, 'commit', 'p')
            world.settle(*{-1: ['old'], 1: ['new'], 0: ['old', 'new']}[side])
            world.finish()
    return guard(f'commit at {point}', body)


def die_in_way_back(case):
    """VERB is rollback, undo or redo; whatever became of it, the others go on from there."""
    verb, point, side = case
    before, after = ('old', 'new') if verb == 'redo' else ('new', 'old')

    def go(world, step, state):
        world.must(step, 'p')
        if world.state() != state:
            raise Broken(f'{step} after it does not lead to {state}')
        world.clean()

    def body():
        with World() as world:
            world.must('commit', 'p')
            world.new = world.look()
            if verb == 'redo':
                world.must('undo', 'p')
            world.kill(point, verb, 'p')
            world.settle(*{-1: [before], 1: [after], 0: ['old', 'new']}[side])
            if world.state() == 'new':
                go(world, 'rollback' if verb == 'rollback' else 'undo', 'old')
            if verb != 'rollback':
                go(world, 'redo', 'new')
                go(world, 'undo', 'old')
    return guard(f'{verb} at {point}', body)


def die_in_recovery(case):
    point, again = case

    def body():
        with World() as world:
            world.kill(point, 'commit', 'p')
            world.kill(again, 'recover')
            world.settle('old', 'new')
            world.finish()
    return guard(f'commit at {point}, recovery at {again}', body)


def die_at_call(case):
    verb, number = case

    def body():
        with World() as world:
            if verb == 'rollback':
                world.must('commit', 'p')
                world.new = world.look()
            status, output = world.run(verb, 'p', env=traced(), wrap=[KILL_AT, str(number), world.base / 'calls'])
            if status not in (0, KILLED):
                raise Broken(f'exit {status}: {output.strip()}')
            world.settle('old', 'new')
            if verb == 'commit':
                world.finish()
    return guard(f'{verb} at system call {number}', body)


def die_in_start(point):
    def body():
        with World() as world:
            status, output = world.run('start', 'q', '--git', world.repo, '--strategy', STRATEGY,
                                       env={'ATOLL_CRASHPOINT': point})
            if status != -signal.SIGKILL:
                raise Broken(f'did not die: exit {status}: {output.strip()}')
            world.settle('old')
            world.start('q')  # nothing of the first is in its way
            world.finish()
    return guard(f'start at {point}', body)


def kill_git(case):
    """COMMAND of git dies at a system call; ALSO: and so does atoll."""
    command, number, also = case

    def body():
        with World() as world:
            folder = world.base / 'bin'
            folder.mkdir()
            (folder / 'git').write_text(
                f'#!/bin/sh\nif [ "$1" = {command} ]; then {KILL_AT} {number} {world.base}/calls {GIT} "$@"; status=$?\n'
                f'[ $status -ne {KILLED} ] || {"kill -9 $PPID" if also else ":"}\nexit $status\nfi\n'
                f'exec {GIT} "$@"\n')
            (folder / 'git').chmod(0o755)
            status, output = world.run('commit', 'p', env={'PATH': f'{folder}:{os.environ["PATH"]}'})
            if status not in (0, 4, -signal.SIGKILL):
                raise Broken(f'exit {status}: {output.strip()}')
            if status == 4 and world.state() != 'old':
                raise Broken(f'failed, and not as before: {output.strip()}')
            world.settle('old', 'new')
            world.finish()
    return guard(f'git {command} at system call {number}{", with atoll" if also else ""}', body)


# ---- the tests ----

POOL = None
PASSED = {}


def to_kill(passed):
    for name in dict.fromkeys(passed):
        places = [i for i, point in enumerate(passed) if point == name]
        for n in range(1, len(places) + 1) if LONG else sorted({1, len(places)}):
            yield f'{name}:{n}', places[n - 1]


def of_interest(point):
    """The others are killed by the crash matrix."""
    if LONG:
        return True
    return point.startswith((*OURS, 'txn.after', 'txn.apply') if STRATEGY == 'git' else OURS)


def everything(how, cases):
    return [line for lines in POOL.imap_unordered(how, list(cases)) for line in lines]


def atm_14_kill_commit_of_directory_and_git():
    with World() as world:
        passed = PASSED['commit'] = world.points('commit', 'p')
        world.new = world.look()
        PASSED['rollback'] = world.points('rollback', 'p')
        if world.state() != 'old':
            return ['not undone']
    with World() as world:
        world.must('commit', 'p')
        PASSED['undo'] = world.points('undo', 'p')
        PASSED['redo'] = world.points('redo', 'p')
    return everything(die_in_commit, ((point, decided(passed, i, COMMIT_MARKS))
                                      for point, i in to_kill(passed) if of_interest(point)))


def kill_way_back(verb):
    passed = PASSED[verb]
    return everything(die_in_way_back, ((verb, point, decided(passed, i, WAYS_BACK[verb]))
                                        for point, i in to_kill(passed) if of_interest(point)))


def atm_14_kill_undo_of_directory_and_git():
    return kill_way_back('rollback')


def atm_14_kill_undo_of_one_commit_of_directory_and_git():
    return kill_way_back('undo')


def atm_14_kill_redo_of_one_commit_of_directory_and_git():
    return kill_way_back('redo')


def atm_14_kill_recovery_of_directory_and_git():
    cases = []
    for point in ('git.prepare.done:1', 'txn.after-decision:1', 'git.commit.index:1'):
        with World() as world:
            world.kill(point, 'commit', 'p')
            passed = PASSED[point] = world.points('recover')
        cases += [(point, again) for again, _ in to_kill(passed) if again.startswith('git.')]
    return everything(die_in_recovery, cases)


def atm_14_kill_start_of_git():
    with World() as world:
        passed = PASSED['start'] = world.points('start', 'q', '--git', world.repo, '--strategy', STRATEGY)
    return everything(die_in_start, (point for point, _ in to_kill(passed) if point.startswith(OURS)))


def atm_14_kill_at_sampled_system_calls():
    rng = random.Random(14)
    return everything(die_at_call, [(verb, rng.randrange(1, 2600)) for verb in ('commit', 'rollback')
                                    for _ in range(SAMPLES // 2)])


def git_05_kill_git_in_the_middle():
    rng = random.Random(5)
    return everything(kill_git, [(command, rng.randrange(1, calls), also)
                                 for command, calls in (('update-ref', 330), ('symbolic-ref', 150),
                                                        ('update-index', 120), ('index-pack', 150))
                                 for also in (False, True) for _ in range(max(1, SAMPLES // 6))])


def tst_08_every_crash_point_of_git_reached():
    with World() as world:
        PASSED['refused'] = []
        (world.repo / 'other').write_text('somebody else')
        world.log.write_text('')
        world.run('commit', 'p', env={'ATOLL_CRASHPOINT_LOG': str(world.log)})
        PASSED['refused'] = world.log.read_text().split()
    reached = {name for passed in PASSED.values() for name in passed}
    return [f'no scenario reaches {name}' for name in sorted(points_in_source() - reached)
            if name.startswith(OURS)]


# They differ in the workspace alone.
PUBLICATION = [
    atm_14_kill_recovery_of_directory_and_git,
    atm_14_kill_at_sampled_system_calls,
    git_05_kill_git_in_the_middle,
] if LONG or STRATEGY == 'git' else []

if __name__ == '__main__':
    become(sys.argv[1])
    with Pool(WORKERS) as POOL:
        sys.exit(run([
            atm_14_kill_commit_of_directory_and_git,
            atm_14_kill_undo_of_directory_and_git,
            atm_14_kill_undo_of_one_commit_of_directory_and_git,
            atm_14_kill_redo_of_one_commit_of_directory_and_git,
            atm_14_kill_start_of_git,
            *PUBLICATION,
            tst_08_every_crash_point_of_git_reached,
        ]))
