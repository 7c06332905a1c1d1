# SPDX-License-Identifier: Apache-2.0
"""Plans on real filesystems: ext4 (journalled), xfs, btrfs on loop images, and tmpfs; store on the
same filesystem and on another; roots that are mount points, roots in a place that is not ours,
mounts and subvolumes below roots, and directories with projects. Needs root; everything is done as root and as an ordinary user. What it mounts
is in a namespace of its own and ends with it."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
AS_USER = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups']
SIZES = {'ext4': 64, 'xfs': 320, 'btrfs': 160}
MKFS = {'ext4': ['mkfs.ext4', '-q', '-F'], 'xfs': ['mkfs.xfs', '-q', '-f'], 'btrfs': ['mkfs.btrfs', '-q', '-f']}


class Broken(Exception):
    pass


def sh(script, cwd='/', who='root', check=True):
    done = subprocess.run((AS_USER if who == 'user' else []) + ['sh', '-ec', script], cwd=cwd, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace')
    if check and done.returncode:
        raise Broken(f'{script!r} ended with {done.returncode}: {done.stderr}')
    return done.stdout


def listing(root):
    """What there is, without areas of ours."""
    return sh("find . -name '.atoll-*' -prune -o -printf '%p %y %#m %U %G %T@ %l\\n' | LC_ALL=C sort; "
              "find . -name '.atoll-*' -prune -o -type f -exec md5sum {} + | LC_ALL=C sort", cwd=root)


class Case:
    """One plan over ROOT with the store at HOME."""

    def __init__(self, who, strategy, root, home):
        self.who, self.strategy, self.root, self.home = who, strategy, Path(root), Path(home)

    def atoll(self, *argv, code=0, cwd=None, heard=False, **more):
        """What it printed; of a failure, or with HEARD, what it said."""
        env = dict(os.environ, ATOLL_HOME=str(self.home), HOME=str(self.home.parent), NO_COLOR='1', **more)
        done = subprocess.run((AS_USER if self.who == 'user' else []) + [ATOLL, *argv], cwd=cwd or self.root,
                              env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors='replace', timeout=300)
        if done.returncode != code:
            raise Broken(f'atoll {" ".join(argv[:6])}: exit {done.returncode}, not {code}: {done.stderr}')
        return done.stderr if code or heard else done.stdout

    def exec(self, script):
        return self.atoll('exec', 'p', '--', 'sh', '-ec', script)

    def notes(self, script):
        said = self.atoll('exec', 'p', '--json', '--', 'sh', '-ec', script)
        return json.loads(said.splitlines()[-1])['notes']

    def fill(self):
        sh("mkdir -p d/sub e; echo one >one; echo two >two; echo x >d/x; echo y >d/y; echo z >d/sub/z; "
           "ln -s one link; ln two hard; echo ro >ro; chmod 444 ro; "
           "touch -d '2001-02-03 04:05:06.123456789' one two d/x d/sub; touch -d 2002-02-02 d e .",
           cwd=self.root, who=self.who)

    def changes(self):
        return [(c['kind'], c['path']) for c in json.loads(self.atoll('diff', '--json', 'p'))['changes']]

    def there_and_back(self):
        """start, exec, diff, commit, rollback; a second batch; a conflict."""
        before = listing(self.root)
        self.atoll('start', 'p', '--dir', str(self.root), '--strategy', self.strategy)
        self.exec('echo more >>one; rm two; mkdir n; echo n >n/f; rm -r d; mkdir d; echo d >d/other; '
                  'mv e f; cat ro >/dev/null; rm link; ln -s d link; '
                  'touch -d 2011-11-11 one n/f n d/other d f .')
        if listing(self.root) != before:
            raise Broken('a command reached the original')
        got = self.changes()
        want = [('deleted', 'd/sub'), ('deleted', 'd/sub/z'), ('deleted', 'd/x'), ('deleted', 'd/y'),
                ('added', 'd/other'), ('deleted', 'e'), ('added', 'f'), ('changed', 'link'), ('added', 'n'),
                ('added', 'n/f'), ('changed', 'one'), ('deleted', 'two')]
        if sorted(got) != sorted(want):
            raise Broken(f'diff says {got}')
        self.atoll('commit', 'p', '--yes')
        sh('[ "$(cat one)" = "one\nmore" ]; [ ! -e two ]; [ "$(cat n/f)" = n ]; [ "$(ls d)" = other ]; '
           '[ -d f ]; [ ! -e e ]; [ "$(readlink link)" = d ]; [ "$(cat hard)" = two ]; [ "$(cat ro)" = ro ]; '
           'for e in . n n/f d d/other f; do [ "$(stat -c %Y "$e")" = "$(stat -c %Y one)" ]; done', cwd=self.root)
        self.exec('echo again >>one; rm -r n')
        self.atoll('commit', 'p', '--yes')
        self.atoll('rollback', 'p', '--yes')
        if listing(self.root) != before:
            raise Broken('after the rollback:\n' + diff(before, listing(self.root)))
        self.exec('[ "$(cat one)" = one ]; [ -e two ]; echo ours >>one')
        sh('echo theirs >>one', cwd=self.root, who=self.who)
        after = listing(self.root)
        self.atoll('commit', 'p', '--yes', code=3)
        if listing(self.root) != after:
            raise Broken('a conflict changed something')
        self.atoll('stop', 'p', '--yes', '--force')


def diff(a, b):
    a, b = set(a.splitlines()), set(b.splitlines())
    return '\n'.join([f'- {line}' for line in sorted(a - b)] + [f'+ {line}' for line in sorted(b - a)])


class Place:
    """Mounted filesystems below TOP; all in our own mount namespace."""

    def __init__(self, top):
        self.top, self.mounted = Path(top), []

    def mount(self, kind, name):
        at = self.top / name
        at.mkdir()
        at.chmod(0o755)
        if kind == 'tmpfs':
            sh(f'mount -t tmpfs -o size=64m tmpfs {at}')
        else:
            image = self.top / f'{name}.img'
            with open(image, 'wb') as file:
                file.truncate(SIZES[kind] << 20)
            subprocess.run(MKFS[kind] + [str(image)], check=True, stdout=subprocess.DEVNULL)
            sh(f'mount -o loop -t {kind} {image} {at}')
        self.mounted.append(at)
        return at

    def close(self):
        for at in reversed(self.mounted):
            sh(f'umount {at} || umount -l {at}', check=False)


def own(path, who, mode=0o755):
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    if who == 'user':
        os.chown(path, NOBODY, NOBODY)
    return path


def on_filesystem(place, kind, who, strategy, elsewhere):
    """Store on the same filesystem, and on another one."""
    at = place.mount(kind, 'fs')
    base = own(at / 'base', who)
    root = own(base / 'root', who)
    case = Case(who, strategy, root, own(place.top / 'far' if elsewhere else base, who) / 'home')
    case.fill()
    case.there_and_back()


def acls(root):
    """Those that name other users or groups, or are for new entries, with the modes."""
    return sh("find . -name '.atoll-*' -prune -o -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n -p", cwd=root)


def acls_of_others(place, kind, who, strategy):
    """What is edited keeps its ACL, be it in place, by a copy of the kernel or by a new file in its place; what a
    command sets for itself arrives; an undo gives all of it back."""
    at = place.mount(kind, 'fs')
    base = own(at / 'base', who)
    case = Case(who, strategy, own(base / 'root', who), own(base, who) / 'home')
    named = ['place', 'moved', 'sed', 'cp', 'times', 'linked']
    sh(f'for f in {" ".join(named)}; do echo a >$f; setfacl -m u:1234:rw,g:777:r,g::r $f; done; echo a >off; '
       'setfacl -m u:1234:rw,g::r off; mkdir d; setfacl -m u:1234:rwx,d:u:1234:rwx,d:g:777:r d; echo a >plain',
       cwd=case.root, who=who)
    before = acls(case.root)
    case.atoll('start', 'p', '--dir', str(case.root), '--strategy', strategy)
    notes = case.notes('echo b >>place; mv moved d/moved; sed -i s/a/b/ sed 2>/dev/null; cp -p cp new 2>/dev/null || true; echo b >>new; '
                       'mv new cp; touch -d 2001-01-01 times; ln linked more; echo n >d/new; setfacl -b off; '
                       'setfacl -m "u:$(id -u):r" plain')
    again = case.notes('true')
    if (who, strategy) == ('user', 'overlay') and not any('kept an ACL that names other users' in n for n in notes):
        raise Broken(f'nothing was said of the ACLs: {notes}')
    if any('kept an ACL' in n for n in again):
        raise Broken(f'said again: {again}')
    said = case.atoll('exec', 'p', '--', 'sh', '-ec', 'sed -i s/b/c/ sed 2>/dev/null', heard=True)
    if (who, strategy) == ('user', 'overlay') and 'atoll: 1 entry written anew has kept an ACL' not in said:
        raise Broken(f'nothing was said without --json: {said!r}')
    case.atoll('commit', 'p', '--yes')
    now = dict(part.split('\n', 1) for part in acls(case.root).split('# file: ') if part)
    was = dict(part.split('\n', 1) for part in before.split('# file: ') if part)
    for name in named:
        at_now = f'./d/{name}' if name == 'moved' else f'./{name}'
        if now[at_now] != was[f'./{name}']:
            raise Broken(f'{name}: {now[at_now]!r} where {was["./" + name]!r} is due')
    if now['./d'] != was['./d'] or ':1234:rwx' not in now['./d/new'] or '1234' in now['./off']:
        raise Broken(f'a directory and its new file, and one without: {now}')
    if f'user:{NOBODY if who == "user" else 0}:r--' not in now['./plain']:
        raise Broken(f'set by the command: {now["./plain"]}')
    case.atoll('rollback', 'p', '--yes')
    if acls(case.root) != before:
        raise Broken('after the rollback:\n' + diff(before, acls(case.root)))
    case.atoll('stop', 'p', '--yes', '--force')


def root_is_mount_point(place, kind, who, strategy):
    """The area lies inside the root then: neither seen nor committed, and gone in the end."""
    at = place.mount(kind, 'fs')
    own(at, who)
    sh('rm -rf lost+found', cwd=at)
    case = Case(who, strategy, at, own(place.top / 'far', who) / 'home')
    case.fill()
    case.atoll('start', 'look', '--dir', str(at), '--strategy', strategy)
    seen = case.atoll('exec', 'look', '--', 'ls', '-A')
    if 'atoll' in seen:
        raise Broken(f'the view shows the area: {seen}')
    case.atoll('stop', 'look', '--yes', '--force')
    case.there_and_back()
    left = [name for name in os.listdir(at) if name.startswith('.atoll')]
    if left:
        raise Broken(f'left in the root: {left}')


def parent_not_ours(place, kind, who, strategy):
    """An ordinary user's root in a directory he may not write to, store elsewhere."""
    at = place.mount(kind, 'fs')
    (at / 'locked').mkdir()
    root = own(at / 'locked/root', who)
    case = Case(who, strategy, root, own(place.top / 'far', who) / 'home')
    case.fill()
    case.there_and_back()
    left = [name for name in os.listdir(root) if name.startswith('.atoll')]
    if left:
        raise Broken(f'left in the root: {left}')


