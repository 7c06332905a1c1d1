# SPDX-License-Identifier: Apache-2.0
"""Random edits: each as a change of the model and as words for the agent."""

import os

from model_plan import Entry, below, cut, join, parents, subtree

NAMES = ['a', 'b.o', 'c', 'd', 'e e', 'new\nline', '-rf', '*', 'f.o', '\udcff\udcfe', 'caf\u00e9']


class Edits:
    """Drawn from self.r, which whoever inherits this sets anew for each step."""

    def __init__(self):
        self.r, self.number, self.model, self.log = None, 0, None, []

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
            return lambda b: (first(b), second(b), b.moved.add(q)), ['rename', at(p), at(q)]
        if kind == 'move-dir' and movable and free:
            p, q = self.pick(movable), self.pick(free)
            if below(q, p):
                return None
            # An overlay cannot rename a directory of the resource; it is copied and removed.
            moved = {q + k[len(p):]: Entry(*e.seen, ino=e.ino if box.strategy == 'copy' else None)
                     for k, e in subtree(view, p).items()}
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
