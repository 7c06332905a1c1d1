# SPDX-License-Identifier: Apache-2.0
"""Programs that the project did not write do the same work inside a plan as outside: the same output, the same
exit status, the same tree after the commit; and after the rollback the tree is the one before.

    programs.py                the short half, as root and as an ordinary user (without root: only as the latter)
    programs.py NAME...        these rows
    programs.py --control ...  both runs outside: what differs then is the row's fault, not the sandbox's

ATOLL_LONG=1 runs both halves. A row (row.py) is run twice at the same path, on equal trees, so that nothing has to
be replaced in what it prints or writes. Times later than the beginning of the run are all taken for "now"; earlier
ones were set by the program and must be equal.
"""

import argparse
import difflib
import fnmatch
import functools
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import archives
import build
import databases
import editors
import files
import languages
import shells
import tools
import versions
from row import Row

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from expect import Broken, need  # noqa: E402

ROWS = [row for module in (archives, build, databases, editors, files, languages, shells, tools, versions)
        for row in module.ROWS]
LONG = os.environ.get('ATOLL_LONG') == '1'
SOURCE = Path(os.environ['ATOLL_SOURCE_ROOT'])
LIST = 'tools/deps-debian.txt'
NOBODY = 65534
PLAN = 'of-a-row'  # no path has that name
SECONDS = 600
# Short enough for a row that loops to be read, long enough for a compiler's first error.
SHOWN = 30
HOUR = 3600 * 10**9


# ---- trees ----

class Tree:
    """Every entry below ROOT: what must be equal, as one line of text for each."""

    def __init__(self, root, began, varying='', links=True, timeless=()):
        self.root, self.began, self.varying, self.links = os.fsencode(root), began, varying.split(), links
        self.timeless = timeless
        self.names = {}
        self.found = sorted(self.walk(b''))
        for name, st in self.found:
            self.names.setdefault(st.st_ino, []).append(name)

    def walk(self, name):
        path = os.path.join(self.root, name)
        st = os.lstat(path)
        yield name, st
        if stat.S_ISDIR(st.st_mode):
            for entry in os.listdir(path):
                yield from self.walk(os.path.join(name, entry))

    def content(self, name, st):
        path = os.path.join(self.root, name)
        if stat.S_ISLNK(st.st_mode):
            return repr(os.readlink(path))
        if stat.S_ISDIR(st.st_mode):
            return ''
        if not stat.S_ISREG(st.st_mode):
            return f'device {st.st_rdev}'
        if any(fnmatch.fnmatch(os.fsdecode(name), pattern) for pattern in self.varying):
            return 'varying'
        with open(path, 'rb') as file:
            digest = hashlib.file_digest(file, 'sha256').hexdigest()[:16]
        holes = ', with holes' if st.st_size > 1 << 20 and st.st_blocks * 512 < st.st_size // 2 else ''
        return f'{st.st_size} bytes {digest}{holes}'

    def attributes(self, name, st):
        path = os.path.join(self.root, name)
        return '' if stat.S_ISLNK(st.st_mode) else ' '.join(
            f'{a}={os.getxattr(path, a).hex()}' for a in sorted(os.listxattr(path)))

    def lines(self, inodes=False):
        for name, st in self.found:
            when = 'now' if not inodes and st.st_mtime_ns >= self.began else st.st_mtime_ns
            if name in self.timeless:
                when = ''
            links = [os.fsdecode(n) for n in self.names[st.st_ino]]
            yield f'{os.fsdecode(name) or "."!r}: {stat.filemode(st.st_mode)} {st.st_uid}:{st.st_gid} {when} ' \
                  f'{self.content(name, st)} {self.attributes(name, st)}' \
                  f'{" one file: " + repr(links) if self.links and len(links) > 1 else ""}{f" inode {st.st_ino}" if inodes else ""}'


def differences(title, want, got):
    lines = list(difflib.unified_diff(list(want), list(got), 'outside', 'inside', lineterm='', n=0))
    if not lines:
        return []
    return [f'{title}:'] + lines[:SHOWN] + ([f'... and {len(lines) - SHOWN} lines more'] if len(lines) > SHOWN else [])


# ---- one row ----

def begin_time():
    """As the coarsest program would write it: zip knows every other second."""
    return time.time_ns() - 2 * 10**9


# What atoll itself says after a command that wrote below the home.
REPORT = 'atoll: private to the plan, not committed: '