def mount_below(place, kind, who, strategy):
    """Shown as it is, only to be read; a commit leaves it alone."""
    at = place.mount(kind, 'fs')
    root = own(own(at / 'base', who) / 'root', who)
    case = Case(who, strategy, root, at / 'base/home')
    case.fill()
    below = own(root / 'mnt', who)
    sh(f'mount -t tmpfs -o size=1m,mode=777 tmpfs {below}')
    place.mounted.append(below)
    sh('echo inner >inner; chmod 666 inner', cwd=below, who=who)
    before = listing(root)
    if strategy == 'overlay' and who == 'user':
        # The kernel does not let an ordinary user cover mounts he did not make.
        case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy, code=6)
        case.atoll('start', 'p', '--dir', str(root))
        case.exec('echo more >>one')
        case.atoll('stop', 'p', '--yes', '--force')
        return
    case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
    if strategy == 'overlay':
        case.exec('[ "$(cat mnt/inner)" = inner ]; ! touch mnt/new 2>/dev/null; ! sh -c ">mnt/inner" 2>/dev/null')
    case.exec('echo more >>one; mkdir n')
    case.atoll('commit', 'p', '--yes')
    sh('[ "$(cat mnt/inner)" = inner ]; [ -d n ]; mountpoint -q mnt', cwd=root)
    case.atoll('rollback', 'p', '--yes')
    if listing(root) != before:
        raise Broken('after the rollback:\n' + diff(before, listing(root)))
    case.atoll('stop', 'p', '--yes', '--force')


