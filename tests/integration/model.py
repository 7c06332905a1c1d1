# SPDX-License-Identifier: Apache-2.0
"""Random sequences of everything a plan can do, against a model of what should come of it: the
originals, the view of every sandbox and the stack of commits. Hypothesis draws the sequences and
shrinks what fails.

    model.py                  root's sequences and an ordinary user's (without root: only these)
    model.py run WHO SEED N   N sequences from one seed, in this process

A failure is shown as the shortest sequence found, with the seed that repeats it:
ATOLL_MODEL_SEED=SEED runs that seed's sequences alone. ATOLL_LONG=1 runs 2,000.

What the model leaves open, since docs/caveats.md does ("conflicts too many"), is the third answer
MAY of Box.judge(): there both a conflict and none are right, and each must then be so as a whole.
"""

import base64
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis
from hypothesis import strategies as st

LONG = os.environ.get('ATOLL_LONG') == '1'
SEQUENCES = int(os.environ.get('ATOLL_MODEL_COUNT', 2000 if LONG else 150))
SECONDS = 36000 if LONG else 35    # for each of the tests
CHUNK = 10                         # sequences of one seed
STEPS = 14
WORKERS = 2
NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
NAMES = ['a', 'b.o', 'c', 'd', 'e e', 'new\nline', '-rf', '*', 'f.o', '\udcff\udcfe', 'caf\u00e9']
ANYWHERE = ['registry.before-commit', 'registry.after-commit']
DECIDING = ['txn.after-preparing', 'txn.prepare.participant', 'txn.prepared', 'dir.prepare.staged', 'dir.prepare.done',
            'txn.after-barrier-1', 'txn.after-decision', 'txn.apply.participant', 'dir.apply.op', 'dir.apply.attrs',
            'dir.apply.staged', 'overlay.commit.rebased', 'copy.commit.rebased', 'txn.after-apply',
            'txn.after-barrier-3', 'txn.after-committed']
UNDOING = ['txn.undo.prepared', 'txn.undo.after-decision', 'dir.undo.op', 'dir.undo.attrs', 'txn.undo.participant',
           'txn.undo.undone', 'txn.undo.after-barrier', 'txn.undo.recorded', 'txn.undo.released']
POINTS = {  # where each command may be killed
    'commit': DECIDING,
    'rollback': UNDOING,
    'keep': UNDOING + ['txn.undo.kept', 'txn.keep.participant', 'dir.keep.unstage', 'overlay.keep.returned'],
    'refresh': ['copy.refresh.path', 'copy.refresh.brought', 'overlay.refresh.recorded'],
    'reset': [],
    'stop': ['plan.stop.after-mark', 'plan.stop.after-remove', 'plan.stop.before-delete', 'plan.stop.after-delete'],
    'start': ['plan.start.before-record', 'plan.start.after-record', 'plan.start.after-make', 'plan.add.after-area',
              'plan.add.after-record', 'plan.add.after-create', 'copy.create.copied', 'overlay.create.made'],
}
CONFLICT, REFUSED = 3, 4
NO, MAY, YES = 0, 1, 2

# What runs inside a plan, and for somebody else outside: edits from standard input, then a look.
AGENT = r'''
import json, os, shutil, stat, sys
def put(p, data, mtime, mode):
    with open(p, 'wb') as f:
        f.write(data.encode())
    if mode is not None:
        os.chmod(p, mode)
    os.utime(p, ns=(mtime, mtime))
def stamp(p, mtime):
    os.utime(p, ns=(mtime, mtime), follow_symlinks=False)
def replace(p, data, mtime, mode):
    put(p + '~', data, mtime, mode)
    os.rename(p + '~', p)
def append(p, data, mtime):
    with open(p, 'ab') as f:
        f.write(data.encode())
    stamp(p, mtime)
def truncate(p, size, mtime):
    os.truncate(p, size)
    stamp(p, mtime)
def mkdir(p, mode):
    os.mkdir(p)
    os.chmod(p, mode)
def symlink(p, target, mtime):
    os.symlink(target, p)
    stamp(p, mtime)
def pair(p, q, data, mtime):
    put(p, data, mtime, 0o644)
    os.link(p, q)
def rename(p, q):
    try:
        os.rename(p, q)
    except OSError:
        shutil.copytree(p, q, symlinks=True)
        shutil.rmtree(p)
def remove(p):
    shutil.rmtree(p) if os.path.isdir(p) and not os.path.islink(p) else os.unlink(p)
def chmod_to(p, mode):
    os.chmod(p, mode)
def dir_to_file(p, data, mtime):
    remove(p)
    put(p, data, mtime, 0o644)
def to_dir(p, mode, data, mtime):
    remove(p)
    mkdir(p, mode)
    put(p + '/a', data, mtime, 0o644)
def dump(top, without):
    tree = {}
    def visit(path, name):
        s = os.lstat(path)
        if stat.S_ISREG(s.st_mode):
            with open(path, 'rb') as f:
                tree[name] = ['f', stat.S_IMODE(s.st_mode), f.read().decode('latin-1'), s.st_mtime_ns]
        elif stat.S_ISLNK(s.st_mode):
            tree[name] = ['l', 0, os.readlink(path), s.st_mtime_ns]
        else:
            tree[name] = ['d', stat.S_IMODE(s.st_mode), '', 0]
            times[name] = s.st_mtime_ns
            for entry in os.listdir(path):
                below = os.path.join(name, entry)
                if below not in without:
                    visit(os.path.join(path, entry), below)
    times = {}
    visit(top, '')
    return tree, times
def main():
    os.umask(0o022)
    todo = json.load(sys.stdin)
    looks = [[dump(*tree)[0] for tree in todo['trees']]]
    for op in todo['edits']:
        globals()[op[0]](*op[1:])
    if todo['edits']:
        looks.append([dump(*tree)[0] for tree in todo['trees']])
    json.dump(looks, sys.stdout)
'''
exec(compile(AGENT, 'agent', 'exec'))  # its dump() is ours too