class Run:
    def __init__(self, done, row):
        self.status = done.returncode
        self.said = {name: re.sub(row.hidden, '*', text.decode(errors='backslashreplace')).splitlines()
                     if row.hidden else text.decode(errors='backslashreplace').splitlines()
                     for name, text in (('output', done.stdout), ('errors', done.stderr))}
        self.said['errors'] = [line for line in self.said['errors'] if not line.startswith(REPORT)]


def age(root):
    """Makes what was just made an hour older: the times of the two runs are later by a second alone."""
    limit = time.time_ns() - HOUR
    for folder, _, files in os.walk(root, topdown=False):
        for path in [os.path.join(folder, name) for name in files] + [folder]:
            if os.lstat(path).st_mtime_ns > limit:
                os.utime(path, ns=(limit, limit), follow_symlinks=False)


class Trial:
    """A row as one user, in a directory of its own."""

    def __init__(self, row, who, top):
        self.row, self.top, self.work, self.home = row, top, top / 'work', top / 'home'
        self.user = who == 'user' and os.geteuid() == 0
        self.env = {'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': str(self.home),
                    'LC_ALL': 'C.UTF-8', 'TZ': 'UTC', 'TERM': 'dumb', 'SHELL': '/bin/sh', 'USER': who, 'LOGNAME': who,
                    'SOURCE_DATE_EPOCH': '1700000000', 'DEBIAN_FRONTEND': 'noninteractive'}

    def call(self, argv, cwd=None, **env):
        down = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] if self.user else []
        with subprocess.Popen([*down, *argv], cwd=cwd or self.top, env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
            try:
                out, err = child.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                raise Broken(f'{argv[:3]}: no end after {SECONDS} s') from None
        return subprocess.CompletedProcess(argv, child.returncode, out, err)

    def must(self, *argv, cwd=None):
        done = self.call(argv, cwd)
        need(done.returncode == 0, f'{" ".join(map(str, argv[:4]))}: exit {done.returncode}: '
                                   f'{(done.stdout + done.stderr).decode(errors="replace")[-2000:]}')

    def atoll(self, *words):
        store = {name: os.environ[name] for name in os.environ if name.startswith(('ASAN_', 'UBSAN_'))}
        return self.call([os.environ['ATOLL'], *words], self.work, ATOLL_HOME=str(self.top / 'store'), NO_COLOR='1', **store)

    def succeed(self, *words):
        done = self.atoll(*words)
        need(done.returncode == 0, f'atoll {" ".join(words)}: exit {done.returncode}: {done.stderr.decode(errors="replace")}')

    def prepare(self):
        for folder in (self.work, self.home):
            folder.mkdir()
            if self.user:
                os.chown(folder, NOBODY, NOBODY)
        if self.user:
            os.chown(self.top, NOBODY, NOBODY)
        self.must('sh', '-euc', 'umask 022\n' + self.row.begin, cwd=self.work)
        age(self.work)
        self.must('cp', '-a', 'work', 'before')
        self.folders = {name for name, st in Tree(self.work, 0).found if stat.S_ISDIR(st.st_mode)}

    def script(self):
        return ['sh', '-euc', 'umask 022\n' + self.row.script]

    def tree(self, began):
        # What came into a directory and went again is no change: docs/caveats.md, "What counts as a change".
        return list(Tree(self.work, began, self.row.varying, not self.row.splits, self.folders).lines())

    def outside(self, kept):
        """Runs it in work, which is then called KEPT, and work is the tree of before again."""
        began = begin_time()
        done = Run(self.call(self.script(), self.work), self.row)
        tree = self.tree(began)
        self.work.rename(self.top / kept)
        self.must('cp', '-a', 'before', 'work')
        shutil.rmtree(self.home)
        self.home.mkdir()
        if self.user:
            os.chown(self.home, NOBODY, NOBODY)
        return done, tree

    def inside(self):
        began = begin_time()
        was = list(Tree(self.work, 0).lines(inodes=True))
        self.succeed('start', PLAN, '--dir', '.')
        done = Run(self.atoll('exec', PLAN, '--', *self.script()), self.row)
        self.succeed('commit', PLAN, *(w for name in self.row.allow.split() for w in ('--allow', name)))
        tree = self.tree(began)
        self.succeed('rollback', PLAN, '--yes')
        now = list(Tree(self.work, 0).lines(inodes=True))
        self.succeed('stop', PLAN, '--yes')
        return done, tree, differences('the tree after the rollback', was, now) + \
            differences('the home directory', [], os.listdir(self.home))

    def compare(self, control):
        self.prepare()
        want, wanted = self.outside('outside')
        need(want.status == self.row.status, f'outside: exit {want.status}, the row says {self.row.status}: ' +
             '\n'.join((want.said['output'] + want.said['errors'])[-SHOWN:]))
        need(any(want.said.values()) or wanted != self.tree(begin_time()), 'the row does nothing')
        got, tree, complaints = (*self.outside('again'), []) if control else self.inside()
        if got.status != want.status:
            complaints.append(f'exit status: outside {want.status}, inside {got.status}')
        for stream, lines in want.said.items():
            complaints += differences(stream, lines, got.said[stream])
        return complaints + differences('the tree after the commit', wanted, tree)


@functools.cache
def installed():
    """All packages, and what they stand for."""
    done = subprocess.run(['dpkg-query', '-W', '-f=${db:Status-Status} ${Package}, ${Provides}\n'], check=True,
                          capture_output=True, text=True)
    return {word.split()[0] for line in done.stdout.splitlines() if line.startswith('installed ')
            for word in line.removeprefix('installed ').split(', ') if word.strip()}


def attempt(row, who, control=False):
    """What differs, as lines; or the reason why it could not be tried, as text."""
    missing = set(row.packages.split()) - installed()
    if missing:
        return f'not installed: {" ".join(sorted(missing))}'
    top = Path(tempfile.mkdtemp(prefix='atoll-foreign-', dir='/var/tmp'))
    top.chmod(0o755)
    try:
        return Trial(row, who, top).compare(control)
    except Broken as broken:
        return str(broken).splitlines()
    except Exception:  # pylint: disable=broad-except  # a row that cannot run has failed, too
        return traceback.format_exc().splitlines()
    finally:
        subprocess.run(['chmod', '-R', 'u+rwX', top], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)


# ---- the table and the harness themselves ----

SEES = Row('control', '', '''
if [ -n "${ATOLL_PLAN-}" ]; then echo inside; echo inside >&2; echo x >content; chmod 600 mode; ln f g; touch -d @5 when
setfattr -n user.a -v b attribute; ln -s f link; mkdir made; end=3; else cp f g; mkdir made; chmod 700 made; ln -s g link; fi
exit ${end-0}
''', 'touch f content mode when attribute')
SEEN = ('exit status', 'output', 'errors', "'content'", "'mode'", "'g'", "'when'", "'attribute'", "'link'", "'made'")


def check_control():
    """The harness sees every kind of difference that it is to see."""
    told = '\n'.join(attempt(SEES, 'user'))
    return [f'not seen: {what}: {told}' for what in SEEN if what not in told]


def check_lists():
    """Every package of a row is in the list that its half installs."""
    text = re.sub('#.*', '', (SOURCE / LIST).read_text(encoding='utf-8'))
    for_tests, for_checks = (set(part.split()) for part in (text.partition('[check]')[0], text))
    complaints = [f'{row.name}: {name} is not in {LIST}' for row in ROWS for name in row.packages.split()
                  if name not in (for_tests if row.short else for_checks)]
    names = [row.name for row in ROWS]
    return complaints + [f'two rows: {name}' for name in set(names) if names.count(name) > 1]


# ---- all rows ----

def report(number, name, told):
    skipped = f' # SKIP {told}' if isinstance(told, str) else ''
    print(f'{"not ok" if told and not skipped else "ok"} {number} - {name}{skipped}')
    for line in [] if skipped else told:
        print(f'# {line}')
    sys.stdout.flush()
    return bool(told) and not skipped


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--control', action='store_true')
    p.add_argument('--as', dest='who', choices=('root', 'user'))
    p.add_argument('--jobs', type=int, default=os.cpu_count())
    p.add_argument('names', nargs='*')
    options = p.parse_args()
    known = {row.name for row in ROWS}
    need(set(options.names) <= known, f'no such row: {sorted(set(options.names) - known)}')
    rows = [row for row in ROWS if (row.name in options.names if options.names else row.short or LONG)]
    able = ('root', 'user') if os.geteuid() == 0 else ('user',)
    trials = [(row, who) for row in rows for who in able if who in row.users and options.who in (None, who)]
    checks = [] if options.names else [check_lists, check_control]
    print(f'1..{len(trials) + len(checks)}', flush=True)
    bad = 0
    for number, check in enumerate(checks, 1):
        bad += report(number, f'foreign_{check.__name__.removeprefix("check_")}', check())
    with ThreadPoolExecutor(options.jobs) as pool:
        told = pool.map(lambda t: attempt(*t, options.control), trials)
        for number, ((row, who), lines) in enumerate(zip(trials, told), 1 + len(checks)):
            bad += report(number, f'foreign_{row.name}_as_{who}', lines)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
