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
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis
from hypothesis import strategies as st

sys.path.insert(0, os.environ.get('ATOLL_TEST_LIB') or os.path.join(os.path.dirname(__file__), '../lib'))
import model_agent  # noqa: E402
from model_agent import dump  # noqa: E402
from model_edits import NAMES, Edits  # noqa: E402
from model_plan import MAY, Box, Entry, Model, below, join, parent  # noqa: E402

LONG = os.environ.get('ATOLL_LONG') == '1'
SEQUENCES = int(os.environ.get('ATOLL_MODEL_COUNT', 2000 if LONG else 150))
SECONDS = 36000 if LONG else 35    # for each of the tests
CHUNK = 10                         # sequences of one seed
STEPS = 14
WORKERS = 2
NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
with open(model_agent.__file__, encoding='utf-8') as source:
    AGENT = source.read()
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


class Broken(Exception):
    pass


# ---- one sequence ----

class Sequence(Edits):
    def __init__(self, who, top, steps, log):
        super().__init__()
        self.user = who == 'user' and os.geteuid() == 0
        self.anonymous = who == 'user'
        self.top, self.steps, self.log = top, steps, log
        self.r = random.Random(steps[0][1])
        self.foreign_ever = False
        self.env = dict(os.environ, ATOLL_HOME=f'{top}/home', HOME=top, NO_COLOR='1')

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
            got, _ = dump(box.root, box.without)
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
        done = self.atoll('exec', 'p', '--', sys.executable, '-I', '-S', '-c', AGENT,
                          stdin=json.dumps(todo))
        looks = json.loads(done.stdout)
        self.look_at_views('before', looks[0])
        for apply, _ in edits:
            apply()
        for box in self.model.boxes:
            box.forget_gone()
        if edits:
            self.look_at_views('after', looks[1])

    def look_at_views(self, when, look):
        for box, got in zip(self.model.boxes, look):
            self.same(f'view of {box.root} {when}', {p: e.seen for p, e in box.view.items()}, got)

    # -- steps --

    def start(self):
        count = self.pick([1, 1, 2, 3])
        strategies = [self.pick(['overlay', 'copy']) for _ in range(count)]
        nested = count > 1 and self.chance(30)
        boxes = []
        for i, strategy in enumerate(strategies):
            inner = nested and i == count - 1
            root = f'{boxes[0].root}/d/inner' if inner else f'{self.top}/r{i}'
            boxes.append(Box(root, strategy, anonymous=self.anonymous))
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
            tree, _ = dump(box.root, box.without)
            box.res = {p: Entry(*e) for p, e in tree.items()}
            box.begin()
        self.times = [dump(b.root, b.without)[1] for b in boxes]
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
        done = self.run([sys.executable, '-I', '-S', '-c', AGENT],
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
        found, open_ones = [], []
        for box in self.model.boxes:
            for op in box.ops():
                verdict, path = box.judge(op), f'{box.root}/{op.path}'.rstrip('/')
                if verdict:
                    found.append(path)
                if verdict == MAY:
                    open_ones.append(path)
        ours, theirs = [], []
        for path in found:
            if self.chance(90):
                # His version of what may be no conflict is taken or not.
                is_open = any(below(p, path) for p in open_ones)
                (ours if self.chance(50) or is_open else theirs).append(path)
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
            self.same(f'times of directories of {box.root}', times, dump(box.root, box.without)[1])

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
        self.times = [dump(b.root, b.without)[1] for b in self.model.boxes]
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
