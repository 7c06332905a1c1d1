# SPDX-License-Identifier: Apache-2.0
"""Plans over directories, repositories, SQLite files and PostgreSQL databases, for tests that use the command
as people do."""

import glob
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from expect import need, same


class Done:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.all = done.stdout + done.stderr

    def __str__(self):
        return f'exit {self.code}: {self.all}'


TABLE = "drop schema public cascade; create schema public; create table t(id int primary key, v text); " \
        "insert into t select i, 'v' || i from generate_series(1, 5) i;"
WORK = "echo new >d/f; psql -Xqc \"insert into t values (6, 'x'); delete from t where id = 1\""


class World:
    """A store, a directory d with a file f, and a database with a table t: 5 rows, the first is 1. CLUSTER
    None: no database."""

    cwd = None  # of commands, where it is not the directory around these

    def __init__(self, cluster, top):
        self.cluster, self.dir = cluster, Path(tempfile.mkdtemp(dir=top))
        self.home = self.dir / 'home'
        (self.dir / 'd').mkdir()
        (self.dir / 'd/f').write_text('old\n', encoding='utf-8')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('PG')}
        self.env.update(ATOLL_HOME=str(self.home), NO_COLOR='1', LC_ALL='C.UTF-8')
        if cluster:
            cluster.sql(TABLE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.plans():
            self.atoll('stop', '--force', name)
        if self.cluster and self.cluster.running:
            for gid in self.prepared():
                self.cluster.sql(f"rollback prepared '{gid}'", user='postgres')

    def atoll(self, *words, stdin='', **env):
        return Done(subprocess.run([os.environ['ATOLL'], *words], env={**self.env, **env}, cwd=self.cwd or self.dir, input=stdin,
                                   capture_output=True, text=True, timeout=300, check=False))

    def must(self, *words, **env):
        done = self.atoll(*words, **env)
        need(done.code == 0, f'atoll {" ".join(words)}: {done}')
        return done

    def fails(self, code, *words, **env):
        done = self.atoll(*words, **env)
        need(done.code == code, f'atoll {" ".join(words)}: want exit {code}, {done}')
        return done

    def json(self, *words):
        return json.loads(self.must(*words, '--json').out)

    def plans(self):
        return [p['name'] for p in json.loads(self.atoll('list', '--json').out)['plans']]

    def start(self, *more, url=None):
        self.must('start', 'p', '--dir', 'd', '--postgres', url or self.cluster.url, *more)

    def work(self, text=WORK):
        self.must('exec', 'p', '--', 'sh', '-ec', text)

    def sql(self, text):
        """In the plan."""
        return self.must('exec', 'p', '--', 'psql', '-XqAtc', text).out.strip()

    def sandbox(self, strategy='postgres'):
        """That of the database, or with None the first other one."""
        return next(s for s in self.json('show', 'p')['sandboxes']
                    if (s['strategy'] == strategy if strategy else s['strategy'] != 'postgres'))

    def prepared(self):
        return self.cluster.sql('select gid from pg_prepared_xacts').split() if self.cluster else []

    def holders(self):
        """Process ids of the holders of this store."""
        found = []
        for file in glob.glob('/proc/[0-9]*/cmdline'):
            try:
                words = Path(file).read_bytes().split(b'\0')
            except OSError:
                continue
            if len(words) > 2 and words[0] == b'atoll-postgres' and words[2].startswith(os.fsencode(self.home)):
                found.append(int(file.split('/')[2]))
        return found

    def expect(self, state, text=''):
        got = ((self.dir / 'd/f').read_text(encoding='utf-8'), self.cluster.sql('select count(*), min(id) from t'))
        wanted = {'old': ('old\n', '5|1'), 'new': ('new\n', '5|2')}
        same(got, wanted[state], f'{text}: not {state}')

    def state(self):
        got = ((self.dir / 'd/f').read_text(encoding='utf-8'), self.cluster.sql('select count(*), min(id) from t'))
        return {('old\n', '5|1'): 'old', ('new\n', '5|2'): 'new'}.get(got, f'torn: {got}')


def until(fn, text, seconds=60):
    deadline = time.monotonic() + seconds
    while not fn():
        need(time.monotonic() < deadline, text)
        time.sleep(0.02)


class Everything:
    """A directory, a repository, an SQLite file and a database, changed by one command."""

    def __init__(self, w):
        self.w, self.lite = w, str(w.dir / 'lite.db')
        self.git('init', '-q', '-b', 'main', 'repo')
        (w.dir / 'repo/file').write_text('old\n', encoding='utf-8')
        self.git('-C', 'repo', 'add', 'file')
        self.git('-C', 'repo', 'commit', '-qm', 'old')
        subprocess.run(['sqlite3', self.lite, "create table t(v text primary key); insert into t values ('old')"], check=True)
        w.must('start', 'p', '--postgres', w.cluster.url, '--sqlite', 'lite.db', '--git', 'repo', '--dir', 'd')

    def git(self, *words):
        return subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *words], cwd=self.w.dir, check=True,
                              capture_output=True, text=True, env=dict(self.w.env, HOME=str(self.w.dir))).stdout.strip()

    def work(self):
        self.w.work(WORK + "; cd repo; echo new >file; git -c user.name=a -c user.email=a@b commit -qam new; cd ..; "
                    "sqlite3 lite.db \"update t set v = 'new'\"")

    def states(self):
        lite = subprocess.run(['sqlite3', self.lite, 'select v from t'], check=True, capture_output=True, text=True).stdout
        return {self.w.state(), lite.strip(), self.git('-C', 'repo', 'log', '-1', '--format=%s'),
                (self.w.dir / 'repo/file').read_text(encoding='utf-8').strip()}
