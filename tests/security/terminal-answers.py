# SPDX-License-Identifier: Apache-2.0
"""A command that tries to answer the question of `atoll run` by way of the terminal. The terminal here reports what
it is asked for, as real ones do, and has their worst known defects: titles and rejected requests come back with line
ends and control characters in them. It types nothing by itself, so nothing may be committed. In a build with
-Dsabotage=true each attack is tried once more without the fence that stops it, and then it must succeed."""

import os
import re
import select
import socket
import stat
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from terminals import ATOLL, PATIENCE, Terminal, World  # noqa: E402
from users import begin  # noqa: E402

SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
QUESTION = rb'\[c\]ommit .*\? '

# What a terminal is asked, and what it says.
REPORTS = (
    (rb'\x1b\[c', lambda t, m: b'\x1b[?62;1;6c'),
    (rb'\x1b\[>c', lambda t, m: b'\x1b[>0;276;0c'),
    (rb'\x1b\[5n', lambda t, m: b'\x1b[0n'),
    (rb'\x1b\[6n', lambda t, m: b'\x1b[24;80R'),
    (rb'\x1b\]2;([^\x07]*)\x07', lambda t, m: t.name_it(m[1])),
    (rb'\x1b\[21t', lambda t, m: b'\x1b]l' + t.title + b'\x1b\\'),
    (rb'\x1bP\$q(.*?)\x1b\\', lambda t, m: b'\x1bP0$r' + m[1].replace(b'\r\n', b'\n') + b'\x1b\\'),
    (rb'\x1b\]52;c;\?\x07', lambda t, m: b'\x1b]52;c;Ywo=\x07'),
    (rb'\x1b\[\?2004\$p', lambda t, m: b'\x1b[?2004;1$y'),
)
ALL = re.compile(b'|'.join(b'(?:%s)' % re.sub(rb'\((?!\?)', b'(?:', request) for request, _ in REPORTS), re.S)


class Answering(Terminal):
    """Says what it is asked for; with SLOW only when it is let go."""

    def __init__(self, *words, slow=False, **more):
        self.heard, self.title, self.held, self.slow = b'', b'', [], slow
        super().__init__(*words, **more)

    def name_it(self, title):
        self.title = title
        return b''

    def read(self, timeout):
        before = len(self.shown)
        more = super().read(timeout)
        self.heard += self.shown[before:]
        while (found := ALL.search(self.heard)):
            self.heard = self.heard[found.end():]
            for request, answer in REPORTS:
                if (m := re.fullmatch(request, found[0], re.S)):
                    self.held.append(answer(self, m))
        if not self.slow:
            self.let_go()
        return more

    def let_go(self):
        for report in self.held:
            os.write(self.fd, report)
        self.held = []

    def decided(self):
        """How it ends when the user wants to keep the work, and does not care what else is in the line."""
        end = time.monotonic() + PATIENCE
        while True:
            self.type('k\r')
            until = time.monotonic() + 2
            while time.monotonic() < until:
                more = self.read(0.05)
                found = re.search(rb'(kept|committed) ', self.shown)
                if found:
                    return found[1].decode()
                need(more and time.monotonic() < end, f'it does not end: {self.shown!r}')


class Runs(World):
    def terminal(self, *argv, slow=False, **more):
        self.terminals.append(Answering(list(argv), self.env, self.root, slow=slow, **more))
        return self.terminals[-1]

    def names(self):
        return re.findall(r'"name": ?"([^"]+)"', self.atoll('list', '--json').stdout.decode())

    def content(self):
        return (self.root / 'file').read_text()

    def forget(self):
        for name in self.names():
            if name != 'p':
                self.atoll('stop', '--force', '--yes', name)
        (self.root / 'file').write_text('old\n')


