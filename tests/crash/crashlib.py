# SPDX-License-Identifier: Apache-2.0
"""What the crash tests share: a world in which `scenario` runs and dies, and what must hold after
recovery."""

import ast
import hashlib
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / 'tools'))
from tap import find, read, run, strip_c, Skip  # noqa: E402,F401
from trees import edit_again, edit_tree, make_tree, manifest, put  # noqa: E402,F401

# By hand, without meson: what is in build/.
BUILD = Path(os.environ.get('ATOLL_BUILD_ROOT', ROOT / 'build'))
for name, program in {'CRASH_SCENARIO': 'tests/crash/scenario', 'CRASH_KILL_AT': 'tests/crash/kill-at',
                      'CRASH_FAULT_AT': 'tests/crash/fault-at', 'ATOLL': 'src/cli/atoll',
                      'ATOLL_HELPER': 'src/helper/atoll-helper',
                      'ATOLL_POSTGRES': 'src/postgres/atoll-postgres'}.items():
    os.environ.setdefault(name, str(BUILD / program))
os.environ.setdefault('ATOLL_TEST_LIB', str(ROOT / 'tests/lib'))
sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
SCENARIO = os.environ['CRASH_SCENARIO']
KILL_AT = os.environ['CRASH_KILL_AT']
FAULT_AT = os.environ['CRASH_FAULT_AT']
LONG = os.environ.get('ATOLL_LONG') == '1'
NOBODY = 65534
WORKERS = 3
KILLED = 77  # kill-at's exit status
STRATEGIES = {'v': 'value', 'l': 'late', 'f': 'final', 'o': 'overlay'}  # by a resource's first letter
VALUES = ('v', 'l', 'f')
OLD_VALUE, NEW_VALUE = (1000000001, 2, b'old\n'), (1000000002, 2, b'new\n')


class Broken(Exception):
    """What was demanded does not hold; the text says what."""


def become(who):
    """Runs the rest as WHO: 'root', or 'user', an ordinary one."""
    if who == 'root' and os.geteuid() != 0:
        print('1..0 # SKIP needs root')
        sys.exit(0)
    if who == 'user' and os.geteuid() == 0:
        os.execvp('setpriv', ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}',
                              '--clear-groups', sys.executable, *sys.argv])


def points_in_source():
    """Names of every crash point, from the source."""
    names = set()
    for path in find('src/**/*.c'):
        names |= set(re.findall(r'\bcrashpoint\("([^"]+)"\)', strip_c(read(path), True)))
    return names


# ---- trees ----

def differences(wanted, is_now):
    for name in sorted(wanted.keys() | is_now.keys()):
        if wanted.get(name) != is_now.get(name):
            yield f'{name!r}: want {wanted.get(name)}, is {is_now.get(name)}'


def ctimes(root):
    return {name: os.lstat(name).st_ctime_ns
            for folder, dirs, files in os.walk(os.fsencode(root))
            for name in [folder] + [os.path.join(folder, n) for n in files]}


def part_of(old, view, paths):
    """The manifest of a tree OLD into which the PATHS of VIEW were committed. A directory with a
    changed entry has the view's time; new ones come with what is in them."""
    def chosen(path):
        return any(path == top or path.startswith(top + b'/') for top in paths)

    taken = [path for path in set(old) | set(view) if chosen(path) and old.get(path) != view.get(path)]
    found = {path: entry for path, entry in old.items() if not chosen(path)}
    found.update({path: view[path] for path in view if chosen(path)})
    for path in taken:
        up = os.path.dirname(path)
        if up in old and up in found and not chosen(up):
            entry = list(found[up])
            entry[4] = view[up][4]
            found[up] = tuple(entry)
        while path in view and up not in old:
            found[up] = view[up]
            up = os.path.dirname(up)
    return found


# ---- a world ----

def traced():
    """Environment under ptrace, which the search for leaks uses itself."""
    return {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}


# ---- databases ----

def is_database(name):
    return name.endswith('.db')


def make_database(path):
    path.parent.mkdir(exist_ok=True)
    database = sqlite3.connect(path)
    database.executescript('CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); CREATE TABLE u(x, y);'
                           "INSERT INTO u VALUES(1, 2); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT "
                           "i + 1 FROM n WHERE i < 60) INSERT INTO t SELECT i, hex(zeroblob(i)) FROM n;")
    database.close()


ROWS = ("UPDATE t SET v = v || '{0}' WHERE id % 5 = 0; DELETE FROM t WHERE id = {1}; "
        "INSERT INTO t VALUES({1} + 1000, '{0}');")
WHOLE = 'CREATE TABLE n{1}(x); INSERT INTO n{1} VALUES(zeroblob(20000)); PRAGMA user_version={1};'


def edit_database(path, how):
    """Rows of those whose name begins with 'd', the schema of others; the second time the other way."""
    again = how is edit_again
    script = ROWS if (Path(path).name[0] == 'd') != again else WHOLE
    database = sqlite3.connect(path)
    database.executescript(script.format('again' if again else 'once', 2 if again else 1))
    database.close()


