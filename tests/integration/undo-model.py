# SPDX-License-Identifier: Apache-2.0
"""Random sequences of commands, commits (whole and of a part), undos, redos, resets, touches and edits
outside, over three plans on a directory, a git repository and an SQLite file, against a model of them:
nothing that another process wrote is overwritten, no uncommitted change of any plan is lost, and what an
undo or redo does is what the model says, or it is refused and nothing is changed.

    undo-model.py          root's rounds and an ordinary user's (without root: only these)

A failing round names its seed: ATOLL_UNDO_SEED=N repeats that round alone, saying each step. ATOLL_LONG=1
runs 1,000.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONG = os.environ.get('ATOLL_LONG') == '1'
ROUNDS = 1000 if LONG else 12
STEPS = 20
WORKERS = 2
NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
ONLY = os.environ.get('ATOLL_UNDO_SEED')
NAMES = ['a', 'b', 'd/x', 'd/y', 'e/f/z']
PLANS = ['one', 'two', 'three']
OK, CONFLICT = 0, 3


class Broken(Exception):
    pass


# ---- what is there ----

def read_tree(top):
    """Files below TOP, without git's own: {path: content}, and directories: {path: None}."""
    tree = {}
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name != '.git' and not name.startswith('.atoll-')]
        for name in names:
            tree[os.path.relpath(os.path.join(folder, name), top)] = None
        for name in files:
            with open(os.path.join(folder, name)) as file:
                tree[os.path.relpath(os.path.join(folder, name), top)] = file.read()
    return tree