def attack(script, slow):
    """What becomes of the work: of a terminal that only reports, and is hung up; then of a user who keeps it."""
    with Runs() as w:
        t = w.terminal(ATOLL, 'run', '--', 'sh', '-c', f'echo new >file; {script}', slow=slow)
        t.expect(QUESTION.decode())
        t.let_go()
        ended = t.decided()
        kept = (ended, w.content())
        t.end()
        w.forget()
        t = w.terminal(ATOLL, 'run', '--', 'sh', '-c', f'echo new >file; {script}', slow=slow)
        t.expect(QUESTION.decode())
        t.let_go()
        os.close(t.fd)
        pid, t.pid = t.pid, 0
        os.waitpid(pid, 0)
        same(w.content(), 'old\n', f'after a hang-up: {script!r}')
        same(len([n for n in w.names() if n != 'p']), 1, f'plans after a hang-up: {script!r}')
        w.forget()
        return kept


def printf(text):
    return "printf '" + ''.join(f'\\{b:03o}' for b in text) + "'"


# Each is tried with a terminal that reports at once, and with one that does so only when the question is shown.
QUIET = (
    ('what it is', b'\x1b[c\x1b[>c\x1b[5n\x1b[6n' * 3),
    ('its clipboard and modes', b'\x1b[?2004h\x1b]52;c;?\x07\x1b[?2004$p'),
    ('a line in 8 bits', b'\x1b G\x1b[c'),
)
DEFECTS = (
    ('a title with lines', b'\x1b]2;x\rc\r\x07\x1b[21t'),
    ('a rejected request with lines', b'\x1bP$q\nc\n\x1b\\'),
    ('one that kills its own line', b'\x1bP$q\x15c\n\x1b\\'),
    ('one that rubs itself out', b'\x1bP$q' + b'\x7f' * 16 + b'c\n\x1b\\'),
    ('one with a bell', b'\x1bP$q\x07\nc\n\x1b\\'),
    ('one that is split by the end of input', b'\x1bP$q\x04c\n\x1b\\'),
    ('many', b'\x1b]2;\nc\n\x07' + b'\x1b[21t' * 20),
)


def attack_by_reports():
    """Reports of what it is, at once and late, in raw mode too: nothing is committed."""
    for name, text in QUIET:
        for slow in (False, True):
            for mode in ('true', 'stty raw -echo'):
                same(attack(f'{mode}; {printf(text)}', slow), ('kept', 'old\n'), f'{name}, {mode}, slow: {slow}')


def attack_by_lines_in_reports():
    """A report that repeats a text of the command's with line ends in it, late: still no answer."""
    for name, text in DEFECTS:
        same(attack(printf(text), True), ('kept', 'old\n'), f'{name}, late')
    same(attack(printf(DEFECTS[1][1]), False), ('kept', 'old\n'), 'at once')
    if SABOTAGE:
        os.environ['ATOLL_SABOTAGE'] = 'reports'
        try:
            same(attack(printf(DEFECTS[2][1]), True), ('committed', 'new\n'), 'control: reports are read as keys')
        finally:
            del os.environ['ATOLL_SABOTAGE']


def attack_in_the_background():
    """What is left running when the command ends writes on and on: it has lost the terminal with it."""
    text = printf(DEFECTS[1][1])
    same(attack(f'(trap "" HUP; while :; do {text}; {text} >/dev/tty; done) & {text}', True), ('kept', 'old\n'), 'the work')
    same(attack(f'setsid sh -c \'trap "" HUP; while :; do printf "\\033[c"; done\' & {text}', False), ('kept', 'old\n'),
         'in a session of its own')