MARK = "name NOT LIKE '\\_atoll%' ESCAPE '\\'"


def database_content(path):
    database = sqlite3.connect(path, timeout=20)
    try:
        found = {'schema': database.execute(f'SELECT type, name, sql FROM sqlite_schema WHERE {MARK} ORDER BY 2').fetchall(),
                 'version': database.execute('PRAGMA user_version').fetchall(),
                 'check': database.execute('PRAGMA integrity_check').fetchall()}
        for (table,) in database.execute(f"SELECT name FROM sqlite_schema WHERE type='table' AND {MARK}").fetchall():
            found[table] = database.execute(f'SELECT rowid, * FROM {table}').fetchall()
        return found
    finally:
        database.close()


def has_mark(path):
    database = sqlite3.connect(path, timeout=20)
    try:
        return database.execute(f'SELECT count(*) FROM sqlite_schema WHERE NOT {MARK}').fetchone()[0] > 0
    finally:
        database.close()


def remove(top):
    """What a plan does in the background, a workspace that is made anew, may still come between."""
    for left in reversed(range(50)):
        try:
            for folder, folders, _ in os.walk(top):
                for name in folders:  # before it is entered: an overlay's work is closed
                    if not os.path.islink(os.path.join(folder, name)):
                        os.chmod(os.path.join(folder, name), 0o700)
            shutil.rmtree(top)
            return
        except OSError:
            if not left:
                raise
            time.sleep(0.1)