class World:
    """The resources, and the commands on them."""

    def __init__(self, base, strategy):
        self.base = base
        self.dir, self.repo, self.db = base / 'dir', base / 'repo', base / 'data.db'
        self.strategy = strategy
        self.env = {**os.environ, 'ATOLL_HOME': str(base / 'store'), 'HOME': str(base / 'home'),
                    'GIT_CONFIG_NOSYSTEM': '1', 'GIT_AUTHOR_NAME': 'a', 'GIT_AUTHOR_EMAIL': 'a@b',
                    'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@b', 'XDG_RUNTIME_DIR': str(base)}
        for name in ('ATOLL_PLAN', 'ATOLL_PLAN_ID', 'XDG_CONFIG_HOME', 'XDG_DATA_HOME', 'XDG_STATE_HOME'):
            self.env.pop(name, None)

    def sh(self, text, cwd=None):
        subprocess.run(['sh', '-ec', text], cwd=cwd or self.base, env=self.env, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)

    def make(self):
        (self.base / 'home').mkdir()
        self.dir.mkdir()
        for name in NAMES[:3]:
            (self.dir / name).parent.mkdir(exist_ok=True)
            (self.dir / name).write_text(f'first {name}\n')
        self.sh('git init -q -b main repo && cd repo && echo first > tracked && git add . && git commit -qm first')
        with sqlite3.connect(self.db) as db:
            db.execute('CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)')
            db.executemany('INSERT INTO t VALUES (?, ?)', [(n, 'first') for n in range(4)])
        db.close()

    def atoll(self, *args, cwd=None):
        r = subprocess.run([ATOLL, *args], cwd=cwd or self.dir, env=self.env, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True)
        self.printed = r.stdout
        return r.returncode, r.stderr

    def must(self, *args, cwd=None):
        code, said = self.atoll(*args, cwd=cwd)
        if code != 0:
            raise Broken(f'atoll {" ".join(args)}: exit {code}: {said}')
        return said

    def git(self, *args):
        return subprocess.run(['git', *args], cwd=self.repo, env=self.env, check=True, capture_output=True,
                              text=True).stdout

    def look(self):
        """All of it, as plain values."""
        refs = dict(reversed(line.split(' ')) for line in self.git('for-each-ref', '--format=%(objectname) %(refname)').splitlines())
        db = sqlite3.connect(f'file:{self.db}?mode=ro', uri=True)
        rows = dict(db.execute('SELECT k, v FROM t'))
        extra = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name <> 't'")]
        db.close()
        if extra:
            raise Broken(f'left in the database: {extra}')
        return {'dir': read_tree(self.dir), 'repo': read_tree(self.repo), 'rows': rows, 'refs': refs,
                'head': self.git('symbolic-ref', 'HEAD').strip(), 'staged': self.git('ls-files', '-s')}

    def view(self, plan):
        """What a command of the plan sees: (what, where) -> content."""
        text = f"""cd {self.dir}; find . -type f | while read f; do echo "dir ${{f#./}} $(cat "$f")"; done
            cd {self.repo}; for f in tracked more; do test ! -f $f || echo "repo $f $(cat $f)"; done
            sqlite3 -separator ' ' {self.db} "SELECT 'row', k, v FROM t" """
        r = subprocess.run([ATOLL, 'exec', plan, '--', 'sh', '-c', text], cwd=self.dir, env=self.env,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if r.returncode != 0:
            raise Broken(f'exec {plan}: {r.stderr}')
        return {tuple(line.split(' ')[:2]): line.split(' ')[2] for line in r.stdout.splitlines()}


# ---- a round ----

class Round:
    """The model: a stack of commits, each with the state before and after it, over all plans. An undo of the
    last commit is right when it leads to the state before it, where nothing came in between; one that is
    refused must change nothing."""

    def __init__(self, world, seed, say):
        self.w = world
        self.r = random.Random(seed)
        self.say = say
        self.stack = []   # commits that stand: [plan, before, after, serial]
        self.undone = []  # commits that were undone, the last one last
        self.started = set()
        self.serial = 0
        self.touched = False
        self.foreign = {}  # what edits outside wrote, and must still be there: path -> content
        self.work = {plan: {} for plan in PLANS}  # uncommitted: (what, where) -> content, or None: deleted
        self.done = {'undo': 0, 'redo': 0, 'refused': 0, 'commit': 0}

    def step(self, text):
        if self.say:
            print(f'# {text}', flush=True)

    def start(self, plan):
        if plan not in self.started:
            self.w.must('start', plan, '--dir', str(self.w.dir), '--strategy', self.w.strategy)
            self.w.must('add', plan, '--git', str(self.w.repo))
            self.w.must('add', plan, '--sqlite', str(self.w.db))
            self.started.add(plan)

    # -- the work of a plan

    def command(self):
        """A command for a plan: the text, and what it makes of things."""
        self.serial += 1
        tag = f't{self.serial}'
        name, key = self.r.choice(NAMES), self.r.randrange(6)
        tracked = self.r.choice(['tracked', 'more'])
        return self.r.choice([
            (f'mkdir -p {self.w.dir}/{os.path.dirname(name) or "."}; echo {tag} > {self.w.dir}/{name}', {('dir', name): tag}),
            (f'if [ -e {self.w.dir}/{name} ]; then rm {self.w.dir}/{name}; echo gone {tag}; fi', {('dir', name): tag}),
            (f'rm -rf {self.w.dir}/d', {('dir', 'd/'): None}),
            (f'rm -rf {self.w.dir}/e; mkdir -p {self.w.dir}/e/f; echo {tag} > {self.w.dir}/e/f/{tag}',
             {('dir', 'e/'): None, ('dir', f'e/f/{tag}'): tag}),
            (f'cd {self.w.repo}; echo {tag} > {tracked}; git add -A; git commit -qm {tag}', {('repo', tracked): tag}),
            (f'cd {self.w.repo}; echo {tag} > tracked; git add -A', {('repo', 'tracked'): tag}),
            (f'cd {self.w.repo}; git branch b{tag}', {}),
            (f'sqlite3 {self.w.db} "INSERT OR REPLACE INTO t VALUES ({key}, \'{tag}\')"', {('row', str(key)): tag}),
            (f'sqlite3 {self.w.db} "DELETE FROM t WHERE k = {key}"', {('row', str(key)): None}),
        ])

    def exec(self, plan):
        commands = [self.command() for _ in range(self.r.randint(1, 3))]
        text = '; '.join(f'({text})' for text, _ in commands)
        self.step(f'exec {plan}: {text}')
        self.w.must('exec', plan, '--', 'sh', '-ec', text)
        work = self.work[plan]
        for text, effects in commands:
            for (what, where), content in effects.items():
                for known in [k for k in work if k[0] == what and k[1].startswith(where) and where.endswith('/')]:
                    del work[known]
                # Nothing is changed by removing what is not there.
                if text.endswith(f'echo gone {content}; fi'):
                    if f'gone {content}\n' not in self.w.printed:
                        continue
                    content = None
                if not where.endswith('/'):
                    work[what, where] = content

    def op_exec(self):
        plan = self.r.choice(PLANS)
        self.start(plan)
        before = self.w.look()
        self.exec(plan)
        self.same(before, 'a command in a plan')

    def op_run(self):
        """A commit of what was begun just now: it cannot conflict."""
        plan = self.r.choice(PLANS)
        self.start(plan)
        self.w.must('reset', plan)
        self.work[plan] = {}
        self.exec(plan)
        self.commit(plan, must=True)

    def check_work(self):
        """What plans have not committed is in their views."""
        for plan in PLANS:
            view = self.w.view(plan) if self.work[plan] else {}
            for key, content in self.work[plan].items():
                if view.get(key) != content:
                    raise Broken(f'uncommitted {key} of {plan} is {view.get(key)!r}, not {content!r}')

    # -- deciding

    def same(self, before, what):
        now = self.w.look()
        if now != before:
            differ = [f'{key}: {before[key]} -> {now[key]}' for key in now if now[key] != before[key]]
            raise Broken(f'{what} changed {differ}')

    def committed(self, plan, before, said):
        after = self.w.look()
        if f'committed {plan}' in said:
            self.stack.append([plan, before, after])
            self.done['commit'] += 1
        elif after != before:
            raise Broken(f'commit {plan} said {said!r} and changed something')
        # What was written outside and was the base of what a plan changed.
        for path in list(self.foreign):
            if after['dir'].get(path) != before['dir'].get(path):
                del self.foreign[path]
        return after

    def commit(self, plan, must=False):
        before = self.w.look()
        code, said = self.w.atoll('commit', plan)
        if code not in (OK, CONFLICT) or (must and code != OK):
            raise Broken(f'commit {plan}: exit {code}: {said}')
        if code == CONFLICT:
            self.same(before, f'a refused commit of {plan}')
            return
        self.committed(plan, before, said)
        self.work[plan] = {}

    def op_commit(self):
        plan = self.r.choice(PLANS)
        if plan in self.started:
            self.step(f'commit {plan}')
            self.commit(plan)

    def op_part(self):
        plan, name = self.r.choice(PLANS), self.r.choice(NAMES)
        if plan not in self.started:
            return
        before = self.w.look()
        self.step(f'commit {plan} {name}')
        code, said = self.w.atoll('commit', plan, str(self.w.dir / name))
        if code != OK:
            self.same(before, 'a refused commit of a part')
            return
        after = self.committed(plan, before, said)
        self.work[plan].pop(('dir', name), None)
        for other in after['dir'].keys() | before['dir'].keys():
            apart = not f'{other}/'.startswith(f'{name}/') and not f'{name}/'.startswith(f'{other}/')
            if apart and after['dir'].get(other) != before['dir'].get(other):
                raise Broken(f'a commit of {name} changed {other}')

    def way(self, verb, named):
        """Undo or redo."""
        source, target = (self.stack, self.undone) if verb == 'undo' else (self.undone, self.stack)
        plan = self.r.choice(PLANS) if named else None
        if plan and plan not in self.started:
            return
        at = len(source) - 1
        while plan and at >= 0 and source[at][0] != plan:
            at -= 1
        before = self.w.look()
        self.step(f'{verb} {plan or ""}')
        code, said = self.w.atoll(verb, *([plan] if plan else []))
        now = self.w.look()
        if at < 0:
            if code == OK:
                raise Broken(f'{verb} did something, there is nothing to {verb}: {said}')
            self.same(before, f'a refused {verb}')
            return
        entry = source[at]
        leads_to, comes_from = (entry[1], entry[2]) if verb == 'undo' else (entry[2], entry[1])
        if code == CONFLICT:
            self.done['refused'] += 1
            self.same(before, f'a refused {verb}')
            if before == comes_from and at == len(source) - 1 and not self.touched:
                raise Broken(f'{verb} was refused, nothing had changed since: {said}')
            return
        if code != OK:
            raise Broken(f'{verb}: exit {code}: {said}')
        if f' {entry[0]}' not in said:
            raise Broken(f'{verb} was to take a commit of {entry[0]}: {said}')
        source.pop(at)
        target.append(entry)
        self.done[verb] += 1
        if before == comes_from and now != leads_to:
            differ = [f'{key}: {leads_to[key]} != {now[key]}' for key in now if now[key] != leads_to[key]]
            raise Broken(f'after {verb} of {entry[0]}: {differ}')
        self.partial(before, now, comes_from, leads_to, verb)
        # Where other things came in between it goes back to those: below a directory that goes as a whole,
        # what another plan removed since does not stand in its way.
        entry[1:] = [now, before] if verb == 'undo' else [before, now]
        self.check_work()

    def partial(self, before, now, comes_from, leads_to, verb):
        """Other things came in between: only what the commit was about may differ, and is as it was to be."""
        for part in ('dir', 'repo', 'rows', 'refs'):
            for key in before[part].keys() | now[part].keys():
                was, is_now = before[part].get(key), now[part].get(key)
                if was == is_now:
                    continue
                if comes_from[part].get(key) != was or leads_to[part].get(key) != is_now:
                    # Below a directory that came or went as a whole.
                    raise Broken(f'{verb} changed {part} {key!r} from {was!r} to {is_now!r}; the commit had '
                                 f'{comes_from[part].get(key)!r} and {leads_to[part].get(key)!r}')

    def op_undo(self):
        self.way('undo', False)

    def op_redo(self):
        self.way('redo', False)

    def op_undo_named(self):
        self.way('undo', True)

    def op_redo_named(self):
        self.way('redo', True)

    def op_reset(self):
        plan = self.r.choice(PLANS)
        if plan in self.started:
            before = self.w.look()
            self.step(f'reset {plan}')
            self.w.must('reset', plan)
            self.work[plan] = {}
            self.same(before, 'a reset')

    # -- from outside

    def op_touch(self):
        path = self.w.dir / self.r.choice(NAMES)
        if path.is_file():
            self.step(f'touch {path}')
            os.utime(path)
            self.touched = True

    def op_edit(self):
        self.serial += 1
        name = self.r.choice(NAMES + ['other', 'd/other'])
        path = self.w.dir / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'foreign{self.serial}\n')
        except OSError:
            return
        self.step(f'outside: {path}')
        self.foreign[name] = f'foreign{self.serial}\n'

    def op_row(self):
        self.serial += 1
        self.step('outside: a row')
        db = sqlite3.connect(self.w.db)
        with db:
            db.execute('INSERT OR REPLACE INTO t VALUES (?, ?)', (self.r.randrange(6), f'foreign{self.serial}'))
        db.close()

    def op_git(self):
        self.serial += 1
        self.step('outside: a commit')
        self.w.sh(f'echo foreign{self.serial} > outside{self.serial % 3}; git add outside{self.serial % 3}; '
                  f'git commit -qm foreign{self.serial} -- outside{self.serial % 3}', cwd=self.w.repo)

    def check_foreign(self):
        tree = self.w.look()['dir']
        for path, content in self.foreign.items():
            if tree.get(path) != content:
                raise Broken(f'what another process wrote to {path} is gone: {tree.get(path)!r}, not {content!r}')

    OPS = [('op_run', 5), ('op_exec', 4), ('op_commit', 3), ('op_part', 2), ('op_undo', 7), ('op_redo', 5),
           ('op_undo_named', 2), ('op_redo_named', 2), ('op_reset', 1), ('op_touch', 1), ('op_edit', 1), ('op_row', 1),
           ('op_git', 1)]

    def go(self):
        names, weights = zip(*self.OPS)
        for op in self.r.choices(names, weights, k=STEPS):
            getattr(self, op)()
            self.check_foreign()
        self.unwind()

    def unwind(self):
        """All the way back and forward again, as far as it goes: it must never leave anything behind."""
        for verb in ('undo', 'redo', 'undo'):
            for _ in range(len(self.stack) + len(self.undone)):
                self.way(verb, False)
                self.check_foreign()


