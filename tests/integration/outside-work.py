# SPDX-License-Identifier: Apache-2.0
"""Somebody else is at work in everything that a plan holds: edits files of the directory and of the checkout,
commits on the branch, writes to the SQLite file and to the database, while the plan works, commits, and
sometimes is killed. After every round the plan's work is there in all of them or in none, and of what the
others did nothing is lost.

    outside-work.py [ROUNDS]       root's rounds and an ordinary user's (without root: only these)

What somebody else did is a *token*, written into the resource, and noted once the write has succeeded: a line of
a file, a commit, a row. The plan's own work is a token, too. So a round is judged by looking for tokens. A
failing round names its seed: ATOLL_OUTSIDE_SEED=N repeats that round alone. ATOLL_LONG=1 runs a thousand.
"""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster, binary  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from kinds import World, until  # noqa: E402

LONG = os.environ.get('ATOLL_LONG') == '1'
ONLY = os.environ.get('ATOLL_OUTSIDE_SEED')
ROUNDS = {'root': 700, 'user': 300} if LONG else {'root': 10, 'user': 4}
NOBODY = 65534
OK, FAILED, CONFLICT, REFUSED, BUSY, IN_DOUBT, KILLED = 0, 1, 3, 4, 5, 7, -signal.SIGKILL
SCHEMA = "drop schema public cascade; create schema public; create table t(id int primary key, v text); " \
         "insert into t values (1, 'v'), (2, 'v'); create table log(token text primary key)"
# Where a commit dies. A name that it does not pass lets it live.
POINTS = ('txn.prepare.participant:1', 'txn.prepare.participant:3', 'txn.prepared', 'txn.after-barrier-1', 'txn.checked',
          'txn.after-decision', 'txn.apply.participant:1', 'txn.apply.participant:2', 'txn.apply.participant:3',
          'txn.apply.participant:4', 'txn.after-apply', 'txn.after-committed', 'git.commit.refs', 'git.commit.index',
          'git.commit.files', 'sqlite.prepared', 'sqlite.committed', 'dir.apply.op')
KINDS = ('dir', 'git', 'sqlite', 'postgres')