def untouched(root):
    return sh("find . -name '.atoll-*' -prune -o -printf '%p %i %C@\\n' | LC_ALL=C sort", cwd=root)


def refused(case, why, hint):
    """Before the decision, and all is as it was."""
    before = untouched(case.root)
    said = case.atoll('commit', 'p', code=6)
    if why not in said or hint not in said or 'nothing was changed: prepare ' not in said:
        raise Broken(f'commit says {said}')
    if untouched(case.root) != before:
        raise Broken('what was refused changed something: ' + diff(before, untouched(case.root)))


def subvolume_below(place, who, strategy):
    """Nothing can be moved into it: that is found before the decision. As a whole it can go, and be a resource."""
    at = place.mount('btrfs', 'fs')
    root = own(own(at / 'base', who) / 'root', who)
    case = Case(who, strategy, root, at / 'base/home')
    case.fill()
    sh('btrfs -q subvolume create d/vol', cwd=root)
    own(root / 'd/vol', who)
    sh('echo v >v; mkdir in; echo in >in/in', cwd=root / 'd/vol', who=who)
    before = listing(root)
    case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
    for script in ('echo v >>d/vol/v', 'rm d/vol/v', 'mkdir d/vol/n', 'rm -r d/vol/in; echo x >d/vol/in/x || :'):
        case.exec('echo more >>one; ' + script)
        refused(case, "lies in 'd/vol', a subvolume of its own",
                f"atoll commit p --exclude '/d/vol/**' commits the rest; for a plan over it, it has to be a resource "
                f"of its own: --dir '{root}/d/vol'")
        case.atoll('commit', 'p', '--exclude', '/d/vol/**')
        sh('[ "$(cat one)" = "one\nmore" ]', cwd=root)
        case.atoll('rollback', 'p', '--yes')
        if listing(root) != before:
            raise Broken('after the rollback:\n' + diff(before, listing(root)))
    case.exec('rm -r d/vol')
    case.atoll('commit', 'p')
    sh('[ ! -e d/vol ]', cwd=root)
    case.atoll('rollback', 'p', '--yes')
    if listing(root) != before:
        raise Broken('after the rollback:\n' + diff(before, listing(root)))
    case.atoll('stop', 'p', '--yes', '--force')
    case.atoll('start', 'p', '--dir', str(root), '--dir', str(root / 'd/vol'), '--strategy', strategy)
    case.exec('echo more >>one; echo v >>d/vol/v; rm -r d/vol/in')
    case.atoll('commit', 'p')
    sh('[ "$(cat one d/vol/v)" = "one\nmore\nv\nv" ]; [ ! -e d/vol/in ]', cwd=root)
    case.atoll('rollback', 'p', '--yes')
    if listing(root) != before:
        raise Broken('after the rollback:\n' + diff(before, listing(root)))
    case.atoll('stop', 'p', '--yes', '--force')


