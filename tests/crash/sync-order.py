#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is durable before what. Killing a process proves nothing about that, for the page cache
survives it; so the system calls are recorded (strace) and replayed on a model of what a power cut
would leave. The crash points passed are in the trace as marks. Every rule is also shown to be
able to fail: with one barrier left out ($ATOLL_SABOTAGE), the same check must complain.

The model: data of a file, entries of a directory and attributes are dirty from the call that
changes them until an fsync of that file or directory, or a syncfs, that began later has ended.
Prints TAP.
"""

import contextlib
import os
import re
import subprocess
import sys

from crashlib import Broken, Skip, World, manifest, put, run

CALLS = ('write,pwrite64,pwritev,pwritev2,copy_file_range,ftruncate,fallocate,open,openat,openat2,'
         'mkdir,mkdirat,unlink,unlinkat,rmdir,rename,renameat,renameat2,link,linkat,symlink,'
         'symlinkat,fsync,fdatasync,syncfs,sync,utimensat,chmod,fchmod,fchmodat,fchown,fchownat,'
         'setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr')
BOTH_WAYS = {'syncfs': '1', 'each': '2'}
FD = r'(?:AT_FDCWD|\d+)<((?:[^<>\\]|\\.)*)>'
NAMELESS = re.compile(r'\d+<(?:[^<>\\]|\\.)*(?:>\(deleted\)| \(deleted\)>)')
MOST_SYNCS = 7

if os.environ.get('ATOLL_TEST_SABOTAGE') != '1':
    NO_SABOTAGE = 'a build without -Dsabotage=true leaves nothing out'
else:
    NO_SABOTAGE = None


# ---- reading a trace ----

class Call:
    """A system call that succeeded. BEGAN and ENDED: positions in the trace."""

    def __init__(self, name, args, began, ended):
        self.name, self.args, self.began, self.ended = name, args, began, ended

    def is_nameless(self):
        """About a file that has no name, or none any more: nobody finds it after a power cut."""
        return bool(NAMELESS.match(self.args))

    def paths(self):
        """Absolute paths the call is about."""
        if not self.name.endswith(('at', 'at2')):
            found = re.findall(FD, self.args)
            if self.name == 'copy_file_range':
                return found[1:]
            return found or re.findall(r'"(/(?:[^"\\]|\\.)*)"', self.args)
        found = []
        for match in re.finditer(FD + r'(?:, "((?:[^"\\]|\\.)*)")?|"(/(?:[^"\\]|\\.)*)"', self.args):
            folder, name, alone = match.groups()
            if alone is not None:
                found.append(alone)
            elif name is None or name == '':
                found.append(folder)
            else:
                found.append(name if name.startswith('/') else f'{folder}/{name}')
        return found


def calls_in(text):
    pending, found = {}, []
    for number, line in enumerate(text.splitlines()):
        tid, rest = line.split(None, 1)
        if rest.endswith('<unfinished ...>'):
            pending[tid] = (rest[:-len('<unfinished ...>')], number)
            continue
        began = number
        resumed = re.match(r'<\.\.\. \w+ resumed>(.*)', rest)
        if resumed:
            start, began = pending.pop(tid)
            rest = start + resumed[1]
        match = re.match(r'(\w+)\((.*)\)\s+= (-?\d+)', rest)
        if match and int(match[3]) >= 0:
            found.append(Call(match[1], match[2], began, number))
    # By when they took effect: a sync when it ended, a change when it began.
    return sorted(found, key=lambda c: c.ended if 'sync' in c.name else c.began)


# ---- the model ----

def parent(path):
    return path.rpartition('/')[0]


def below(path, folder):
    return path == folder or path.startswith(folder + '/')


def is_note(call):
    """What a directory takes on disk, noted beside it: measured again when it is lost or torn."""
    return any(path.endswith('.size') for path in call.paths())


class Disk:
    """What a power cut could take. DIRTY: (kind, path) -> since when."""

    def __init__(self, dirty):
        self.dirty = {key: -1 for key in dirty}

    def soil(self, kind, path, when):
        self.dirty[kind, path] = when

    def forget(self, path):
        self.dirty = {key: when for key, when in self.dirty.items() if not below(key[1], path)}

    def move(self, here, there, exchange):
        moved = {}
        for (kind, path), when in self.dirty.items():
            if below(path, here):
                path = there + path[len(here):]
            elif exchange and below(path, there):
                path = here + path[len(there):]
            moved[kind, path] = when
        self.dirty = moved

    def clean(self, call, path=None):
        self.dirty = {key: when for key, when in self.dirty.items()
                      if when > call.began or (path is not None and key[1] != path)}

    def apply(self, call):
        name, paths, when = call.name, call.paths(), call.began
        if call.is_nameless() and name != 'syncfs':
            return
        if name in ('fsync', 'fdatasync'):
            self.clean(call, paths[0])
        elif name in ('syncfs', 'sync'):
            self.clean(call)
        elif name.startswith('rename'):
            self.move(paths[0], paths[1], 'RENAME_EXCHANGE' in call.args)
            self.soil('entries', parent(paths[0]), when)
            self.soil('entries', parent(paths[1]), when)
        elif name in ('unlink', 'unlinkat', 'rmdir'):
            self.forget(paths[0])
            if not paths[0].endswith('/ballast'):  # which may come back
                self.soil('entries', parent(paths[0]), when)
        elif name.startswith(('mkdir', 'symlink', 'link')):
            self.soil('entries', parent(paths[-1]), when)
            self.soil('entries', paths[-1], when)
        elif name.startswith('open'):
            if 'O_CREAT' in call.args:
                self.soil('entries', parent(paths[0]), when)
                self.soil('data', paths[0], when)
        elif name == 'utimensat':
            # Only the access time: the ctime bump, a mark for others that may be lost.
            if not call.args.rstrip(']').endswith('UTIME_OMIT') and 'UTIME_OMIT], ' not in call.args:
                self.soil('attributes', paths[0], when)
        elif 'chmod' in name or 'chown' in name or 'xattr' in name:
            self.soil('attributes', paths[0], when)
        elif paths:
            self.soil('data', paths[0], when)


class Trace:
    """A run, with the rules to hold it to. Complaints are collected."""

    def __init__(self, world, calls, dirty):
        self.world, self.calls, self.dirty = world, calls, dirty
        self.areas = str(world.base / 'store/plans')
        self.roots = [str(world.base / name) for name in world.resources]
        self.wal = str(world.base / 'store/atoll.db-wal')
        self.marks = [(i, c.args.split('"')[1][:-2]) for i, c in enumerate(calls)
                      if c.name == 'write' and c.paths()[0] == str(world.log)]
        self.bad = []

    def at(self, mark, which=0):
        """Position of a mark."""
        found = [i for i, name in self.marks if name == mark]
        if not found:
            raise Broken(f'{mark} was not passed')
        return found[which]

    def check(self, holds, complaint):
        if not holds:
            self.bad.append(complaint)

    def clean_at(self, mark, which=0):
        """Nothing of ours can be lost any more: resources, areas."""
        disk = Disk(self.dirty)
        for call in self.calls[:self.at(mark, which)]:
            if (call.name != 'write' or call.paths()[0] != str(self.world.log)) and not is_note(call):
                disk.apply(call)
        left = [f'{kind} of {path}' for kind, path in disk.dirty
                if (below(path, self.areas) or any(below(path, root) for root in self.roots)) and
                path != self.areas and not path.endswith(('/ballast', '/durable')) and
                not os.path.islink(path)]  # which nobody can sync: its directory is
        self.check(not left, f'not durable at {mark}: {sorted(left)[:4]}')

    def recorded(self, mark, which=0):
        """The registry transaction that ended last before MARK is on disk. Gives its position."""
        end = self.at(mark, which)
        start = max((i for i, name in self.marks
                     if name == 'registry.before-commit' and i < end), default=0)
        # Pages may go to the log before the commit, but never after its sync.
        written = [c for c in self.calls[start:end]
                   if c.name.startswith('pwrite') and c.paths()[0] == self.wal]
        synced = [c for c in self.calls[start:end]
                  if c.name in ('fsync', 'fdatasync') and c.paths()[0] == self.wal]
        self.check(written, f'nothing was recorded before {mark}')
        self.check(synced and written and synced[-1].began > written[-1].began,
                   f'the record before {mark} is not synced')
        return start

    def changes(self, begin, end, folders):
        """Calls that change something below FOLDERS."""
        for call in self.calls[begin:end]:
            if 'sync' in call.name or call.is_nameless() or (call.name.startswith('open') and 'O_CREAT' not in call.args):
                continue
            if any(below(path, folder) for path in call.paths() for folder in folders):
                yield call

    def untouched(self, end, folders, what, begin=0):
        """No change below FOLDERS before the position END."""
        for call in self.changes(begin, end, folders):
            self.check(False, f'{what}: {call.name}({call.args[:160]})')
            return

    def undo_data_kept(self, end, what):
        for call in self.calls[:end]:
            if call.name.startswith('unlink') and any(
                    re.search(r'/b\d+/s\d+(/|$)', path) for path in call.paths()):
                self.check(False, f'{what}: {call.name}({call.args[:160]})')
                return

    def syncs(self):
        return [c for c in self.calls if c.name in ('fsync', 'fdatasync', 'syncfs', 'sync')]


# ---- recording ----

def soiled_by_edit(world, before):
    """What editing the views left in the page cache."""
    dirty = set()
    for name, work in world.works.items():
        now, was = world.new[name], before[name]
        for path in now.keys() | was.keys():
            here = f'{work}/{escaped(path)}' if path else str(work)
            if path in now and now[path] != was.get(path):
                is_dir = now[path][0] == repr(0o040000)
                is_file = now[path][0] == repr(0o100000)
                if is_file:
                    dirty.add(('data', here))
                if is_dir and path not in was:
                    dirty.add(('entries', here))
            if path and (path in now) != (path in was) and path.rpartition(b'/')[0] in now:
                dirty.add(('entries', parent(here)))
    return dirty


def escaped(name):
    """As strace prints it."""
    return ''.join(chr(b) if 32 <= b < 127 and b not in b'"\\<>' else
                   {10: '\\n', 9: '\\t', 34: '\\"', 92: '\\\\'}.get(b, f'\\{b:o}') for b in name)


def record(world, *verbs, env=(), dirty=(), way='syncfs', sabotage=''):
    """Runs VERBS under strace."""
    world.log.write_text('')
    output = world.base / 'trace'
    settings = {'ATOLL_CRASHPOINT_LOG': str(world.log), 'SCENARIO_SYNC': BOTH_WAYS[way],
                'ATOLL_SABOTAGE': sabotage, 'ATOLL_HELPER': '/bin/true', **dict(env)}
    world.run(*verbs, env=settings, wrap=('strace', '-f', '-y', '-s', '256', '-o', str(output),
                                          '-e', f'trace={CALLS}'))
    trace = Trace(world, calls_in(output.read_text(errors='replace')), dirty)
    trace.check(trace.marks, 'no crash point was passed')
    return trace


def edited(resources=('r1', 'v', 'r2')):
    world = World(list(resources))
    world.open_plan()
    before = {name: manifest(work) for name, work in world.works.items()}
    world.edit()
    world.dirty = soiled_by_edit(world, before)
    return world


# ---- the rules, each for one kind of run; they return complaints ----

def rules_of_commit(way, sabotage):
    with edited() as world:
        t = record(world, 'commit', dirty=world.dirty, way=way, sabotage=sabotage)
        preparing = t.recorded('txn.after-preparing')
        t.untouched(preparing, [t.areas], 'an area was written to before PREPARING was recorded')
        decided = t.recorded('txn.after-decision')
        t.check(decided > t.at('txn.after-barrier-1'), 'decided before barrier 1')
        t.clean_at('txn.after-barrier-1')
        t.untouched(t.at('txn.after-decision'), t.roots, 'changed before the decision')
        t.clean_at('txn.after-barrier-3')
        committed = t.recorded('txn.after-committed')
        t.check(committed > t.at('txn.after-barrier-3'), 'recorded before barrier 3')
        t.undo_data_kept(len(t.calls), 'an original was removed by a commit')
        world.expect('new')
        return t.bad


def rules_of_final_commit(way, sabotage):
    with edited() as world:
        t = record(world, 'commit=no-undo', dirty=world.dirty, way=way, sabotage=sabotage)
        t.clean_at('txn.after-barrier-3')
        t.recorded('txn.after-committed')
        t.recorded('txn.release.recorded')
        t.undo_data_kept(t.at('txn.release.recorded'), 'originals removed before it was recorded')
        t.check(t.at('txn.release.recorded') > t.at('txn.after-committed'),
                'released before it was committed')
        return t.bad


def rules_of_final_participant(way, sabotage):
    with edited(['r1', 'f', 'r2', 'v']) as world:
        t = record(world, 'commit', dirty=world.dirty, way=way, sabotage=sabotage)
        t.clean_at('txn.after-barrier-2')
        t.untouched(t.at('txn.after-barrier-2'), [str(world.base / 'f')],
                    'the final one changed before the others were on disk')
        t.check(t.at('txn.after-decision') < t.at('txn.after-barrier-2'), 'not after the decision')
        world.expect('new')
        return t.bad


def rules_of_undo(way, sabotage):
    with edited() as world:
        world.must('commit')
        t = record(world, 'rollback', way=way, sabotage=sabotage)
        t.recorded('txn.undo.after-decision')
        t.untouched(t.at('txn.undo.after-decision'), t.roots, 'changed before UNDOING was recorded')
        t.clean_at('txn.undo.after-barrier')
        undone = t.recorded('txn.undo.recorded')
        t.check(undone > t.at('txn.undo.after-barrier'), 'recorded before the barrier')
        t.recorded('txn.release.recorded')
        t.undo_data_kept(t.at('txn.release.recorded'), 'undo data removed before UNDONE')
        world.expect('old')
        return t.bad


@contextlib.contextmanager
def store_apart(world):
    """The store is on another mount than the resources."""
    store = world.base / 'store'
    store.mkdir(0o700)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=0700', 'apart', str(store)], check=True)
    try:
        yield
    finally:
        subprocess.run(['umount', '-l', str(store)], check=True)


def rules_of_kept_work(way, sabotage):
    """What an undo returns to a workspace on another mount is a copy. Where it shows it is taken for newer
    work by a recovery, so it is on disk before; and all of it before the slots go."""
    if os.geteuid() != 0:
        raise Skip('needs root')
    with World(['o1']) as world, store_apart(world):
        world.must('start', 'add=o1:overlay+store')
        world.edit()
        world.must('commit')
        world.must('exec=true')  # in a new workspace: that of the commit had all of it
        t = record(world, 'rollback=keep-work', way=way, sabotage=sabotage)
        disk, brought = Disk([]), 0
        for call in t.calls[:t.at('txn.undo.kept')]:
            if call.name.startswith('rename') and call.paths()[0].endswith('/made'):
                made = call.paths()[0]
                left = [path for kind, path in disk.dirty if kind == 'data' and below(path, made)]
                t.check(not left, f'shown before it was on disk: {left[:4]}')
                brought += 1
            if not is_note(call):
                disk.apply(call)
        t.check(brought, 'nothing was copied')
        t.clean_at('txn.undo.kept')
        kept = t.recorded('txn.release.recorded')
        t.check(kept > t.at('txn.undo.kept'), 'recorded before the barrier')
        t.undo_data_kept(t.at('txn.undo.kept'), 'undo data removed before the work was on disk')
        world.expect('old')
        return t.bad


def recovery_of_kept_work(way, sabotage):
    """What a run that died has returned, the next finds there; the directories that show it may be in no more
    than the page cache."""
    if os.geteuid() != 0:
        raise Skip('needs root')
    with World(['o1']) as world, store_apart(world):
        world.must('start', 'add=o1:overlay+store')
        world.edit()
        world.must('commit')
        world.must('exec=true')
        world.kill('overlay.keep.returned', 'rollback=keep-work')
        upper = max((world.base / 'store/plans').glob('*.w/u*'))
        both = [path for path in (upper, *upper.rglob('*')) if path.is_dir() and not path.is_symlink() and
                (world.base / 'o1' / path.relative_to(upper)).is_dir()]
        put(upper.parent / 'made', b'a copy that it had begun')
        t = record(world, 'recover', dirty={('entries', escaped(os.fsencode(path))) for path in both},
                   way=way, sabotage=sabotage)
        t.check(len(both) > 1, 'no directory is in both')
        t.check(not (upper.parent / 'made').exists(), 'a copy that was begun is left')
        commits = [i for i, name in t.marks if name == 'registry.before-commit']
        t.clean_at('registry.before-commit',
                   [i > t.at('overlay.keep.returned') for i in commits].index(True))
        world.expect('old')
        return t.bad


def rules_of_undo_after_given_up(way, sabotage):
    """An undo that meant to keep somebody's changes was given up; the next must not keep them, not
    even after a power cut."""
    with edited() as world:
        world.must('commit')
        root, theirs = world.base / 'r1', world.base / 'r1/gone'
        times = root.stat().st_mtime_ns
        put(theirs, b'theirs')
        if world.run('rollback=keep-theirs', env={'SCENARIO_FAIL': 'prepare'})[0] == 0:
            raise Broken('an undo one refused was done')
        theirs.unlink()
        os.utime(root, ns=(times, times))
        t = record(world, 'rollback', way=way, sabotage=sabotage)
        t.clean_at('txn.undo.prepared')
        world.expect('old')
        return t.bad


def rules_of_revocation(way, sabotage):
    with edited(['r1', 'r2', 'v']) as world:
        t = record(world, 'commit', env={'SCENARIO_FAIL': 'commit'}, dirty=world.dirty, way=way,
                   sabotage=sabotage)
        t.recorded('txn.revoke.recorded')
        applied = t.at('txn.apply.participant', -1)
        t.untouched(t.at('txn.revoke.recorded'), t.roots, 'put back before REVOKED was recorded',
                    begin=applied)
        t.clean_at('txn.revoke.undone')
        withdrawn = t.recorded('txn.revoke.withdrawn')
        t.check(withdrawn > t.at('txn.revoke.undone'), 'recorded before the barrier')
        t.undo_data_kept(t.at('txn.revoke.withdrawn'), 'slots removed before it was recorded')
        world.expect('old')
        return t.bad


def rules_of_redo(way, sabotage):
    with edited() as world:
        world.must('commit')
        t = record(world, 'rollback', env={'SCENARIO_FAIL': 'undo'}, way=way, sabotage=sabotage)
        t.recorded('txn.redo.recorded')
        commits = [i for i, name in t.marks
                   if name == 'registry.before-commit' and i > t.at('txn.redo.recorded')]
        number = [i for i, name in t.marks if name == 'registry.before-commit'].index(commits[0])
        t.clean_at('registry.before-commit', number)
        t.recorded('registry.after-commit', number)
        t.undo_data_kept(len(t.calls), 'undo data removed')
        world.expect('new')
        return t.bad


def rules_of_create(way, sabotage):
    with World(['r1']) as world:
        world.must('start')
        t = record(world, 'add=r1', way=way, sabotage=sabotage)
        t.recorded('plan.add.after-record')
        t.untouched(t.at('plan.add.after-record'), [t.areas],
                    'the area was made before its path was recorded')
        t.untouched(len(t.calls), t.roots, 'the resource was changed')
        made = [c for c in t.changes(0, len(t.calls), [t.areas]) if c.name.startswith('mkdir')]
        t.check(made, 'no area was made')
        return t.bad


def rules_of_start(way, sabotage):
    with World(['r1', 'r2']) as world:
        world.must('recover=all')
        t = record(world, 'start=r1:copy,r2:copy', way=way, sabotage=sabotage)
        t.recorded('plan.start.after-record')
        t.untouched(t.at('plan.start.after-record'), [t.areas],
                    'an area was made before its path was recorded')
        t.recorded('plan.start.after-complete')
        t.untouched(len(t.calls), t.roots, 'the resource was changed')
        return t.bad


def rules_of_start_in_store(way, sabotage):
    """All of it lies in the store: one sync, of the record that says that it is complete."""
    with World(['r1']) as world:
        # That overlays work here is found out once, and not while somebody traces.
        world.must('start=r1:overlay', 'stop')
        t = record(world, 'start=r1:overlay', way=way, sabotage=sabotage)
        t.untouched(t.at('plan.start.after-record'), [t.areas],
                    'an area was made before its path was recorded')
        t.recorded('plan.start.after-complete')
        t.untouched(len(t.calls), t.roots, 'the resource was changed')
        return t.bad


def rules_of_bare_start(way, sabotage):
    with World(['r1']) as world:
        world.must('recover=all')
        t = record(world, 'start', way=way, sabotage=sabotage)
        t.recorded('plan.start.after-record')
        return t.bad


def recovery(kill, before, env=(), undo=False):
    """Rules of a recovery that finds what a kill at KILL left; it must be durable at BEFORE."""
    def rules(way, sabotage):
        with edited(['r1', 'r2', 'v']) as world:
            if undo:
                world.must('commit')
            world.kill(kill, 'rollback' if undo else 'commit', env=dict(env))
            # What was moved before the kill may be in no more than the page cache.
            t = record(world, 'recover', way=way, sabotage=sabotage)
            t.recorded('recover.announced')
            t.untouched(t.at('recover.announced'), t.roots + [t.areas],
                        'touched before recovery could write')
            t.clean_at(before)
            following = [i for i, name in t.marks
                         if name == 'registry.after-commit' and i > t.at(before)]
            number = [i for i, name in t.marks
                      if name == 'registry.after-commit'].index(following[0])
            t.recorded('registry.after-commit', number)
            t.undo_data_kept(following[0], 'undo data removed before the end was recorded')
            return t.bad
    return rules


recovery_of_decided = recovery('dir.apply.op:4', 'recover.applied')
recovery_of_revoked = recovery('dir.undo.op:4', 'recover.undone', {'SCENARIO_FAIL': 'commit'})
recovery_of_undoing = recovery('dir.undo.op:4', 'recover.undo.undone', undo=True)


# ---- the tests ----

def complaints_of(rules, way, sabotage):
    try:
        return rules(way, sabotage)
    except Broken as why:
        return [str(why)]


def both_ways(rules):
    return [f'{way}: {text}' for way in BOTH_WAYS for text in complaints_of(rules, way, '')]


def must_complain(rules, *steps):
    """Negative control: with a step left out the rules do not hold."""
    if NO_SABOTAGE:
        raise Skip(NO_SABOTAGE)
    return [f'{way}: nothing noticed that {step} was left out'
            for step in steps for way in BOTH_WAYS if not complaints_of(rules, way, step)]


def der_02_order_of_commit():
    return both_ways(rules_of_commit) + both_ways(rules_of_final_commit)


def der_02_others_on_disk_before_a_final_one():
    return both_ways(rules_of_final_participant)


def der_02_order_of_undo():
    return both_ways(rules_of_undo)


def der_02_order_of_kept_work():
    return both_ways(rules_of_kept_work) + both_ways(recovery_of_kept_work)


def der_02_order_of_undo_after_one_given_up():
    return both_ways(rules_of_undo_after_given_up)


def der_02_order_of_revocation():
    return both_ways(rules_of_revocation)


def der_02_order_of_redo():
    return both_ways(rules_of_redo)


def der_02_order_of_create():
    return (both_ways(rules_of_create) + both_ways(rules_of_start) +
            both_ways(rules_of_start_in_store) + both_ways(rules_of_bare_start))


def der_02_order_of_recovery():
    return (both_ways(recovery_of_decided) + both_ways(recovery_of_revoked) +
            both_ways(recovery_of_undoing))


def der_02_a_file_without_a_name_needs_no_sync():
    """The model itself: what is written to one can be lost, to any other not; and its sync helps no namesake."""
    bad = []
    for fd, left in (('3</a/#12>(deleted)', 0), ('3</a/b (deleted)>', 0), ('3</a/b>', 1), ('3</a/(deleted)>', 1)):
        disk = Disk([])
        for call in calls_in(f'7 write({fd}, "x", 1) = 1\n7 ftruncate({fd}, 3) = 0'):
            disk.apply(call)
        if len(disk.dirty) != left:
            bad.append(f'{fd}: {disk.dirty}')
    disk = Disk([])
    for call in calls_in('7 write(3</a/b>, "x", 1) = 1\n7 fsync(4</a/b>(deleted)) = 0'):
        disk.apply(call)
    return bad + ([] if disk.dirty else ['the sync of a deleted file counts for its namesake'])


def prf_01_few_sync_calls():
    """A commit of ten files: at most seven sync calls, whatever their number."""
    with World(['r1', 'r2']) as world:
        world.open_plan()
        for name in ('r1', 'r2'):
            for number in range(5):
                put(world.works[name] / f'new-{number}', b'new')
        world.new = None
        subprocess.run(['sync'], check=True)
        t = record(world, 'commit')
        return [] if len(t.syncs()) <= MOST_SYNCS else [
            f'{len(t.syncs())} sync calls: ' + ', '.join(c.name for c in t.syncs())]


def sec_05_stripped_bits_stay_off():
    """Set-id bits are taken off after the first barrier; the file is in the last one."""
    with World(['r1']) as world:
        world.open_plan()
        put(world.works['r1'] / 'suid', b'x', 0o4755)
        t = record(world, 'commit', way='each')
        mode = (world.base / 'r1/suid').stat().st_mode & 0o7777
        synced = [c for c in t.calls[t.at('txn.after-decision'):t.at('txn.after-barrier-3')]
                  if c.name == 'fsync' and c.paths()[0] == str(world.base / 'r1/suid')]
        return ([] if mode == 0o755 else [f'mode {mode:o}']) + ([] if synced else ['not synced'])


def tst_05_left_out_in_commit():
    return (must_complain(rules_of_commit, 'barrier-1', 'barrier-3', 'registry-sync') +
            must_complain(rules_of_final_participant, 'barrier-2'))


def tst_05_left_out_in_undo():
    return (must_complain(rules_of_undo, 'barrier-undo', 'registry-sync') +
            must_complain(rules_of_kept_work, 'keep-copy', 'barrier-keep') +
            must_complain(rules_of_undo_after_given_up, 'barrier-undo-1'))


def tst_05_left_out_in_revocation():
    return must_complain(rules_of_revocation, 'barrier-revoke', 'registry-sync')


def tst_05_left_out_in_redo():
    return must_complain(rules_of_redo, 'barrier-redo', 'registry-sync')


def tst_05_left_out_in_create():
    return (must_complain(rules_of_create, 'registry-sync') +
            must_complain(rules_of_start, 'registry-sync') +
            must_complain(rules_of_start_in_store, 'registry-sync') +
            must_complain(rules_of_bare_start, 'registry-sync'))


def tst_05_left_out_in_recovery():
    return (must_complain(recovery_of_decided, 'barrier-3', 'registry-sync') +
            must_complain(recovery_of_revoked, 'barrier-revoke', 'registry-sync') +
            must_complain(recovery_of_undoing, 'barrier-undo', 'registry-sync'))


if __name__ == '__main__':
    sys.exit(run([
        der_02_order_of_commit,
        der_02_others_on_disk_before_a_final_one,
        der_02_order_of_undo,
        der_02_order_of_kept_work,
        der_02_order_of_undo_after_one_given_up,
        der_02_order_of_revocation,
        der_02_order_of_redo,
        der_02_order_of_create,
        der_02_order_of_recovery,
        der_02_a_file_without_a_name_needs_no_sync,
        prf_01_few_sync_calls,
        sec_05_stripped_bits_stay_off,
        tst_05_left_out_in_commit,
        tst_05_left_out_in_undo,
        tst_05_left_out_in_revocation,
        tst_05_left_out_in_redo,
        tst_05_left_out_in_create,
        tst_05_left_out_in_recovery,
    ]))