class Place(World):
    """The four resources, each with something that only others change, and something that everybody may."""

    def __init__(self, cluster, top):
        super().__init__(cluster, top)
        self.env.update(HOME=str(self.dir), GIT_CONFIG_NOSYSTEM='1', GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b',
                        GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b')
        self.repo, self.lite = self.dir / 'repo', self.dir / 'lite.db'
        for name in ('shared', 'theirs'):
            (self.dir / 'd' / name).write_text('begin\n', encoding='utf-8')
        subprocess.run('git init -q -b main repo; cd repo; seq 9 >file; echo begin >shared; echo begin >theirs; '
                       'echo begin >dirty; git add .; git commit -qm begin', shell=True, cwd=self.dir, env=self.env, check=True)
        with self.database() as db:
            db.execute(f'pragma journal_mode={random.choice(("wal", "delete"))}')
            for statement in SCHEMA.split('; ')[2:]:
                db.execute(statement)
        db.close()
        cluster.sql(SCHEMA)

    def database(self):
        return sqlite3.connect(self.lite, timeout=120)

    def git(self, *words, check=True):
        done = subprocess.run(['git', '-C', self.repo, *words], env=self.env, capture_output=True, text=True, check=False)
        need(done.returncode == 0 or not check, f'git {" ".join(words)}: {done.stderr}')
        return done.stdout if done.returncode == 0 else None

    def begin(self):
        self.must('start', 'p', '--dir', 'd', '--git', 'repo', '--sqlite', 'lite.db', '--postgres', self.cluster.url)


# ---- the others ----

class Somebody(threading.Thread):
    """Does TURN after turn until told to stop. What has succeeded is in DONE."""

    def __init__(self, place, seed, shared):
        super().__init__()
        self.place, self.r, self.shared = place, random.Random(seed), shared
        self.ended, self.done, self.failure = threading.Event(), [], None

    def run(self):
        n = 0
        while not self.ended.is_set():
            n += 1
            try:
                self.turn(f'theirs{n}.')
            except Exception as why:  # pylint: disable=broad-except
                self.failure = why
                return
            self.ended.wait(self.r.random() * 0.05)

    def choose(self, alone, both):
        return both if self.shared and self.r.random() < 0.5 else alone

    def write(self, path, token):
        """As an editor that adds a line; who opened the file before it was replaced writes to the old one."""
        with open(path, 'a', encoding='utf-8') as file:
            file.write(token + '\n')
        self.done.append((path.name, token))


class Editor(Somebody):
    """Of the directory."""

    def turn(self, token):
        self.write(self.place.dir / 'd' / self.choose('theirs', 'shared'), token)

    def lost(self):
        kept = ''.join(f.read_text(encoding='utf-8') for f in self.place.home.glob('plans/*/conflicts/**/*') if f.is_file())
        return [t for name, t in self.done
                if t not in (self.place.dir / 'd' / name).read_text(encoding='utf-8') and t not in kept]


class Committer(Somebody):
    """Edits the checkout and commits some of it."""

    def turn(self, token):
        repo = self.place.repo
        name = self.choose(self.r.choice(('theirs', 'dirty', 'untracked')), 'shared')
        self.write(repo / name, token)
        if name in ('theirs', 'shared') and self.r.random() < 0.6:
            # As a person would: a command that meets the other's lock is tried again, or not.
            if self.place.git('commit', '-q', '-m', token, '--', name, check=False) is not None:
                self.done.append(('commit', token))

    def lost(self):
        repo = self.place.repo
        kept = ''.join(f.read_text(encoding='utf-8') for f in self.place.home.glob('plans/*/conflicts/**/*') if f.is_file())
        history = self.place.git('log', '--format=%s', 'main').split()
        return [(name, t) for name, t in self.done
                if t not in (history if name == 'commit' else (repo / name).read_text(encoding='utf-8') + kept)]


class Writer(Somebody):
    """Of the SQLite file: every transaction leaves a row, and one more word in another."""

    def turn(self, token):
        db = self.place.database()
        try:
            with db:
                db.execute('begin immediate')
                db.execute('insert into log values (?)', (token,))
                db.execute('update t set v = v || ? where id = ?', (token, self.choose(2, 1)))
            self.done.append(token)
        except sqlite3.OperationalError as why:
            need('locked' in str(why), f'sqlite: {why}')
        finally:
            db.close()

    def read(self):
        db = self.place.database()
        try:
            need(db.execute('pragma integrity_check').fetchone() == ('ok',), 'the SQLite file is damaged')
            return {r[0] for r in db.execute('select token from log')}, dict(db.execute('select id, v from t').fetchall())
        finally:
            db.close()

    def lost(self):
        log, rows = self.read()
        return [t for t in self.done if t not in log or t not in rows[1] + rows[2]]


class Transactor(Somebody):
    """Of the database: the same, at any isolation level, in transactions that are given up when they wait too
    long, and in prepared ones that stay a while."""

    def turn(self, token):
        prepared = self.r.random() < 0.1
        end = f"prepare transaction '{token}'" if prepared else 'commit'
        sql = f"set lock_timeout = '{self.r.choice((5, 50, 500))}ms'; begin isolation level " \
              f"{self.r.choice(('read committed', 'repeatable read', 'serializable'))}; insert into log values ('{token}'); " \
              f"update t set v = v || '{token}' where id = {self.choose(2, 1)}; {end};"
        done = subprocess.run([binary('psql'), '-XqAt', '-v', 'ON_ERROR_STOP=1', '-h', str(self.place.cluster.socket), '-U', 'app',
                               '-d', 'shop'], input=sql, capture_output=True, text=True, check=False)
        if done.returncode == 0 and prepared:
            self.ended.wait(self.r.random() * 0.1)
            self.place.cluster.sql(f"commit prepared '{token}'")
        if done.returncode == 0:
            self.done.append(token)
        else:
            need('lock timeout' in done.stderr or 'could not serialize' in done.stderr or 'deadlock' in done.stderr,
                 f'psql: {done.stderr}')

    def read(self):
        return set(self.place.cluster.sql('select token from log').split()), \
            {int(i): v for i, v in (line.split('|') for line in self.place.cluster.sql('select id, v from t').split())}

    def lost(self):
        log, rows = self.read()
        return [t for t in self.done if t not in log or t not in rows[1] + rows[2]]


# ---- a round ----

class Round:
    def __init__(self, place, seed):
        self.place, self.r = place, random.Random(seed)
        # In most rounds they keep out of each other's way: else there would be little but conflicts.
        shared = {kind: self.r.random() < 0.15 for kind in KINDS}
        self.others = {kind: who(place, f'{seed}{kind}', shared[kind])
                       for kind, who in zip(KINDS, (Editor, Committer, Writer, Transactor))}
        self.touched = [kind for kind in KINDS if self.r.random() < 0.85] or ['git']
        self.both = {kind: shared[kind] and self.r.random() < 0.7 for kind in KINDS}

    def script(self):
        steps = {
            'dir': f'echo ours >>d/{"shared" if self.both["dir"] else "f"}; mkdir d/new; echo ours >d/new/file',
            # The others' locks are seen inside, as their files are; what git says of them then helps.
            'git': 'g() { until git "$@" 2>/dev/null; do find .git -name "*.lock" -delete 2>&1 | true; done; }; cd repo; sed -i s/^5$/ours/ file; '
                   + ('echo ours >>shared; ' if self.both['git'] else '')
                   + f'g commit -qm ours -- file {"shared" if self.both["git"] else ""}; g branch ours; echo ours >ours; '
                   'g add ours; cd ..',
            'sqlite': 'sqlite3 lite.db "insert into log values (\'ours\'); '
                      + ('update t set v = v || \'ours\' where id = 1;' if self.both['sqlite'] else '') + '"',
            'postgres': 'psql -Xqv ON_ERROR_STOP=1 -c "insert into log values (\'ours\'); '
                        + ('update t set v = v || \'ours\' where id = 1;' if self.both['postgres'] else '') + '"'}
        return 'set -e; ' + '; '.join(steps[kind] for kind in self.touched)

    def work(self):
        """True when the plan's command succeeded: somebody may have been at a row first."""
        done = self.place.atoll('exec', 'p', '--', 'sh', '-c', self.script())
        if done.code == 0:
            return True
        need('could not serialize' in done.all and self.both['postgres'], f'exec: {done}')
        return False

    def found(self):
        """Which of the touched resources have the plan's work: every trace of it, or none."""
        place, has = self.place, {}
        text = (place.dir / 'd' / ('shared' if self.both['dir'] else 'f')).read_text(encoding='utf-8')
        has['dir'] = {'ours' in text.split(), (place.dir / 'd/new/file').exists()}
        has['git'] = {'ours' in place.git('log', '--format=%s', 'main').split(), 'ours' in place.git('show', 'main:file'),
                      'ours' in (place.repo / 'file').read_text(), (place.repo / 'ours').exists(),
                      place.git('rev-parse', '-q', '--verify', 'refs/heads/ours', check=False) is not None,
                      'ours' in place.git('ls-files').split()}
        for kind in ('sqlite', 'postgres'):
            log, rows = self.others[kind].read()
            has[kind] = {'ours' in log} | ({'ours' in rows[1]} if self.both[kind] else set())
        return {kind: has[kind] for kind in self.touched}

    def judge(self, code):
        states = self.found()
        seen = set().union(*states.values())
        need(len(seen) == 1, f'exit {code}, and neither all nor nothing: {states}')
        need(code != OK or seen == {True}, f'committed, and not there: {states}')
        need(code in (OK, KILLED, IN_DOUBT) or seen == {False}, f'exit {code}, and there: {states}')
        return seen == {True}

    def nothing_lost(self, when):
        for kind, who in self.others.items():
            need(not who.failure, f'{kind}: {who.failure}')
            need(not who.lost(), f'{when}: of {kind} was lost: {who.lost()}')

    def sound(self):
        place = self.place
        bad = place.git('fsck', '--no-dangling').strip()
        left = [f for pattern in ('*.lock', '*.keep') for f in (place.repo / '.git').rglob(pattern)]
        need(not bad and not left, f'fsck: {bad}, left: {left}')
        same(place.prepared(), [], 'prepared transactions')

    def commit(self):
        """The exit status of the commit, or KILLED."""
        how = self.r.choice(('live', 'live', 'point', 'time', 'time'))
        env = dict(self.place.env)
        if how == 'point':
            env['ATOLL_CRASHPOINT'] = self.r.choice(POINTS)
        with subprocess.Popen([os.environ['ATOLL'], 'commit', 'p'], cwd=self.place.dir, env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            if how == 'time':
                time.sleep(self.r.random() ** 2 * 0.25)
                child.kill()
            said, _ = child.communicate(timeout=120)
        need(child.returncode in (OK, FAILED, CONFLICT, REFUSED, BUSY, IN_DOUBT, KILLED), f'commit: exit {child.returncode}: {said}')
        self.said = said
        return child.returncode

    def settle(self):
        """Recovers, while the others go on; what cannot be settled now can be once they have gone."""
        if self.r.random() < 0.2:
            self.place.atoll('recover', ATOLL_CRASHPOINT=self.r.choice(('recover.announced', 'recover.applied', 'recover.done',
                                                                         'txn.apply.participant:2', 'git.commit.refs')))
        done = self.place.atoll('recover')
        need(done.code in (OK, BUSY, IN_DOUBT), f'recover: {done}')

    def together(self):
        for who in self.others.values():
            who.start()
        try:
            time.sleep(self.r.random() * 0.1)
            if not self.work():
                return None
            time.sleep(self.r.random() * 0.1)
            code = self.commit()
            if code in (KILLED, IN_DOUBT):
                self.settle()
            return code
        finally:
            for who in self.others.values():
                who.ended.set()
            for who in self.others.values():
                who.join()

    def undo(self):
        code = self.place.atoll('rollback', 'p', '--allow', 'partial').code
        need(code in (OK, CONFLICT), f'rollback: exit {code}')
        states = {kind: seen for kind, seen in self.found().items() if kind != 'postgres'}
        seen = set().union(*states.values())
        same(seen - {code == CONFLICT}, set(), f'rollback, exit {code}: {states}')

    def run(self):
        self.place.begin()
        code = self.together()
        if code is None:
            self.nothing_lost('not committed')
            return 'not worked'
        self.place.must('recover')
        there = self.judge(code)
        self.nothing_lost(f'commit, exit {code}')
        self.sound()
        if there and self.r.random() < 0.5:
            self.undo()
            self.nothing_lost('rollback')
            self.sound()
        return 'committed' if there else 'withdrawn'


def run_round(cluster, top, seed):
    """What became of it."""
    random.seed(seed)
    with Place(cluster, top) as place:
        one = Round(place, seed)
        try:
            came = one.run()
        except Exception as why:
            raise Broken(f'{type(why).__name__}: {why}; touched {one.touched}, both {one.both}, '
                         f'commit said {getattr(one, "said", None)!r}') from why
        place.must('stop', '--force', 'p')
        until(lambda: not place.holders(), 'a holder is left')
        return came


def run_rounds(who, count):
    seeds = [int(ONLY)] if ONLY else range(count)
    bad, seen = 0, {}
    top = tempfile.mkdtemp(prefix='atoll-outside-', dir='/var/tmp')
    os.chmod(top, 0o755)
    try:
        with Cluster(top) as cluster:
            for n in seeds:
                try:
                    came = run_round(cluster, top, f'{who}{n}')
                    seen[came] = seen.get(came, 0) + 1
                except Exception as why:  # pylint: disable=broad-except
                    bad += 1
                    print(f'# {who}, ATOLL_OUTSIDE_SEED={n}: ' + str(why).replace('\n', ' | ')[:3000], flush=True)
                if LONG and n % 50 == 49:
                    print(f'# {who}: {n + 1} rounds, {bad} bad, {seen}', flush=True)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f'# {who}: {len(seeds)} rounds, {bad} bad, {seen}', flush=True)
    # Both must happen, or nothing was shown.
    return 1 if bad or (not ONLY and not all(seen.get(k) for k in ('committed', 'withdrawn'))) else 0


def main():
    if len(sys.argv) > 1:
        sys.exit(run_rounds(sys.argv[1], int(sys.argv[2])))
    users = [('root', []), ('user', ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'])]
    if os.geteuid() != 0:
        users = [('user', [])]
    print(f'1..{len(users)}', flush=True)
    running = [(who, subprocess.Popen([*wrap, sys.executable, __file__, who, str(ROUNDS[who])], text=True, stdout=subprocess.PIPE))
               for who, wrap in users]
    failed = False
    for number, (who, child) in enumerate(running, 1):
        said, _ = child.communicate()
        failed = failed or child.returncode != 0
        print(f'{"ok" if child.returncode == 0 else "not ok"} {number} - atm_01 rounds with others at work, {who}\n{said}', end='',
              flush=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