class Broken(Exception):
    pass


# ---- the model ----

class Entry:
    """A version of an entry. INO stays when a directory gets another mode; VER is never the same."""
    count = 0

    def __init__(self, kind, mode, data='', mtime=0, ino=None):
        Entry.count += 1
        self.kind, self.mode, self.data, self.mtime = kind, mode, data, mtime
        self.ver = Entry.count
        self.ino = ino or Entry.count
        self.seen = [kind, mode, data, mtime]

    def with_mode(self, mode):
        return Entry(self.kind, mode, self.data, self.mtime, self.ino)


def below(path, top):
    return top in ('', path) or path.startswith(top + '/')


def parent(path):
    return path.rpartition('/')[0]


def parents(path):
    while path:
        path = parent(path)
        yield path


def join(folder, name):
    return f'{folder}/{name}' if folder else name


def subtree(tree, top):
    return {p: e for p, e in tree.items() if below(p, top)}


def cut(tree, top):
    for path in subtree(tree, top):
        del tree[path]


def shown(entry):
    return entry.seen if entry else None


class Op:
    def __init__(self, kind, path):
        self.kind, self.path = kind, path


class Box:
    """One sandbox. BASE is what its work is compared with. STALE: the next command finds a view
    that is equal to the resource."""

    def __init__(self, root, strategy, without=()):
        self.root, self.strategy, self.without = root, strategy, list(without)
        self.res, self.base, self.view = {}, {}, {}
        self.stale, self.kept = False, False
        self.foreign = set()    # paths somebody else changed since the base was taken
        self.touched = set()    # paths that commands changed since then

    def copy(self):
        other = Box(self.root, self.strategy, self.without)
        other.res, other.base, other.view = dict(self.res), dict(self.base), dict(self.view)
        other.stale, other.kept = self.stale, self.kept
        other.foreign, other.touched = set(self.foreign), set(self.touched)
        return other

    def begin(self):
        self.base, self.view = dict(self.res), dict(self.res)
        self.stale, self.foreign, self.touched = False, set(), set()

    def use(self):
        if self.stale:
            self.begin()

    def work(self):
        """What commands would see now."""
        return self.res if self.stale else self.view

    def listed(self):
        """The paths that diff shows. Of an overlay the old side is the resource as it is now."""
        if self.stale:
            return []
        old = self.res if self.strategy == 'overlay' else self.base
        return sorted(p for p in set(old) | set(self.view) if shown(old.get(p)) != shown(self.view.get(p)))

    def ops(self):
        """The fewest operations on disjoint paths. A copy knows directories by their names."""
        found = []

        def visit(path):
            old, new = self.base.get(path), self.view.get(path)
            if not old or not new:
                found.append(Op('delete' if old else 'create', path))
            elif old.kind == 'd' and new.kind == 'd' and (self.strategy == 'copy' or old.ino == new.ino):
                if old.mode != new.mode:
                    found.append(Op('attr', path))
                for name in sorted({p for t in (self.base, self.view) for p in t
                                    if p and parent(p) == path}):
                    visit(name)
            elif old.kind == 'd' or old.seen != new.seen:
                found.append(Op('replace', path))
        if not self.stale:
            visit('')
        return found

    def covered(self, path):
        """PATH is the plan's own affair."""
        return any(below(path, o.path) if o.kind != 'attr' else o.path == path for o in self.ops())

    def judge(self, op):
        """Did somebody else change what OP is about? NO, MAY, YES, or None: it is so already."""
        path, now, base = op.path, self.res.get(op.path), self.base.get(op.path)
        if any(not self.res.get(p) or self.res[p].ino != self.base[p].ino
               for p in parents(path) if p in self.base):
            return YES
        if op.kind == 'attr':
            return NO if now and now.mode == base.mode else YES
        if op.kind == 'create':
            if now:
                return YES
            # An overlay takes what was renamed into a directory where somebody else was for what he
            # may have deleted there.
            return MAY if path in self.foreign or (self.strategy == 'overlay' and any(
                parent(p) == parent(path) for p in self.foreign)) else NO
        if not now:
            return None if op.kind == 'delete' else YES
        if base.kind != 'd':
            suspect = path in self.foreign and self.strategy == 'overlay'
            return YES if now.ver != base.ver or suspect else NO
        if now.ino != base.ino or now.mode != base.mode:
            return YES
        inside = [p for p in self.foreign if below(p, path)]
        if any(p in self.res for p in inside):
            return YES
        return MAY if inside else NO

    def somebody(self, path, entry):
        """Somebody else makes ENTRY of PATH in the original (None: deletes it)."""
        mine = self.stale or self.covered(path)
        trees = [self.res]
        if not mine and self.strategy == 'overlay':  # the lower tree is live
            trees += [self.base, self.view]
        for tree in trees:
            cut(tree, path)
            if entry:
                tree[path] = entry
        self.foreign.add(path)


