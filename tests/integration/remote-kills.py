# SPDX-License-Identifier: Apache-2.0
"""Clients and daemons that die in the middle of a cycle: a repeated call goes on, and nothing is lost on
either side. The table in src/remote/cycle.h is what is tested here, point by point."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
sys.path.insert(0, str(ROOT / 'tools'))
from atolld import main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import LONG, World, look, wait_until  # noqa: E402

KILLS = 1000 if LONG else 12
CLIENTS = 64 if LONG else 6
# In the order they are passed; from the first of these on the command's changes are safe.
BEFORE = ['remote.base.recorded', 'remote.base.started', 'remote.push.scanned', 'remote.push.sent', 'remote.push.done']
AFTER = ['remote.run.done', 'remote.pull.fetched', 'remote.pull.applied', 'remote.pull.recorded', 'remote.pull.received',
         'remote.closed', 'remote.commit.done', 'remote.commit.noted']


def points_in_source():
    return {name for path in (ROOT / 'src/remote').glob('*.c')
            for name in re.findall(r'\bcrashpoint\("(remote\.[^"]+)"\)', path.read_text())}


def kill_at(p, point, script):
    done = p.sh(script, env={'ATOLL_CRASHPOINT': point})
    same(done.returncode, -signal.SIGKILL, f'{point} is not passed: {done.stdout} {done.stderr}')


def check_clean(p, text):
    left = [n for n in look(p.root) if b'.atoll-sync' in n]
    same(left, [], f'{text}: files of ours')
    need(len(p.w.plans_here()) <= 1, f'{text}: plans are left: {p.w.plans_here()}')


def every_point(p):
    p.write('f', 'old\n')
    p.good('true')
    for n, point in enumerate(BEFORE + AFTER):
        p.write('mine', f'{n}\n')
        kill_at(p, point, f'echo {n} >>f; rm -f gone{n - 1}; echo x >gone{n}; mkdir -p d{n}')
        lost = point in BEFORE
        want = p.read('f') if lost else None
        out = p.good('cat f mine')
        if lost:
            same(out, want + f'{n}\n'.encode(), f'{point}: nothing was run')
        else:
            need(out.endswith(f'{n}\n{n}\n'.encode()), f'{point}: what was run is lost: {out}')
            same((p.has(f'd{n}'), p.has(f'gone{n}'), p.has(f'gone{n - 1}')), (True, True, False), point)
        check_clean(p, point)
        same(p.good('cat f'), p.read('f'), f'{point}: both sides')


def kills_every_point(top):
    same(points_in_source(), set(BEFORE + AFTER), 'the points of the source')
    for git in (False, True):
        where = Path(top) / f'git{git}'
        where.mkdir()
        with World(where) as w:
            every_point(w.project(git=git))


def kills_twice_in_a_row(top):
    """The one that goes on is killed, too."""
    with World(top) as w:
        p = w.project()
        p.write('f', 'old\n')
        for second in ('remote.pull.fetched', 'remote.pull.applied', 'remote.pull.recorded', 'remote.pull.received',
                       'remote.commit.done'):
            kill_at(p, 'remote.run.done', 'echo there >f; echo there >new')
            kill_at(p, second, 'echo never >f')
            same(p.good('cat f new'), b'there\n' * 2, second)
            check_clean(p, second)
            p.write('f', 'old\n')
            os.unlink(p.at('new'))


def kills_and_edits_meanwhile(top):
    """What was edited here since the client died is a conflict, whoever brings the changes."""
    with World(top) as w:
        for n, point in enumerate(('remote.run.done', 'remote.pull.applied', 'remote.pull.recorded',
                                   'remote.pull.received')):
            p = w.project(f'p{n}')
            p.write('f', 'old\n')
            kill_at(p, point, 'echo there >f; echo there >g')
            p.write('f', 'here\n')
            done = p.atoll('--remote', 'big', 'commit')
            same((done.returncode, p.read('f'), p.has('g')), (3, b'here\n', False), f'{point}: {done.stderr}')
            need(f'{p.root}/f'.encode() in done.stderr, f'{point}: {done.stderr}')
            plan = re.search(rb'atoll diff (\S+) --conflicts', done.stderr)[1].decode()
            w.must('commit', plan, '--ours', str(p.root / 'f'), cwd=p.root)
            same(p.good('cat f g'), b'there\n' * 2, point)


def kills_of_the_daemon(top):
    """The client says so, nothing is changed here, and a repeated call goes on."""
    with World(top) as w:
        p = w.project()
        p.write('f', 'old\n')
        with p.start('sh', '-c', 'echo half >f; echo ready; sleep 100', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE) as it:
            it.stdout.readline()
            w.restart()
            said = it.communicate(timeout=300)[1]
        same((it.returncode, p.read('f')), (125, b'old\n'), said)
        need(b'went away' in said and b'run it again' in said, said)
        same(p.good('cat f; echo new >f'), b'old\n', 'again')
        same(p.read('f'), b'new\n', 'what it changed')
        with p.start('sh', '-c', 'echo ready; sleep 100', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE) as it:
            it.stdout.readline()
            w.restart(signal.SIGTERM)
            said = it.communicate(timeout=300)[1]
        same(it.returncode, 125, said)
        p.good('true')


def kills_at_any_time(top):
    """No stuck lock, no half of anything, no command that lives on."""
    r = random.Random(8)
    with World(top) as w:
        p = w.project(git=True)
        p.write('n', '0\n')
        p.write('copy', '0\n')
        p.good('true')
        script = 'n=$(($(cat n)+1)); echo $n >n; sleep 0.05; echo $n >copy; echo $n >>log; git add -A; git commit -qm $n'
        for _ in range(KILLS):
            it = p.start('sh', '-c', script, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(r.random() * 0.8)
            it.kill()
            it.wait()
            if p.read('n') != p.read('copy'):  # killed in the middle of its commit, which the next command finishes
                p.w.must('recover')
            same(p.read('n'), p.read('copy'), 'half of it is here')
        begun = time.monotonic()
        out = p.good('cat n copy; wc -l <log; git status --porcelain; git fsck --strict 2>&1')
        need(time.monotonic() - begun < 60, 'the session is stuck')
        n, copy, lines = out.split()[:3]
        same((n, copy, len(out.split())), (copy, lines, 3), f'half of it is there: {out}')
        same(p.read('n'), n + b'\n', 'both sides')
        check_clean(p, 'at the end')
        wait_until(lambda: subprocess.run(['pgrep', '-f', 'echo $n >copy'], capture_output=True, check=False).returncode != 0,
                   'a command lives on')


def clients_in_order(top):
    """Many clients of one session: one after another, in the order they came, each with its own state."""
    with World(top) as w:
        p = w.project()
        p.write('log', '')
        p.good('true')
        first = p.start('sh', '-c', 'echo ready; read x', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first.stdout.readline()
        waiting = []
        for i in range(CLIENTS):
            it = p.start('sh', '-c', f'echo {i} >>log; cat log', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env={'ATOLL_CRASHPOINT': ''})
            need(b'waiting' in it.stderr.readline(), 'it does not wait')
            waiting.append(it)
        first.communicate(b'\n', timeout=300)
        for i, it in enumerate(waiting):
            out, said = it.communicate(timeout=300)
            same((it.returncode, out), (0, ''.join(f'{k}\n' for k in range(i + 1)).encode()), said)
        same(p.read('log'), ''.join(f'{k}\n' for k in range(CLIENTS)).encode(), 'the end')


if __name__ == '__main__':
    main([kills_every_point, kills_twice_in_a_row, kills_and_edits_meanwhile, kills_of_the_daemon, kills_at_any_time,
          clients_in_order])