def set_project(path, number):
    sh(f'chattr -p {number} {path}; chattr +P {path}')


def asks_links():
    """Can a link be asked for its project? file_getattr(2), since Linux 6.17."""
    return [int(part) for part in os.uname().release.split('-')[0].split('.')[:2]] >= [6, 17]


def projects(place, who, strategy):
    """A directory that gives a project id takes nothing with another: the work has the root's."""
    at = place.mount('xfs', 'fs')
    root = own(own(at / 'base', who) / 'root', who)
    case = Case(who, strategy, root, at / 'base/home')
    sh('ln -s nowhere early', cwd=root, who=who)
    set_project(root, 5)
    case.fill()
    case.there_and_back()
    given = {line.split()[0] for line in sh('lsattr -p one hard ro; lsattr -dp d', cwd=root).splitlines()}
    if given != {'5'}:
        raise Broken(f'projects {given}')
    own(root / 'other', who)
    set_project(root / 'other', 7)
    sh('mkdir free; echo o >other/o; echo odd >odd', cwd=root, who=who)
    sh('chattr -p 3 odd; chattr -P free; chattr -p 0 free; echo f >free/f', cwd=root)
    case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
    dir_hint = f"atoll commit p --exclude '/other/**' commits the rest; for a plan over it, it has to be a resource of " \
               f"its own: --dir '{root}/other'"
    for script, why, hint in (
            ('echo o >>other/o', "'other/o' cannot be moved to its directory", dir_hint),
            ('mkdir other/n', "'other/n' cannot be moved to its directory", dir_hint),
            ('ln -s o other/l', "'other/l' cannot be moved to its directory", dir_hint),
            ('rm other/o', "'other/o' cannot be set aside in ", dir_hint),
            ('rm free/f', "'free/f' cannot be set aside in ", "--exclude '/free/**' commits the rest"),
            ('rm odd', "'odd' has, or may have, another project id than its directory gives, 5", "--exclude '/odd'"),
            ('echo x >>odd', "'odd' has, or may have, another project id", "--exclude '/odd' commits the rest"),
            ('rm early', "'early' has, or may have, another project id", "--exclude '/early' commits the rest")):
        if script == 'rm early' and not asks_links():
            continue
        case.exec('echo more >>one; ' + script)
        refused(case, why, hint)
        case.atoll('reset', 'p')
    # One that is given later is not the work's.
    area = json.loads(case.atoll('show', '--json', 'p'))['sandboxes'][0]['area']
    case.exec('mkdir new; echo new >new/new')
    sh('chattr -p 6 .', cwd=root)
    refused(case, "'new' cannot be moved to its directory, which takes only what has its project id, 6",
            f"chattr -R -p 6 '{area}' and chattr -R +P '{area}' give it to the plan's work, then atoll commit p")
    sh(f'chattr -R -p 6 {area}', check=False)  # which complains of links
    sh(f'chattr -R +P {area}', check=False)
    case.atoll('commit', 'p')
    sh('[ "$(cat new/new)" = new ]', cwd=root)
    case.atoll('rollback', 'p', '--yes')
    case.atoll('stop', 'p', '--yes', '--force')
    sh('chattr -p 5 .', cwd=root)
    case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
    case.exec('echo more >>one; echo o >>other/o')
    case.atoll('commit', 'p', '--exclude', '/other/**')
    sh('[ "$(tail -n 1 one)" = more ]; [ "$(cat other/o)" = o ]', cwd=root)
    case.atoll('stop', 'p', '--yes', '--force')