class World:
    """Resources and a store. RESOURCES: names; 'v', 'l' and 'f' are of the test's own strategies, those with
    an 'o' are overlays, worked on by commands. X.db is a database, DIR/data/X.db one in another
    resource, of which `data` is then no part."""

    def __init__(self, resources, where=None):
        self.base = Path(tempfile.mkdtemp(prefix='atoll-crash.', dir=where))
        self.resources = resources
        self.works = {}
        self.log = self.base / 'points'
        self.log.touch()
        for name in resources:
            if is_database(name):
                make_database(self.base / name)
                continue
            (self.base / name).mkdir()
            if name in VALUES:
                put(self.base / name / 'value', OLD_VALUE[2])
                os.utime(self.base / name / 'value', ns=(OLD_VALUE[0] * 10**9 + 2,) * 2)
                os.utime(self.base / name, ns=(1000000003 * 10**9 + 3,) * 2)
            else:
                make_tree(self.base / name, name.encode())
        self.old = self.look()
        self.plain = self.look(inodes=False)
        self.new = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        remove(self.base)

    def look(self, inodes=True):
        """The originals must be the very inodes; what the test's own strategy wrote need not."""
        return {name: self.look_at(name, inodes) for name in self.resources}

    def look_at(self, name, inodes):
        if is_database(name):
            return database_content(self.base / name)
        return self.tree(name, manifest(self.base / name, inodes=inodes and name not in VALUES))

    def tree(self, name, found):
        """Without what belongs to a database in it."""
        if not any(other.startswith(f'{name}/data/') for other in self.resources):
            return found
        return {path: entry for path, entry in found.items() if not path.startswith(b'data')}

    def command(self, verbs):
        return [SCENARIO, str(self.base), *verbs]

    def run(self, *verbs, env=(), wrap=(), timeout=120):
        """Exit status (negative: signal) and output of a scenario process."""
        settings = {k: v for k, v in os.environ.items() if not k.startswith('SCENARIO_')}
        settings.update(env)
        if wrap:
            settings.update(traced())
        done = subprocess.run([*wrap, *self.command(verbs)], env=settings, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace')
        return done.returncode, done.stdout

    def must(self, *verbs, env=(), status=0):
        got, output = self.run(*verbs, env=env)
        if got != status:
            raise Broken(f'{" ".join(verbs)}: exit {got}, want {status}: {output.strip()}')
        return output

    def points(self, *verbs, env=()):
        """Crash points passed by an undisturbed run, in order."""
        self.log.write_text('')
        self.run(*verbs, env={**dict(env), 'ATOLL_CRASHPOINT_LOG': str(self.log)})
        return self.log.read_text().split()

    def kill(self, point, *verbs, env=()):
        got, output = self.run(*verbs, env={**dict(env), 'ATOLL_CRASHPOINT': point})
        if got != -signal.SIGKILL:
            raise Broken(f'{" ".join(verbs)} did not die at {point}: exit {got}: {output.strip()}')

    def open_plan(self):
        kinds = [f'{name}:{"sqlite" if is_database(name) else STRATEGIES.get(name[0], "copy")}'
                 for name in self.resources]
        if any(map(is_database, self.resources)):  # which lie in others: only `start` sees that
            self.find_works(self.must('start=' + ','.join(kinds), 'path'))
        else:
            self.find_works(self.must('start', *[f'add={kind}' for kind in kinds], 'path'))

    def find_works(self, output):
        for line in output.splitlines():
            if line.startswith('path '):
                _, root, work = line.split(' ')
                self.works[str(Path(root).relative_to(self.base))] = Path(work)

    def edit(self, how=edit_tree):
        """Works in every view, and takes the views for what a commit must make of the originals."""
        self.new = {}
        for name in self.resources:
            if name in VALUES:
                self.new[name] = self.value_after(name)
            elif is_database(name):
                edit_database(self.works[name], how)
                self.new[name] = database_content(self.works[name])
            elif name[0] == 'o':
                self.new[name] = self.tree(name, self.edit_by_command(how, name))
            else:
                how(self.works[name], name.encode())
                self.new[name] = self.tree(name, manifest(self.works[name]))

    def expect_part(self, paths):
        """From now on 'new' is what a commit of PATHS alone makes of the trees."""
        self.full = self.new
        self.new = {name: tree if name in VALUES else part_of(self.plain[name], tree, paths)
                    for name, tree in self.full.items()}

    def edit_by_command(self, how, name):
        """For what only commands can see: the same edit, and the same look at the view."""
        arguments = shlex.join([how.__name__, str(self.base / name), name])
        output = self.must(f'exec={sys.executable} -I -S -c "$SCENARIO_TREES" {arguments}',
                           env={'SCENARIO_TREES': read('tests/crash/trees.py')})
        return ast.literal_eval(output[output.index('{'):output.rindex('}') + 1])

    def value_after(self, name):
        found = dict(self.old[name])
        entry = list(found[b'value'])
        entry[4] = repr(NEW_VALUE[0] * 10**9 + 2)
        entry[6] = repr(hashlib.sha256(NEW_VALUE[2]).hexdigest())
        found[b'value'] = tuple(entry)
        return found

    def state(self):
        """'old' or 'new', for all resources together; anything else is what may never be."""
        if self.look() == self.old:
            return 'old'
        plain = self.look(inodes=False)
        if plain == self.new:
            return 'new'
        bare = {name: {path: entry for path, entry in tree.items()}
                for name, tree in plain.items()}
        lines = []
        for name in self.resources:
            from_old = list(differences(self.old[name], self.look()[name]))
            from_new = list(differences((self.new or {}).get(name, {}), bare[name]))
            lines.append(f'{name}: {len(from_old)} entries are not old, {len(from_new)} not new; '
                         f'{from_old[:3]} {from_new[:3]}')
        raise Broken('neither old nor new: ' + ' | '.join(lines))

    def expect(self, *states):
        now = self.state()
        if now not in states:
            raise Broken(f'{now} where {" or ".join(states)} is due')
        return now

    def dump(self):
        """The registry, byte by byte as text."""
        return self.read_registry(lambda database: list(database.iterdump()))

    def ask(self, sql):
        return self.read_registry(lambda database: database.execute(sql).fetchall())

    def read_registry(self, how):
        """From a copy."""
        with tempfile.TemporaryDirectory() as copy:
            for suffix in ('', '-wal'):
                path = self.base / 'store' / f'atoll.db{suffix}'
                if path.exists():
                    shutil.copy(path, f'{copy}/db{suffix}')
            database = sqlite3.connect(f'{copy}/db')
            try:
                return how(database)
            finally:
                database.close()

    def recover_twice(self, *verbs, env=()):
        """VERBS, in a new process, find and settle what was left; recovering again does nothing."""
        self.must(*(verbs or ('recover=all',)), env=env)
        first = self.dump(), self.look()
        self.must('recover=all')
        second = self.dump(), self.look()
        if first[0] != second[0]:
            changed = set(second[0]) ^ set(first[0])
            raise Broken(f'a second recovery changed the registry: {sorted(changed)}')
        if first[1] != second[1]:
            raise Broken('a second recovery changed a resource')

    def stop_and_count(self, purged=False):
        """After the plan's end nothing of it is left but its history. PURGED: a purge may have ended it."""
        before = self.look()
        status, output = self.run('stop=force')
        if status != 0 and not (purged and 'not-found' in output):
            raise Broken(f'stop=force: exit {status}, want 0: {output.strip()}')
        if self.look() != before:
            raise Broken('stop changed a resource')
        marked = [name for name in self.resources if is_database(name) and has_mark(self.base / name)]
        if marked:
            raise Broken(f'a mark was left in {marked}')
        self.nothing_left()

    def nothing_left(self):
        """No plan, no area, no file."""
        if self.plans():
            raise Broken(f'there still is a plan: {self.plans()}')
        store = self.base / 'store'
        left = [str(path.relative_to(self.base)) for path in self.base.rglob('*')
                if path.name.startswith('.atoll-') or
                (store in path.parents and path.parent != store and 'locks' not in path.parts)]
        left = [name for name in left if not name.startswith('store/durable')]
        if left:
            raise Broken(f'left behind: {left[:5]}')

    def plans(self):
        """Of every plan: is it being made, and the states of its sandboxes (1: CREATED)."""
        return self.ask('SELECT starting, (SELECT group_concat(state) FROM sandbox '
                        'WHERE plan = plan.id) FROM plan WHERE state <> 7')