def attempt(base, seed):
    """What broke, or None; and what was done."""
    strategy = 'overlay' if seed % 3 else 'copy'
    world = World(base, strategy)
    work = Round(world, seed, ONLY is not None)
    broken = None
    try:
        base.mkdir()
        world.make()
        work.go()
    except (Broken, OSError, subprocess.CalledProcessError) as failure:
        broken = f'ATOLL_UNDO_SEED={seed} ({strategy}): {failure}'
    finally:
        for plan in work.started:
            world.atoll('stop', '--force', plan, cwd='/')
        shutil.rmtree(base, ignore_errors=True)
    return broken, work.done


def rounds(first, n):
    """As whoever this process is."""
    seeds = [int(ONLY)] if ONLY else range(first, first + n)
    total, good = {}, True

    with tempfile.TemporaryDirectory(prefix='atoll-undo-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'),
                                     ignore_cleanup_errors=True) as top, ThreadPoolExecutor(WORKERS) as pool:
        for broken, done in pool.map(lambda seed: attempt(Path(top) / str(seed), seed), seeds):
            if broken:
                good = False
                print(f'# {broken}', flush=True)
            for key, count in done.items():
                total[key] = total.get(key, 0) + count
    print(f'# {len(seeds)} sequences: {total}', flush=True)
    # A test that undoes nothing proves nothing.
    return good and (ONLY or (total['undo'] > len(seeds) and total['redo'] > len(seeds)))


def as_nobody(first, n):
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            good = rounds(first, n)
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(pid, 0)[1] == 0


def der_04_undo_and_redo_follow_the_model_as_root(n):
    return rounds(1, n)


def der_04_undo_and_redo_follow_the_model_as_user(n):
    return as_nobody(100_001, n) if os.geteuid() == 0 else rounds(100_001, n)


def main():
    tests = [der_04_undo_and_redo_follow_the_model_as_root, der_04_undo_and_redo_follow_the_model_as_user]
    if os.geteuid() != 0:
        del tests[0]
    print(f'1..{len(tests)}', flush=True)
    bad = 0
    for number, test in enumerate(tests, 1):
        good = test(ROUNDS // len(tests))
        bad += not good
        print(f'{"ok" if good else "not ok"} {number} - {test.__name__}', flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