def ovl_04_05_hung_mount_below(place, _kind, who, strategy):
    """OVL-04, OVL-05: what hangs is somebody else's mount below the root, for we mount nothing that
    could. Plans over other trees go on, and what waits for it ends with its time."""
    root = own(own(place.top / 'base', who) / 'root', who)
    other = own(place.top / 'base/other', who)
    case = Case(who, strategy, root, place.top / 'base/home')
    case.fill()
    below = own(root / 'mnt', who)
    ready = place.top / 'ready'
    tiny = subprocess.Popen(['/usr/bin/python3', Path(__file__).with_name('tiny-fuse.py'), str(below), str(ready)])
    try:
        place.mounted.append(below)
        for _ in range(3000):
            if ready.exists():
                break
            subprocess.run(['sleep', '.02'], check=True)
        if who == 'user':
            case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy, code=6)
            return
        case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
        case.atoll('start', 'q', '--dir', str(other), '--strategy', strategy)
        tiny.send_signal(19)
        case.atoll('exec', 'q', '--', 'sh', '-c', 'echo >f', cwd=other)
        case.atoll('commit', 'q', '--yes', cwd=other)
        case.atoll('exec', '--timeout', '1', 'p', '--', 'sleep', '30', code=124, cwd=place.top)
        # The supervisor looks at renames and at questions about writing before the command goes on.
        for call in ('access("mnt/x", os.W_OK)', 'rename("mnt/x", "mnt/y")'):
            case.atoll('exec', '--timeout', '1', 'p', '--', '/usr/bin/python3', '-c', f'import os; os.{call}', code=124)
        case.atoll('stop', 'q', '--yes', '--force', cwd=other)
    finally:
        tiny.send_signal(18)
        subprocess.run(['umount', str(below)], check=False)
        tiny.wait(60)
        place.mounted.remove(below)
    case.atoll('stop', 'p', '--yes', '--force')