class Model:
    def __init__(self, boxes):
        self.boxes = boxes
        self.batches = []  # of lists of (box number, op kind, path, old subtree, new subtree)

    def copy(self):
        other = Model([b.copy() for b in self.boxes])
        other.batches = list(self.batches)
        return other

    def owner(self, path):
        """The innermost sandbox that PATH belongs to, and what of PATH is below its root."""
        best = max((b for b in self.boxes if below(path, b.root)), key=lambda b: len(b.root))
        return best, path[len(best.root) + 1:]

    # -- commit --

    def chooser(self, box, paths, globs):
        tops = []
        for path in paths:
            if below(box.root, path):
                tops.append('')
            elif below(path, box.root) and self.owner(path)[0] is box:
                tops.append(path[len(box.root) + 1:])
        if not paths:
            tops = ['']
        ends = [g[1:] for g in globs]
        return lambda p: any(below(p, t) for t in tops) and not any(
            part.endswith(e) for part in p.split('/') for e in ends)

    def choose(self, box, paths, globs):
        """Operations taken, each with the entries of it that are; None: one would be split."""
        has = self.chooser(box, paths, globs)
        listed, taken, rest = box.listed(), [], False
        for op in box.ops():
            if op.kind == 'attr':
                entries = [op.path]
            else:
                entries = [p for p in listed if below(p, op.path)] or [op.path]
            chosen = [p for p in entries if has(p)]
            rest |= len(chosen) < len(entries)
            if not chosen:
                continue
            if len(chosen) < len(entries) and op.kind != 'create':
                return None, True
            taken.append((op, chosen if len(chosen) < len(entries) else None))
        return taken, rest

    def commit(self, paths=(), globs=(), ours=(), theirs=()):
        """0, CONFLICT or REFUSED as the exit status must be, or a set of them; and how to make the
        model what a commit that exits with 0 makes of it."""
        plan, verdicts, split = [], [], False
        for number, box in enumerate(self.boxes):
            taken, rest = self.choose(box, paths, globs)
            if taken is None:
                split = True
                continue
            todo = []
            for op, chosen in taken:
                verdict = box.judge(op)
                if verdict is None:
                    todo.append((op, chosen, 'drop'))
                    continue
                how = 'take'
                if verdict != NO:
                    at = f'{box.root}/{op.path}'.rstrip('/')
                    if any(below(at, p) for p in ours):
                        verdict = NO
                    elif any(below(at, p) for p in theirs):
                        how, verdict = ('theirs' if verdict == YES else 'either'), NO
                verdicts.append(verdict)
                todo.append((op, chosen, how))
            if taken:
                plan.append((number, todo, rest))
        if split:
            # which of the two is said first is not promised
            return {REFUSED, CONFLICT} if any(verdicts) else {REFUSED}, None
        if YES in verdicts:
            return {CONFLICT}, None
        codes = {0, CONFLICT} if MAY in verdicts else {0}
        return codes, lambda: self.apply(plan)

    def apply(self, plan):
        batch = []
        for number, todo, rest in plan:
            box = self.boxes[number]
            for op, chosen, how in todo:
                self.apply_op(batch, number, box, op, chosen, how)
            if not rest:
                if any(how != 'drop' for _, _, how in todo):
                    box.stale = True
        if batch:
            self.batches = self.batches + [batch]

    def apply_op(self, batch, number, box, op, chosen, how):
        path = op.path
        if how == 'drop':
            return
        if how == 'theirs':
            for tree in (box.base, box.view):
                if op.kind == 'attr':
                    tree[path] = box.res[path]
                    continue
                cut(tree, path)
                tree.update(subtree(box.res, path))
        elif op.kind == 'attr':
            new = box.res[path].with_mode(box.view[path].mode)
            batch.append((number, 'attr', path, {path: box.res[path]}, {path: new}))
            box.res[path] = box.base[path] = box.view[path] = new
        else:
            new = subtree(box.view, path)
            if chosen:
                keep = {path} | set(chosen) | {u for p in chosen for u in parents(p) if below(u, path)}
                new = {p: e for p, e in new.items() if p in keep}
            old = subtree(box.res, path)
            kind = 'replace' if old and new else 'create' if new else 'delete'
            batch.append((number, kind, path, old, new))
            for tree in (box.res, box.base):
                cut(tree, path)
                tree.update(new)
        box.foreign = {p for p in box.foreign if not below(p, path)}
        if not chosen:
            box.touched = {p for p in box.touched if not below(p, path)}

    # -- rollback --

    @staticmethod
    def undo_conflict(res, kind, path, new):
        """What was installed is something else by now."""
        now = res.get(path)
        if kind == 'attr':
            return not now or now.mode != new[path].mode
        if not now:
            return kind == 'replace'
        if kind == 'delete':
            return True

        def same(p):
            was = new.get(p)
            return was and (was.ino == res[p].ino if res[p].kind == 'd' else was.ver == res[p].ver)
        return any(not same(p) for p in subtree(res, path))

    @staticmethod
    def put_back(res, kind, path, old):
        if kind == 'attr':
            res[path] = res[path].with_mode(old[path].mode)
        else:
            cut(res, path)
            res.update(old)

    def rollback(self, keep_theirs=False, keep_work=False):
        """As commit(). Each batch is judged by what those after it leave when they are undone."""
        conflict, plan = set(), []
        trees = [dict(b.res) for b in self.boxes]
        for batch in reversed(self.batches):
            done = []
            for item in batch:
                number, kind, path, _, new = item
                if self.undo_conflict(trees[number], kind, path, new):
                    conflict.add(number)
                else:
                    done.append(item)
            for number, kind, path, old, _ in reversed(done):
                self.put_back(trees[number], kind, path, old)
            plan.append(done)
        if conflict and not keep_theirs:
            return {CONFLICT}, None
        return {0}, lambda: self.undo(plan, keep_work, conflict)

    def undo(self, plan, keep_work, kept):
        seen = [dict(b.work()) for b in self.boxes]
        for done in plan:
            for number, kind, path, old, _ in reversed(done):
                self.put_back(self.boxes[number].res, kind, path, old)
        for number in kept:
            self.boxes[number].kept = True
        for number, box in enumerate(self.boxes):
            paths = [(kind, path) for done in plan for n, kind, path, _, _ in done if n == number]
            if not keep_work:
                box.stale = True
            elif paths:
                if box.stale:
                    box.begin()
                for kind, path in paths:
                    if kind == 'attr':
                        box.base[path] = box.res[path]
                        continue
                    cut(box.base, path)
                    box.base.update(subtree(box.res, path))
                box.view = seen[number]
                box.touched |= set(box.listed())
        self.batches = []

    # -- others --

    def reset(self):
        for box in self.boxes:
            box.stale = True

    def refresh(self):
        """What both changed stays a conflict; all else comes in."""
        for box in self.boxes:
            if box.stale:
                continue
            ops = box.ops()
            disputed = [o.path for o in ops if box.judge(o)]
            mine = [o for o in ops if o.kind != 'attr']
            left = set()
            for path in sorted(box.foreign):
                if any(below(path, d) for d in disputed):
                    left.add(path)
                if any(below(path, o.path) for o in mine):
                    continue
                for tree in (box.base, box.view):
                    cut(tree, path)
                    tree.update(subtree(box.res, path))
            for op in mine:  # deleted on both sides
                if box.judge(op) is None:
                    cut(box.base, op.path)
            box.foreign = left