def keep_descriptor(slow=True):
    """A descriptor of the command's terminal in the hands of a process outside: the file it is, and who reads what it
    writes while the question is shown."""
    with Runs() as w:
        at = w.top / 'open/socket'
        at.parent.mkdir()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(at))
        listener.listen()
        os.chmod(at, 0o777)
        pass_it = (f'import os, socket; s = socket.socket(socket.AF_UNIX); s.connect("{at}"); '
                   'socket.send_fds(s, [b"x"], [0]); s.recv(1); open("file", "w").write("new\\n")')
        t = w.terminal(ATOLL, 'run', '--rw', str(at.parent), '--', 'python3', '-c', pass_it, slow=slow)
        while not select.select([listener], [], [], 0.05)[0]:
            need(t.read(0), f'it does not come: {t.shown!r}')
        taker, _ = listener.accept()
        _, fds, _, _ = socket.recv_fds(taker, 1, 1)
        taker.send(b'x')
        t.expect(QUESTION.decode())
        outer = os.stat(f'/proc/{t.pid}/fd/0')
        mine = os.fstat(fds[0])
        need(stat.S_ISCHR(mine.st_mode), 'it is a terminal')
        is_outer = (mine.st_rdev, mine.st_dev) == (outer.st_rdev, outer.st_dev)
        try:
            os.write(fds[0], b'still here')
            written = True
        except OSError:
            written = False
        t.type('k\r')
        t.expect('kept ')
        t.end()
        same(w.content(), 'old\n', 'the file')
        listener.close()
        taker.close()
        os.close(fds[0])
        w.forget()
        return is_outer, written


def attack_with_a_descriptor_that_is_kept():
    """The command never had the user's terminal, and what it had is hung up."""
    same(keep_descriptor(), (False, False), 'the terminal of the user, and still written to')
    if SABOTAGE:
        os.environ['ATOLL_SABOTAGE'] = 'own-terminal'
        try:
            same(keep_descriptor(), (True, True), 'control: the command has the terminal of the user')
        finally:
            del os.environ['ATOLL_SABOTAGE']


def attack_by_hiding_the_question():
    """Concealed text, another screen and another character set are over before the user is shown anything."""
    with Runs() as w:
        t = w.terminal(ATOLL, 'run', '--', 'sh', '-c', f'echo new >file; {printf(b"last" + bytes([27]) + b"[8m" + bytes([27]) + b"[?1049h")}')
        t.expect(r'last\x1b\[8m\x1b\[\?1049h\x1b\[!p\x1b\[0m\x1b\(B\x0f.*\x1b\[\?1047l(.|\n)*' + QUESTION.decode())
        t.type('k\r')
        t.expect('kept ')
        t.end()
        w.forget()


def attack_from_where_nothing_is_asked():
    """Without a terminal of its own the command is never followed by a question: another relay has this one."""
    with Runs() as w:
        w.atoll('start', 'q', '--dir', str(w.root))
        t = w.terminal('sh', '-c', f'{ATOLL} exec --transcript q -- sh -c "echo be\'\'gun; read -r x" </dev/tty & '
                       f'until [ -e go ]; do sleep 0.05; done; {ATOLL} run -- sh -c "echo new >file"')
        t.expect('begun')
        (w.root / 'go').touch()
        t.expect('not asked: the command could not be given a terminal of its own')
        t.expect('NOT committed')
        same(w.content(), 'old\n', 'the file')
        t.type('\r')
        t.end()
        w.forget()
        w.atoll('stop', '--force', '--yes', 'q')


def control_the_user_types():
    """The same terminal, and a user: what is typed counts, with keys that edit it."""
    with Runs() as w:
        for keys in ('c\r', 'd\x7fc\r', 'diff\x15c\r', 'COMMIT\r'):
            t = w.terminal(ATOLL, 'run', '--', 'sh', '-c', f'echo new >file; {printf(QUIET[0][1])}')
            t.expect(QUESTION.decode())
            t.type(keys)
            t.expect('committed ')
            same((t.end(), w.content()), (0, 'new\n'), f'after {keys!r}')
            w.forget()


if __name__ == '__main__':
    begin()
    sys.exit(run([complaining(check) for check in (
        attack_by_reports,
        attack_by_lines_in_reports,
        attack_in_the_background,
        attack_with_a_descriptor_that_is_kept,
        attack_by_hiding_the_question,
        attack_from_where_nothing_is_asked,
        control_the_user_types,
    )]))