def exchange(root, one, other):
    libc = ctypes.CDLL(None, use_errno=True)
    at, exchanged = -100, 2
    if libc.renameat2(at, os.fsencode(root / one), at, os.fsencode(root / other), exchanged) < 0:
        raise OSError(ctypes.get_errno(), 'renameat2')


# What somebody else does while a command makes its change, and whether that is a conflict. What he puts there is
# older than the plan.
SWAPS = (
    ('a directory, then something made in it', 'echo plan >>d/f; rm d/g',
     lambda r: sh('mv d d.old; mv z d; : >d/made', cwd=r), True),
    ('a directory, then something made and removed in it', 'rm -r d',
     lambda r: sh('mv d d.old; mv z d; : >d/made; rm d/made', cwd=r), True),
    ('two files, one for the other', 'echo plan >>f', lambda r: exchange(r, 'f', 'g'), True),
    ('two directories, one for the other', 'echo plan >>d/f', lambda r: exchange(r, 'd', 'z'), True),
    ('a directory of a name that the plan gives, too', 'mkdir n; echo plan >n/f', lambda r: sh('mv z n', cwd=r), True),
    ('a name beside files that the plan renames', 'echo plan >>f; mv f g; mv d/f d/g',
     lambda r: sh(': >other; : >d/other', cwd=r), False),
)