# ---- one sequence ----

class Sequence:
    def __init__(self, who, top, steps, log):
        self.user = who == 'user' and os.geteuid() == 0
        self.top, self.steps, self.log = top, steps, log
        self.r = random.Random(steps[0][1])
        self.number = 0
        self.model = None
        self.foreign_ever = False
        self.env = dict(os.environ, ATOLL_HOME=f'{top}/home', HOME=top, NO_COLOR='1')

    # -- drawing --

    def below(self, n):
        return self.r.randrange(n)

    def pick(self, items):
        return self.r.choice(items)

    def chance(self, percent):
        return self.below(100) < percent

    def fresh(self):
        self.number += 1
        return self.number

    def text(self):
        n = self.fresh()
        return f'{n}\n' * (1 + n % 3)

    def when(self):
        return 10**18 + self.fresh() * 1_000_003

    # -- running --

    def run(self, words, stdin='', point=None, cwd=None):
        become = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] if self.user else []
        env = self.env
        if isinstance(point, str):
            env = dict(env, ATOLL_CRASHPOINT=point)
        with subprocess.Popen(become + [os.fsencode(w) for w in words], cwd=cwd or self.top, env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            if isinstance(point, float):
                time.sleep(point)
                child.kill()
            out, err = child.communicate(stdin.encode())
            return subprocess.CompletedProcess(words, child.returncode, out, err)

    def atoll(self, *words, codes=(0,), point=None, stdin=''):
        done = self.run([ATOLL, *words], point=point, stdin=stdin)
        told = [w if len(w) < 200 else '...' for w in words]
        self.log.append(f'atoll {" ".join(map(repr, told))}{f" killed at {point}" if point is not None else ""}'
                        f' -> {done.returncode} {done.stderr.decode(errors="replace").strip()[:300]}')
        if point is not None and done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return None
        if done.returncode not in codes:
            raise Broken(f'{told}: exit {done.returncode}, not {sorted(codes)}: '
                         f'{done.stderr.decode(errors="replace")}')
        return done

    # -- looking --

    @staticmethod
    def same(what, want, got):
        for path in sorted(set(want) | set(got)):
            if want.get(path) != got.get(path):
                raise Broken(f'{what}: {path!r} is {got.get(path)}, not {want.get(path)}')

    def look_at_originals(self, model):
        for box in model.boxes:
            got, _ = dump(box.root, box.without)  # noqa: F821
            self.same(f'original {box.root}', {p: e.seen for p, e in box.res.items()}, got)

    def look_at_diff(self, model):
        told = json.loads(self.atoll('diff', 'p', '--json').stdout)
        got = []
        for row in told['changes']:
            path = os.fsdecode(base64.b64decode(row['path_b64'])) if 'path_b64' in row else row['path']
            got.append((row['root'], path))
        want = [(b.root, p) for b in model.boxes for p in b.listed()]
        if sorted(got) != sorted(want):
            raise Broken(f'diff lists {sorted(set(got) - set(want))} too many and '
                         f'{sorted(set(want) - set(got))} too few')

    def check(self):
        self.look_at_originals(self.model)
        self.look_at_diff(self.model)

    def inside(self, edits):
        """Commands in the plan; what they see before and after."""
        for box in self.model.boxes:
            box.use()
        todo = {'edits': [e for _, e in edits], 'trees': [[b.root, b.without] for b in self.model.boxes]}
        done = self.atoll('exec', 'p', '--', sys.executable, '-I', '-S', '-c', AGENT + 'main()',
                          stdin=json.dumps(todo))
        looks = json.loads(done.stdout)
        self.look_at_views('before', looks[0])
        for apply, _ in edits:
            apply()
        if edits:
            self.look_at_views('after', looks[1])

    def look_at_views(self, when, look):
        for box, got in zip(self.model.boxes, look):
            self.same(f'view of {box.root} {when}', {p: e.seen for p, e in box.view.items()}, got)

    # -- edits --

    def make_edits(self, count):
        """Each is decided on a model of what those before it leave."""
        copies = [b.copy() for b in self.model.boxes]
        for box in copies:
            box.use()
        edits = []
        for _ in range(count):
            number = self.below(len(copies))
            edit = self.make_edit(copies[number])
            if not edit:
                continue
            change, words = edit
            change(copies[number])
            real = self.model.boxes[number]
            self.log.append(f'  edit {os.path.basename(real.root)}: {[w if not isinstance(w, str) else w for w in words]}')
            edits.append((lambda c=change, b=real: c(b), words))
        return edits

    def make_edit(self, box):
        view = box.view
        held = {u for w in box.without for u in (w, *parents(w))}
        dirs = sorted(p for p, e in view.items() if e.kind == 'd')
        plain = sorted(p for p, e in view.items() if e.kind == 'f' and not os.path.basename(p).startswith('H'))
        files = sorted(p for p, e in view.items() if e.kind == 'f')
        leaves = sorted(p for p, e in view.items() if e.kind != 'd')
        movable = sorted(p for p, e in view.items() if e.kind == 'd' and p and p not in held)
        free = [join(d, n) for d in dirs for n in NAMES if join(d, n) not in view and join(d, n) not in held]
        kind = self.pick(['write', 'create', 'mkdir', 'delete', 'rmtree', 'rename', 'chmod', 'append', 'truncate',
                          'replace', 'symlink', 'pair', 'dir-to-file', 'file-to-dir', 'move-dir', 'dir-again',
                          'chmod-dir'])
        at = lambda p: f'{box.root}/{p}'  # noqa: E731
        data, mtime = self.text(), self.when()

        def put(path, entry):
            def change(b):
                b.touched.add(path)
                cut(b.view, path)
                b.view[path] = entry
            return change

        def gone(path):
            def change(b):
                b.touched |= set(subtree(b.view, path))
                cut(b.view, path)
            return change

        if kind == 'write' and plain:
            p = self.pick(plain)
            return put(p, Entry('f', view[p].mode, data, mtime)), ['put', at(p), data, mtime, None]
        if kind == 'append' and plain:
            p = self.pick(plain)
            return put(p, Entry('f', view[p].mode, view[p].data + data, mtime)), ['append', at(p), data, mtime]
        if kind == 'truncate' and plain:
            p = self.pick(plain)
            size = len(view[p].data) // 2
            return put(p, Entry('f', view[p].mode, view[p].data[:size], mtime)), ['truncate', at(p), size, mtime]
        if kind == 'replace' and files:
            p = self.pick(files)
            return put(p, Entry('f', 0o600, data, mtime)), ['replace', at(p), data, mtime, 0o600]
        if kind == 'create' and free:
            p = self.pick(free)
            return put(p, Entry('f', 0o644, data, mtime)), ['put', at(p), data, mtime, 0o644]
        if kind == 'mkdir' and free:
            p, mode = self.pick(free), self.pick([0o755, 0o700])
            return put(p, Entry('d', mode)), ['mkdir', at(p), mode]
        if kind == 'symlink' and free:
            p, target = self.pick(free), self.pick(['a', '..', '/etc/passwd', 'no where'])
            return put(p, Entry('l', 0, target, mtime)), ['symlink', at(p), target, mtime]
        if kind == 'pair':
            d, n = self.pick(dirs), self.fresh()
            p, q = join(d, f'H{n}'), join(self.pick(dirs), f'H{n}+')
            first, second = put(p, Entry('f', 0o644, data, mtime)), put(q, Entry('f', 0o644, data, mtime))
            return lambda b: (first(b), second(b)), ['pair', at(p), at(q), data, mtime]
        if kind == 'delete' and leaves:
            p = self.pick(leaves)
            return gone(p), ['remove', at(p)]
        if kind == 'rmtree' and movable:
            p = self.pick(movable)
            return gone(p), ['remove', at(p)]
        if kind == 'chmod' and plain:
            p = self.pick(plain)
            return (lambda b: put(p, b.view[p].with_mode(0o700 if b.view[p].mode != 0o700 else 0o640))(b),
                    ['chmod_to', at(p), 0o700 if view[p].mode != 0o700 else 0o640])
        if kind == 'chmod-dir' and movable:
            p = self.pick(movable)
            mode = 0o750 if view[p].mode != 0o750 else 0o711

            def change(b):
                b.view[p] = b.view[p].with_mode(mode)
            return change, ['chmod_to', at(p), mode]
        if kind == 'rename' and leaves and free:
            p, q = self.pick(leaves), self.pick(free)
            entry = view[p]
            first, second = gone(p), put(q, Entry(*entry.seen))
            return lambda b: (first(b), second(b)), ['rename', at(p), at(q)]
        if kind == 'move-dir' and movable and free:
            p, q = self.pick(movable), self.pick(free)
            if below(q, p):
                return None
            moved = {q + k[len(p):]: Entry(*e.seen) for k, e in subtree(view, p).items()}
            first = gone(p)

            def change(b):
                first(b)
                b.touched |= set(moved)
                b.view.update(moved)
            return change, ['rename', at(p), at(q)]
        if kind == 'dir-to-file' and movable:
            p = self.pick(movable)
            first, second = gone(p), put(p, Entry('f', 0o644, data, mtime))
            return lambda b: (first(b), second(b)), ['dir_to_file', at(p), data, mtime]
        if kind == 'file-to-dir' and leaves:
            p = self.pick(leaves)
            first, inner = put(p, Entry('d', 0o755)), put(join(p, 'a'), Entry('f', 0o644, data, mtime))
            return lambda b: (first(b), inner(b)), ['to_dir', at(p), 0o755, data, mtime]
        if kind == 'dir-again' and movable:
            p = self.pick(movable)
            first, again = gone(p), put(p, Entry('d', 0o755))
            inner = put(join(p, 'a'), Entry('f', 0o644, data, mtime))
            return lambda b: (first(b), again(b), inner(b)), ['to_dir', at(p), 0o755, data, mtime]
        return None

    # -- steps --

    def start(self):
        count = self.pick([1, 1, 2, 3])
        strategies = [self.pick(['overlay', 'copy']) for _ in range(count)]
        nested = count > 1 and self.chance(30)
        boxes = []
        for i, strategy in enumerate(strategies):
            inner = nested and i == count - 1
            root = f'{boxes[0].root}/d/inner' if inner else f'{self.top}/r{i}'
            boxes.append(Box(root, strategy))
            if inner:
                boxes[0].without = ['d/inner']
        edits = []
        for i, box in enumerate(boxes):
            edits += [['mkdir', box.root, 0o755], ['mkdir', f'{box.root}/d', 0o755],
                      ['put', f'{box.root}/a', self.text(), self.when(), 0o644],
                      ['put', f'{box.root}/d/c', self.text(), self.when(), 0o600],
                      ['put', f'{box.root}/d/b.o', self.text(), self.when(), 0o644]]
            if i == 0:
                edits += [['mkdir', f'{box.root}/d/e e', 0o755], ['mkdir', f'{box.root}/*', 0o700],
                          ['put', f'{box.root}/d/e e/new\nline', self.text(), self.when(), 0o644],
                          ['symlink', f'{box.root}/c', 'd/c', self.when()]]
        self.outside(edits)
        for box in boxes:
            tree, _ = dump(box.root, box.without)  # noqa: F821
            box.res = {p: Entry(*e) for p, e in tree.items()}
            box.begin()
        self.times = [dump(b.root, b.without)[1] for b in boxes]  # noqa: F821
        self.model = Model(boxes)
        self.start_plan()

    def start_plan(self):
        lines = ['[plan]', '\tname = p']
        for number, box in enumerate(self.model.boxes):
            lines += [f'[resource "r{number}"]', f'\tpath = {box.root}', f'\tstrategy = {box.strategy}']
        with open(f'{self.top}/plan', 'w', encoding='utf-8') as file:
            file.write('\n'.join(lines) + '\n')
        words = ['start', '--file', f'{self.top}/plan']
        self.log.append(' '.join(f'{os.path.relpath(b.root, self.top)}:{b.strategy}' for b in self.model.boxes))
        point = self.killed('start')
        if self.atoll(*words, point=point) is None:
            done = self.atoll(*words, codes=(0, 1))  # it may have been made, and killed thereafter
            if done.returncode and b'already' not in done.stderr and b'exists' not in done.stderr:
                raise Broken(f'start after a kill: {done.stderr.decode()}')

    def outside(self, edits):
        done = self.run([sys.executable, '-I', '-S', '-c', AGENT + 'main()'],
                        stdin=json.dumps({'edits': edits, 'trees': []}))
        if done.returncode:
            raise Broken(f'{edits}: {done.stderr.decode()}')

    def killed(self, command):
        """Nowhere, at a point of the program, or after some seconds."""
        if not self.chance(25):
            return None
        if self.chance(20):
            return self.below(25) / 1000
        return f'{self.pick(POINTS[command] + ANYWHERE)}:{self.pick([1, 1, 1, 2, 3])}'

    def step_exec(self):
        self.inside(self.make_edits(1 + self.below(4)))

    def step_look(self):
        self.inside([])

    def step_foreign(self):
        box = self.pick(self.model.boxes)
        res = box.res
        # Not what has several names: an edit of one is an edit of all (docs/caveats.md).
        files = sorted(p for p, e in res.items() if e.kind == 'f' and (box.covered(p) or p not in box.touched) and
                       not os.path.basename(p).startswith('H'))
        free = sorted({join(d, n) for d, e in res.items() if e.kind == 'd' for n in NAMES + ['F']
                       if join(d, n) not in res and join(d, n) not in box.without and
                       (box.covered(join(d, n)) or join(d, n) not in box.touched)})
        kind = self.pick(['change', 'replace', 'create', 'delete'])
        data, mtime = self.text(), self.when()
        hot = [p for p in (free if kind == 'create' else files) if not box.stale and box.covered(p)]
        choices = hot if hot and self.chance(70) else free if kind == 'create' else files
        if not choices:
            return
        p = self.pick(choices)
        words = {'change': ['put', f'{box.root}/{p}', data, mtime, None],
                 'replace': ['replace', f'{box.root}/{p}', data, mtime, 0o644],
                 'create': ['put', f'{box.root}/{p}', data, mtime, 0o644],
                 'delete': ['remove', f'{box.root}/{p}']}[kind]
        entry = None if kind == 'delete' else \
            Entry('f', res[p].mode if kind == 'change' else 0o644, data, mtime)
        self.log.append(f'somebody: {words}')
        self.outside([words])
        self.foreign_ever = True
        box.somebody(p, entry)

    def some_paths(self):
        found = [f'{b.root}/{p}' for b in self.model.boxes for p in b.listed()]
        if not found:
            return []
        paths = []
        for _ in range(1 + self.below(3)):
            path = self.pick(found)
            kind = self.below(10)
            if kind == 9:
                path = self.model.owner(path)[0].root
            elif kind > 6 and self.model.owner(path)[1].count('/'):
                path = parent(path)
            paths.append(path)
        return paths

    def decide(self, words, codes, apply, again=()):
        """A command that decides; killed, it did all or nothing. AGAIN: what ends one that was cut
        off after its decision, whichever way."""
        point = self.killed('keep' if '--keep-work' in words else words[0])
        done = self.atoll(*words, codes=codes, point=point)
        if done:
            if done.returncode == 0:
                apply(self.model)
            return
        if again:
            self.atoll(*again)
            apply(self.model)
            return
        self.atoll('recover')
        before, after = self.model, self.model.copy()
        states = [before]
        if 0 in codes:
            apply(after)
            states.append(after)
        reasons = []
        for model in states:
            try:
                self.look_at_originals(model)
                self.look_at_diff(model)
                self.model = model
                return
            except Broken as broken:
                reasons.append(str(broken))
        raise Broken('neither all nor nothing: ' + ' | '.join(reasons))

    def commit(self, **how):
        words = ['commit', 'p', *how.get('paths', ())]
        for name, option in (('globs', '--exclude'), ('ours', '--ours'), ('theirs', '--theirs')):
            for value in how.get(name, ()):
                words += [option, value]
        codes, _ = self.model.commit(**how)

        def apply(model):
            _, make = model.commit(**how)
            make()
        self.decide(words, codes, apply)

    def step_commit(self):
        self.commit()

    def step_part(self):
        paths = self.some_paths()
        if paths:
            self.commit(paths=paths, globs=['*.o'] if self.chance(20) else [])

    def step_exclude(self):
        self.commit(globs=['*.o'])

    def step_settle(self):
        """Conflicts, all of them or some, this way or that."""
        found = []
        for box in self.model.boxes:
            found += [f'{box.root}/{o.path}'.rstrip('/') for o in box.ops() if box.judge(o)]
        ours, theirs = [], []
        for path in found:
            if self.chance(90):
                (ours if self.chance(50) else theirs).append(path)
        self.commit(ours=ours, theirs=theirs, paths=self.some_paths() if self.chance(30) else [])

    def step_rollback(self):
        self.undo()

    def step_keep_work(self):
        if any(b.stale and b.foreign for b in self.model.boxes):
            return  # whether such a view is old or new where somebody else was is not promised
        self.undo(keep_work=True)

    def step_keep_theirs(self):
        self.undo(keep_theirs=True)

    def undo(self, **how):
        words = ['rollback', 'p'] + ['--' + name.replace('_', '-') for name in how]
        codes, _ = self.model.rollback(**how)
        had = bool(self.model.batches)

        def apply(model):
            _, make = model.rollback(**how)
            make()
        # With nothing to undo it drops the work, sandbox by sandbox; a second one goes on.
        self.decide(words, codes, apply, again=() if had or how.get('keep_work') else words)
        if had and not how and 0 in codes and not self.model.batches:
            self.atoll('rollback', 'p')
            apply_times = not self.foreign_ever
            if apply_times:
                self.check_times()

    def check_times(self):
        for box, times in zip(self.model.boxes, self.times):
            self.same(f'times of directories of {box.root}', times, dump(box.root, box.without)[1])  # noqa: F821

    def step_reset(self):
        self.decide(['reset', 'p'], {0}, lambda m: m.reset(), again=['reset', 'p'])

    def step_refresh(self):
        self.decide(['refresh', 'p'], {0}, lambda m: m.refresh(), again=['refresh', 'p'])

    def step_stop(self):
        work = any(b.listed() for b in self.model.boxes)
        kept = any(b.kept for b in self.model.boxes)
        done = self.atoll('stop', 'p', codes=(0, 1) if kept else (1,) if work else (0,))
        if done.returncode:
            self.check()
            if not self.chance(20):
                return
            point = self.killed('stop')
            if self.atoll('stop', '--force', '--yes', 'p', point=point) is None:
                done = self.atoll('stop', '--force', '--yes', 'p', codes=(0, 1))  # it may have been gone already
                if done.returncode and b'there is no plan' not in done.stderr:
                    raise Broken(f'stop after a kill: {done.stderr.decode()}')
        self.look_at_originals(self.model)
        for box in self.model.boxes:
            box.begin()
            box.kept = False
        self.model.batches = []
        self.times = [dump(b.root, b.without)[1] for b in self.model.boxes]  # noqa: F821
        self.foreign_ever = False
        self.start_plan()

    KINDS = ['nothing'] + ['exec'] * 8 + ['foreign'] * 6 + ['part'] * 4 + ['commit'] * 3 + ['settle'] * 4 + \
        ['look', 'exclude', 'rollback', 'rollback', 'keep_work', 'keep_work', 'keep_theirs', 'reset',
         'refresh', 'refresh', 'stop']

    def go(self):
        self.start()
        for name, seed in self.steps:
            if name == 'nothing':
                continue
            self.r = random.Random(seed)
            self.log.append(f'-- {name}')
            getattr(self, 'step_' + name)()
            self.check()
        self.log.append('-- end')
        self.inside([])
        self.atoll('stop', '--force', '--yes', 'p')
        self.look_at_originals(self.model)


# ---- many ----

def attempt(who, steps, log):
    top = tempfile.mkdtemp(prefix='atoll-model-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'))
    try:
        os.chmod(top, 0o755)
        if who == 'user' and os.geteuid() == 0:
            os.chown(top, NOBODY, NOBODY)
        Sequence(who, top, steps, log).go()
    finally:
        subprocess.run(['chmod', '-R', 'u+rwX', top], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)


