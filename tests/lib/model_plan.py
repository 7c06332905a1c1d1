# SPDX-License-Identifier: Apache-2.0
"""What a plan should make of its resources: the originals, the view of every sandbox and the stack of
commits. model.py holds the real thing against it."""

CONFLICT, REFUSED = 3, 4  # exit statuses
NO, MAY, YES = 0, 1, 2


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

    def __init__(self, root, strategy, without=(), anonymous=False):
        self.root, self.strategy, self.without = root, strategy, list(without)
        self.anonymous = anonymous  # an overlay does not know what a file of it was copied up from
        self.res, self.base, self.view = {}, {}, {}
        self.stale, self.kept = False, False
        self.foreign = set()    # paths somebody else changed since the base was taken
        self.touched = set()    # paths that commands changed since then
        self.moved = set()      # paths to which they renamed a file

    def copy(self):
        other = Box(self.root, self.strategy, self.without, self.anonymous)
        other.res, other.base, other.view = dict(self.res), dict(self.base), dict(self.view)
        other.stale, other.kept = self.stale, self.kept
        other.foreign, other.touched, other.moved = set(self.foreign), set(self.touched), set(self.moved)
        return other

    def begin(self):
        self.base, self.view = dict(self.res), dict(self.res)
        self.stale, self.foreign, self.touched, self.moved = False, set(), set(), set()

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
        """The fewest operations on disjoint paths."""
        found = []

        def visit(path):
            old, new = self.base.get(path), self.view.get(path)
            if not old or not new:
                found.append(Op('delete' if old else 'create', path))
            elif old.kind == 'd' and new.kind == 'd' and old.ino == new.ino:
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
            return MAY if path in self.foreign or self.is_unexplained(path) else NO
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

    def is_unexplained(self, path):
        """Renamed and changed, in a directory where somebody else was: an ordinary user's overlay takes
        it for what he may have deleted there."""
        return self.strategy == 'overlay' and self.anonymous and path in self.moved and \
            any(parent(p) == parent(path) for p in self.foreign) and \
            not any(e.seen == self.view[path].seen for e in self.base.values())

    def forget_gone(self):
        """Of what a command deletes after somebody else did, an overlay keeps no trace: his next file of
        that name is in the view."""
        if self.strategy == 'overlay':
            self.base = {p: e for p, e in self.base.items() if p in self.view or p in self.res}

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
                        how, verdict = 'theirs', NO  # never asked for where it may be none
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