def der_03_swapped_by_somebody(place, kind, who):
    """OVL: by the times of what is there nobody sees that it is not what the view was made of."""
    at = place.mount(kind, 'fs')
    for number, (name, change, swap, conflicts) in enumerate(SWAPS):
        base = own(at / f'base{number}', who)
        case = Case(who, 'overlay', own(base / 'root', who), base / 'home')
        sh('mkdir d z; for i in f g d/f d/g z/f z/g; do echo $i >$i; done; sleep 0.02', cwd=case.root, who=who)
        case.atoll('start', 'p', '--dir', str(case.root), '--strategy', 'overlay')
        env = dict(os.environ, ATOLL_HOME=str(case.home), HOME=str(case.home.parent))
        with subprocess.Popen((AS_USER if who == 'user' else []) +
                              [ATOLL, 'exec', 'p', '--', 'sh', '-ec', f'{change}; echo done; read go'],
                              cwd=case.root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as command:
            said = command.stdout.readline()
            swap(case.root)
            command.stdin.write('go\n')
            command.stdin.close()
            if said != 'done\n' or command.wait() != 0:
                raise Broken(f'{name}: the command said {said!r}, and ended with {command.returncode}')
        before = listing(case.root)
        shown = case.atoll('diff', 'p')
        if ('conflict' in shown) != conflicts:
            raise Broken(f'{name}: the diff says {shown}')
        case.atoll('commit', 'p', '--yes', code=3 if conflicts else 0)
        if conflicts and listing(case.root) != before:
            raise Broken(f'{name}: {diff(before, listing(case.root))}')


# What one plan commits before the first command of another, and what that one does.
APART = (('echo 1 >one', 'echo 2 >two'), ('echo 1 >d/one', 'echo 2 >d/two'),
         ('echo 1 >one; echo 1 >d/one; echo 1 >d/e/one', 'echo 2 >d/e/two; rm d/e/f'))


def der_03_plans_apart(place, kind, who):
    """Different files of one directory are no conflict, also when a commit gave it its times."""
    at = place.mount(kind, 'fs')
    for number, (one, two) in enumerate(APART):
        base = own(at / f'base{number}', who)
        case = Case(who, 'overlay', own(base / 'root', who), base / 'home')
        sh('mkdir -p d/e; echo f >d/e/f; sleep 0.02', cwd=case.root, who=who)
        for plan in ('p', 'q'):
            case.atoll('start', plan, '--dir', str(case.root), '--strategy', 'overlay')
        for plan, change in (('p', one), ('q', two)):
            case.atoll('exec', plan, '--', 'sh', '-ec', change)
            if 'conflict' in (shown := case.atoll('diff', plan)):
                raise Broken(f'{change}: the diff says {shown}')
            case.atoll('commit', plan, '--yes')


def der_03_both_make(place, kind, who):
    """What a commit will name the diff names."""
    at = place.mount(kind, 'fs')
    base = own(at / 'base', who)
    case = Case(who, 'overlay', own(base / 'root', who), base / 'home')
    for plan in ('p', 'q'):
        case.atoll('start', plan, '--dir', str(case.root), '--strategy', 'overlay')
        case.atoll('exec', plan, '--', 'sh', '-ec', f'mkdir n; echo {plan} >n/c')
    case.atoll('commit', 'p', '--yes')
    if 'n/  (conflict: created)' not in (shown := case.atoll('diff', 'q')):
        raise Broken(f'the diff says {shown}')
    case.atoll('commit', 'q', '--yes', code=3)


def der_03_large_clones_are_not_read(place, kind):
    """Where a copy shares its blocks, start reads no large file for the record of what it holds."""
    at = place.mount(kind, 'fs')
    case = Case('root', 'copy', at / 'root', at / 'home')
    case.root.mkdir()
    for name, size in (('large', 1 << 20), ('small', 1 << 10)):
        (case.root / name).write_bytes(b'x' * size)
    case.atoll('start', 'p', '--dir', str(case.root), '--strategy', 'copy')
    case.exec('echo new >large; echo new >small')
    sh('sleep 0.02; touch large small', cwd=case.root)
    said = case.atoll('commit', 'p', '--yes', code=3)
    conflicts = sorted(Path(line.split(': ')[1]).name for line in said.splitlines() if 'conflict: ' in line)
    if conflicts != ['large']:
        raise Broken(f'conflicts: {conflicts}: {said}')


def fill_up(folder):
    """Not a block is left on FOLDER's filesystem, once what it was about to write is written."""
    with open(folder / 'filler', 'wb', buffering=0) as filler:
        for size in (1 << 20, 1 << 12) * 3:
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                sh(f'sync -f {folder}')


LONG = 'x' * 80
DECIDED, UNDO_DECIDED, REDO_DECIDED = 'txn.after-decision', 'txn.undo.after-decision', 'txn.redo.after-decision'


def full_after_decision(place, kind, strategy, how):
    """It died right after it had decided, and then the disk became full: what recovery needs was set aside. The store
    is elsewhere."""
    root = own(place.mount(kind, 'fs') / 'root', 'root')
    case = Case('root', strategy, root, own(place.top / 'far', 'root') / 'home')
    sh(f'for d in $(seq 20); do mkdir d$d; (cd d$d; seq 200 | sed s/^/{LONG}/ | xargs touch); done', cwd=root)
    case.atoll('config', 'set', 'exec.min-free', '0')
    case.atoll('start', 'p', '--dir', str(root), '--strategy', strategy)
    case.exec(f'cd "$ATOLL_RESOURCE_1"; for f in d1/* d2/* d3/* d4/*; do echo new >$f; done; '
              f'mkdir n; cd n; seq 1000 | sed s/^/{LONG}/ | xargs touch')
    before = listing(root)
    words, point = {'commit': (['commit', 'p'], DECIDED),
                    'part': (['commit', 'p', str(root / 'd1'), str(root / 'n')], DECIDED),
                    'undo': (['rollback', 'p'], UNDO_DECIDED), 'keep': (['rollback', '--keep-work', 'p'], UNDO_DECIDED),
                    'undo_of_one': (['undo', 'p'], UNDO_DECIDED), 'redo': (['redo', 'p'], REDO_DECIDED)}[how]
    if point != DECIDED:
        case.atoll('commit', 'p')
    if how == 'redo':
        case.atoll('undo', 'p')
    case.atoll(*words, code=-signal.SIGKILL, ATOLL_CRASHPOINT=point)
    fill_up(root.parent)
    case.atoll('recover')
    (root.parent / 'filler').unlink()
    changed = [(root / f'{d}/{LONG}7').read_text() for d in ('d1', 'd2', 'd3', 'd4')]
    wanted = {'commit': ['new\n'] * 4, 'part': ['new\n', '', '', ''], 'redo': ['new\n'] * 4}.get(how, [''] * 4)
    if changed != wanted or (root / 'n').exists() != (words[0] in ('commit', 'redo')):
        raise Broken(f'{changed}, not {wanted}')
    if point == UNDO_DECIDED and listing(root) != before:
        raise Broken(f'not undone: {diff(before, listing(root))[:500]}')
    if how in ('part', 'keep'):  # and what is work still, or again
        case.atoll('commit', 'p')
    if how == 'undo_of_one':  # what a redo needs is on record
        case.atoll('redo', 'p')
    if how in ('part', 'keep', 'undo_of_one'):
        if any((root / f'd{d}/{LONG}7').read_text() != 'new\n' for d in range(1, 5)):
            raise Broken('the work is not there')
    left = [str(at) for at in root.parent.rglob('ballast')]
    if left:
        raise Broken(f'still set aside: {left}')
    case.atoll('stop', 'p', '--yes', '--force')


def attempt(number, name, test):
    top = tempfile.mkdtemp(prefix='atoll-fs-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'))
    os.chmod(top, 0o755)
    place = Place(top)
    problem = None
    try:
        test(place)
    except (Broken, OSError, subprocess.SubprocessError) as broken:
        problem = str(broken)
    finally:
        place.close()
        shutil.rmtree(top, ignore_errors=True)
    print(f'{"not ok" if problem else "ok"} {number} - {name}', flush=True)
    if problem:
        print('\n'.join('# ' + line for line in problem.splitlines()[:20]), flush=True)
    return not problem