def run(who, seed, count):
    """One seed's sequences. Prints the last, that is shortest, failure."""
    last, number = {}, [0]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # still says what it has found

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, deadline=None, database=None, print_blob=False,
                         report_multiple_bugs=False,
                         phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.lists(st.tuples(st.sampled_from(Sequence.KINDS), st.integers(0, 2**32 - 1)),
                               min_size=STEPS, max_size=STEPS))  # a step shrinks to 'nothing'
    def sequence(steps):
        log = []
        number[0] += 1
        try:
            attempt(who, steps, log)
        except Broken as broken:
            last['text'] = '\n'.join(log + [f'BROKEN: {broken}'])
            raise
    try:
        sequence()
    except BaseException as failure:  # a sequence that cannot run has failed too
        print(f'ATOLL_MODEL_SEED={seed} {who}, after {number[0]} sequences')
        print(last.get('text') or repr(failure))
        if 'text' not in last:
            raise
        return 1
    return 0


def run_chunk(who, seed, until):
    if time.monotonic() > until:
        return None
    done = subprocess.run([sys.executable, __file__, 'run', who, str(seed), str(CHUNK)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors='replace')


def main():
    if len(sys.argv) > 1:
        return run(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    whos = ['root', 'user'] if os.geteuid() == 0 else ['user']
    only = os.environ.get('ATOLL_MODEL_SEED')
    print(f'1..{len(whos)}', flush=True)
    bad = 0
    for number, who in enumerate(whos, 1):
        first = 1 if who == 'root' else 100_000
        seeds = [int(only)] if only else range(first, first + SEQUENCES // len(whos) // CHUNK)
        until = time.monotonic() + SECONDS
        with ThreadPoolExecutor(WORKERS) as pool:
            results = [r for r in pool.map(lambda s: run_chunk(who, s, until), seeds) if r]
        broken = [text for code, text in results if code]
        bad += bool(broken)
        print(f'{"not ok" if broken else "ok"} {number} - atm_11_model_as_{who} '
              f'({len(results) * CHUNK} sequences)')
        for text in broken[:8]:
            print(re.sub('^', '# ', text.rstrip(), flags=re.M), flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
