# SPDX-License-Identifier: Apache-2.0
"""The digest of a diff, with the command as people use it and every kind of resource: it is another one after
each change, the same again where the diff is, and a commit with any other one is refused and changes nothing.

    digest.py                 as whoever starts it
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from kinds import Everything, World  # noqa: E402

GIT = 'git -c user.name=a -c user.email=a@b'
DATES = 'export GIT_AUTHOR_DATE="1700000000 +0000" GIT_COMMITTER_DATE="1700000000 +0000"; '
STALE = 3

# Each way and back again: what is done, and what undoes it.
FILES = [
    ('echo two >f', 'echo new >f'), ('chmod 600 f', 'chmod 644 f'), ('echo x >n', 'rm n'), ('ln -s a l', 'rm l'),
    ('mkdir -p x/y; echo z >x/y/z', 'rm -r x'),
]
KINDS = {
    'overlay': ('d', ['--dir', 'd'], 'echo new >f', FILES),
    'copy': ('d', ['--dir', 'd', '--strategy', 'copy'], 'echo new >f', FILES),
    'git': ('repo', ['--git', 'repo'], 'echo new >file',
            [('echo x >n', 'rm n'), ('git branch b', 'git branch -qD b'), ('git tag t', 'git tag -d t >&2'),
             (DATES + f'{GIT} commit -qam c', 'git reset -q --mixed HEAD~1'), ('git add file', 'git reset -q')]),
    'worktree': ('repo', ['--git', 'repo', '--strategy', 'worktree'], 'echo new >file',
                 [('echo x >n', 'rm n'), ('git branch b', 'git branch -qD b'),
                  (DATES + f'{GIT} commit -qam c', 'git reset -q --mixed HEAD~1')]),
    'sqlite': ('.', ['--sqlite', 'lite.db'], 'sqlite3 lite.db "insert into t values (\'new\')"',
               [('sqlite3 lite.db "insert into t values (\'x\')"', 'sqlite3 lite.db "delete from t where v = \'x\'"'),
                ('sqlite3 lite.db "update t set v = \'newer\' where v = \'new\'"',
                 'sqlite3 lite.db "update t set v = \'new\' where v = \'newer\'"'),
                ('sqlite3 lite.db "create table u (a)"', 'sqlite3 lite.db "drop table u"')]),
}


STAMP = 'touch -h -d @1500000000'
PIN = {'d': f'find . ! -type d -exec {STAMP} {{}} +', 'repo': f'for f in file n; do [ ! -e $f ] || {STAMP} $f; done', '.': ':'}


def digest(w):
    out = w.must('diff', 'p', '--digest').out
    need(len(out) == 65 and out.endswith('\n'), f'one line of 64 digits: {out!r}')
    return out.strip()


def show(w):
    """What a reviewer sees, contents and all; and its digest."""
    diff = w.json('diff', 'p', '--patch', '--digest')
    for change in diff['changes']:
        for side in ('old', 'new'):
            (change[side] or {}).pop('links', None)
    return json.dumps(diff['changes'], sort_keys=True), diff['digest']


class Place:
    """The parts of kinds.World that need no server."""

    def __init__(self, top):
        self.dir = Path(tempfile.mkdtemp(dir=top))
        self.home = self.dir / 'home'
        (self.dir / 'd').mkdir()
        (self.dir / 'd/f').write_text('old\n', encoding='utf-8')
        self.env = {**os.environ, 'ATOLL_HOME': str(self.home), 'NO_COLOR': '1', 'LC_ALL': 'C.UTF-8'}
        subprocess.run(f"git init -q -b main repo; echo old >repo/file; cd repo; git add file; {GIT} commit -qm old; cd ..; "
                       "sqlite3 lite.db \"create table t(v text primary key); insert into t values ('old')\"",
                       shell=True, check=True, cwd=self.dir)

    atoll, must, fails, json, plans, cwd = World.atoll, World.must, World.fails, World.json, World.plans, World.cwd


def outside(w):
    """All there is to see of the resources."""
    return subprocess.run('cat d/f; find d repo -printf "%p %m %s %T@ %C@\\n" | grep -v /index | sort; sqlite3 lite.db .dump; '
                          'git -C repo for-each-ref; git -C repo log --format=%H --all', shell=True, check=False, cwd=w.dir,
                          capture_output=True, text=True).stdout


def one_kind(top, name):
    where, how, work, ways = KINDS[name]
    w = Place(top)
    w.must('start', 'p', *how)
    nothing = digest(w)

    def run(script):
        # Files that a command wrote again are the same to a reader of the diff; only their times are others.
        w.must('exec', 'p', '--', 'sh', '-ec', f'cd {where}; {script}; {PIN[where]}')

    run(work)
    view, now = show(w)
    same((digest(w), 'digest' in w.json('diff', 'p')), (now, False), 'by itself, and only when asked for')
    seen = {view: now}
    need(nothing not in seen.values(), 'no changes')
    for there, back in ways:
        for script in (there, back):
            run(script)
            view, now = show(w)
            same(seen.setdefault(view, now), now, f'{script}: the same diff, another digest')
            same(len(set(seen.values())), len(seen), f'{script}: another diff, the same digest')
    need(len(seen) > len(ways), 'none of it changed the diff')
    before = outside(w)
    old = digest(w)
    run(ways[0][0])
    done = w.fails(STALE, 'commit', 'p', '--if-digest', old)
    need('not those that were looked at' in done.err and 'atoll diff p' in done.err, f'{done}')
    same(outside(w), before, 'a refused commit')
    w.must('commit', 'p', '--if-digest', digest(w))
    need(outside(w) != before, 'committed')
    same(digest(w), nothing, 'nothing is left')
    w.must('stop', 'p')


def everything_at_once(top):
    """With a database server, all kinds in one plan."""
    settings = {} if os.geteuid() else {'max_prepared_transactions': 20}
    folder = Path(tempfile.mkdtemp(dir=top))
    folder.chmod(0o755)
    with Cluster(folder, **settings) as cluster, World(cluster, top) as w:
        e = Everything(w)
        nothing = digest(w)
        e.work()
        seen = [nothing, digest(w)]
        same(digest(w), seen[-1], 'asked again')
        for sql in ("insert into t values (7, 'y')", "update t set v = 'z' where id = 7", 'create table u (i int)',
                    "delete from t where id = 7"):
            w.sql(sql)
            seen.append(digest(w))
        same(len(set(seen)), len(seen), f'each is another: {seen}')
        same(w.fails(STALE, 'commit', 'p', '--if-digest', seen[1]).code, STALE, 'stale')
        same(e.states(), {'old'}, 'nothing was changed')
        w.must('commit', 'p', '--if-digest', seen[-1])
        same(e.states(), {'new'}, 'committed')
        same(digest(w), nothing, 'nothing is left')


def main():
    failed = 0
    tests = [(f'dig_{name}', lambda top, name=name: one_kind(top, name)) for name in KINDS]
    tests.append(('dig_all_kinds_with_postgres', everything_at_once))
    print(f'1..{len(tests)}')
    with tempfile.TemporaryDirectory(prefix='atoll-digest.', dir='/var/tmp') as top:
        os.chmod(top, 0o755)
        for n, (name, test) in enumerate(tests, 1):
            try:
                test(top)
                print(f'ok {n} - {name}', flush=True)
            except (Broken, subprocess.SubprocessError, AssertionError) as e:
                failed += 1
                print(f'not ok {n} - {name}', flush=True)
                print('\n'.join(f'# {line}' for line in str(e).splitlines()), flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