def all_tests():
    for who in ('root', 'user'):
        for strategy in ('overlay', 'copy'):
            for kind in ('ext4', 'xfs', 'btrfs', 'tmpfs'):
                for elsewhere in (False, True):
                    yield (f'{kind}_{strategy}_{who}_store_{"elsewhere" if elsewhere else "beside"}',
                           lambda p, k=kind, w=who, s=strategy, e=elsewhere: on_filesystem(p, k, w, s, e))
            for kind in ('ext4', 'xfs', 'btrfs') if who == 'user' else ('ext4',):
                yield f'acls_of_others_{kind}_{strategy}_{who}', lambda p, k=kind, w=who, s=strategy: acls_of_others(p, k, w, s)
            for kind in ('ext4', 'tmpfs'):
                for test in (root_is_mount_point, parent_not_ours, mount_below):
                    yield (f'{test.__name__}_{kind}_{strategy}_{who}',
                           lambda p, t=test, k=kind, w=who, s=strategy: t(p, k, w, s))
            yield (f'atm_01_subvolume_below_{strategy}_{who}', lambda p, w=who, s=strategy: subvolume_below(p, w, s))
            yield (f'atm_01_projects_{strategy}_{who}', lambda p, w=who, s=strategy: projects(p, w, s))
        for kind in ('ext4', 'xfs', 'btrfs', 'tmpfs'):
            yield f'der_03_swapped_by_somebody_{kind}_{who}', lambda p, k=kind, w=who: der_03_swapped_by_somebody(p, k, w)
        yield f'der_03_plans_apart_{who}', lambda p, w=who: der_03_plans_apart(p, 'ext4', w)
        yield f'der_03_both_make_{who}', lambda p, w=who: der_03_both_make(p, 'ext4', w)
    yield 'der_03_large_clones_are_not_read', lambda p: der_03_large_clones_are_not_read(p, 'xfs')
    yield 'ovl_04_05_hung_mount_below_root', lambda p: ovl_04_05_hung_mount_below(p, None, 'root', 'overlay')
    yield 'ovl_04_05_hung_mount_below_user', lambda p: ovl_04_05_hung_mount_below(p, None, 'user', 'overlay')
    for strategy in ('overlay', 'copy'):
        for how in ('commit', 'part', 'undo', 'keep', 'undo_of_one', 'redo'):
            yield (f'atm_01_full_after_the_decision_{how}_{strategy}',
                   lambda p, s=strategy, h=how: full_after_decision(p, 'ext4', s, h))


def main():
    if os.geteuid() != 0:
        print('1..0 # SKIP needs root')
        return 0
    if ctypes.CDLL(None, use_errno=True).unshare(0x00020000) < 0:  # CLONE_NEWNS
        print('1..0 # SKIP no mount namespaces')
        return 0
    sh('mount --make-rprivate /')
    only = sys.argv[1] if len(sys.argv) > 1 else ''
    tests = [t for t in all_tests() if only in t[0]]
    print(f'1..{len(tests)}', flush=True)
    results = [attempt(i, *t) for i, t in enumerate(tests, 1)]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
