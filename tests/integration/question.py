# SPDX-License-Identifier: Apache-2.0
"""What `atoll run` shows and asks after its command, and the yes/no questions of other commands: on a real
pseudo-terminal, which reports things by itself and on which keys are pressed too early."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from terminals import ATOLL, World  # noqa: E402

QUESTION = r'\[c\]ommit  \[d\]iff  \[k\]eep  \[x\] discard \? $'
CHOICES = 'c: commit, d: show the diff, k: keep'
REPORTS = '\x1b[?62;1;6c\x1b[24;80R\x1b[>0;276;0c'  # what a terminal says when it is asked what it is


class Runs(World):
    """`atoll run` in the directory, and a gate outside it that its commands can wait for."""

    def __init__(self):
        super().__init__()
        self.gate = Path(tempfile.mkdtemp(prefix='atoll-gate.', dir='/var/tmp'))
        self.gate.chmod(0o755)

    def __exit__(self, *exc):
        for terminal in self.terminals:
            terminal.close()
        self.terminals = []
        for name in self.names():
            self.atoll('stop', '--force', '--yes', '--wait', '20', name)
        shutil.rmtree(self.gate)
        super().__exit__(*exc)

    def names(self):
        listed = self.atoll('list', '--json').stdout
        return re.findall(r'"name": ?"([^"]+)"', listed.decode())

    def others(self):
        return [name for name in self.names() if name != 'p']

    def run(self, script, *options, **more):
        # Below a layer a command goes on without what is made outside while it runs.
        return self.terminal(ATOLL, 'run', '--ro', str(self.gate), *options, '--', 'sh', '-c', script, **more)

    def wait_at_gate(self, name='go'):
        return f'while [ ! -e {self.gate}/{name} ]; do sleep 0.02; done'

    def open_gate(self, name='go'):
        (self.gate / name).touch()

    def content(self):
        return (self.root / 'file').read_text()

    def drop_others(self):
        for name in self.others():
            self.atoll('stop', '--force', '--yes', name)


def rows_of(table, path):
    """The words of a table of answers in the source, with what each of them means."""
    text = (ROOT / path).read_text()
    body = re.search(rf'struct question_answer {table}\[\] = {{(.*?)\n\s*}};', text, re.S)[1]
    rows = re.findall(r'\{ "([^"]*)", (\w+) \}', body)
    need(rows, f'no rows in {table} of {path}')
    return rows


def term_question_each_answer():
    """Each row of the table of answers, as it is and in capitals, does what it says."""
    with Runs() as w:
        w.env['ATOLL_PAGER'] = 'cat'
        for i, (word, meaning) in enumerate(rows_of('answers', 'src/cli/cmd-run.c')):
            keys = word.upper() if i % 2 else f'  {word} '
            before, now = w.content(), f'{i}\n'
            t = w.run(f'echo {i} >file')
            t.expect(QUESTION)
            t.type(f'{keys}\r')
            if meaning == 'ANSWER_DIFF':
                t.expect(rf'\+{i}\r')
                t.expect(QUESTION)
                t.type('x\r')
                meaning = 'DECIDE_ROLLBACK'
            same(t.end(), 0, f'exit status after {keys!r}')
            same(w.content(), now if meaning == 'DECIDE_COMMIT' else before, f'the file after {keys!r}')
            same(len(w.others()), 0 if meaning == 'DECIDE_ROLLBACK' else 1, f'plans after {keys!r}')
            w.drop_others()


def term_question_nothing_else_is_an_answer():
    """What is not in the table decides nothing: the answers are listed, and it asks again."""
    with Runs() as w:
        t = w.run('echo new >file')
        t.expect(QUESTION)
        for line in ('cancel', 'clear; ls', 'cc', 'c c', 'y', 'yes', '', 'co', 'rollback all', REPORTS, f'{REPORTS}c',
                     'commit' * 20):
            t.type(f'{line}\r')
            t.expect(CHOICES, f'the answers after {line!r}')
            t.expect(QUESTION)
        # Half a line, and its end.
        t.type('commi\x04t\x04')
        t.type('s\r')
        t.expect(CHOICES)
        t.expect(QUESTION)
        t.type('k\r')
        same(t.end(), 0, 'exit status')
        same(w.content(), 'old\n', 'the file')
        same(len(w.others()), 1, 'plans')


def term_question_keys_before_it_are_dropped():
    """A line that was typed while the command ran is no answer, in whatever mode it left the terminal."""
    for mode in ('true', 'stty raw -echo', 'stty -icanon min 0', 'stty -isig -echo; printf "\\033[c\\033[6n"'):
        with Runs() as w:
            w.env['SCRIPT'] = f'{mode}; echo new >file; echo begun; {w.wait_at_gate()}'
            t = w.terminal('sh', '-c', f'read -r go; {ATOLL} run --ro {w.gate} -- sh -c "$SCRIPT"; echo left=$?; exec sleep 1000')
            before = termios.tcgetattr(t.fd)
            t.type('\r')
            t.expect('begun')
            t.type(f'c\r\ncommit\n{REPORTS}c\r')
            w.open_gate()
            t.expect(QUESTION)
            shown = termios.tcgetattr(t.fd)
            need(shown[3] & termios.ISIG and shown[1] & termios.OPOST and not shown[3] & termios.ECHO,
                 f'after {mode} it does not listen as it should: {shown[1]:o} {shown[3]:o}')
            same(w.content(), 'old\n', f'the file after {mode}')
            t.type('k\r')
            t.expect('left=0')
            same(termios.tcgetattr(t.fd), before, f'the modes of the terminal after {mode}')
            same(w.content(), 'old\n', f'the file after {mode}')


def term_question_a_terminal_that_types_nothing():
    """One that only reports what it is, whenever: the work is kept, and the hang-up is its end."""
    with Runs() as w:
        t = w.run('printf "\\033[c\\033[6n"; echo new >file; (sleep 0.1; printf "\\033[c" >/dev/tty) & echo begun; sleep 0.3')
        t.expect('begun')
        for _ in range(5):
            t.type(REPORTS)
            time.sleep(0.05)
        t.expect(QUESTION)
        t.type(REPORTS)
        os.close(t.fd)
        pid, t.pid = t.pid, 0
        need(os.waitpid(pid, 0)[1] != 0, 'it was hung up on')
        same(w.content(), 'old\n', 'the file')
        same(len(w.others()), 1, 'plans')


def term_question_how_the_command_ended():
    """Its status where it is not 0."""
    with Runs() as w:
        for script, said in (('echo new >file; exit 3', 'exit 3\r\n'), ('echo new >file; kill -KILL $$', 'killed by SIGKILL\r\n'),
                             ('echo new >file; kill -40 $$', 'killed by signal 40\r\n')):
            t = w.run(script, rows=1)
            t.expect(re.escape(said))
            t.expect(QUESTION)
            t.type('x\r')
            t.end()
        t = w.run('echo new >file; echo begun; exec sleep 1000')
        t.expect('begun')
        t.type('\x03')
        t.expect('killed by SIGINT\r\n')
        t.expect(QUESTION)
        t.type('x\r')
        same(t.end(), -signal.SIGINT, 'its end')
        t = w.run('echo new >file')
        t.expect('(?s)^(?!.*exit ).*' + QUESTION)
        t.type('x\r')
        same(t.end(), 0, 'exit status')
        same(w.others(), [], 'plans')


def shown_before_question(t):
    end = t.shown
    while not re.search(QUESTION.encode(), end):
        need(t.read(1), f'it ended: {t.shown!r}')
        end = t.shown
    return end.decode().replace('\r\n', '\n')


def term_question_summary_of_a_project():
    """A repository with a tree of packages, and a database: by directory and kind, in half the screen."""
    with Runs() as w:
        repo, db = w.root / 'r', w.top / 'dev.db'
        (repo / 'src').mkdir(parents=True)
        (repo / 'package.json').write_text('{}\n')
        for i in range(30):
            (repo / f'src/{i}.c').write_text('x\n')
        git = ['git', '-c', 'user.email=a@b', '-c', 'user.name=n', '-C', str(repo)]
        for words in (['init', '-q', '-b', 'main'], ['add', '.'], ['commit', '-qm', 'first']):
            subprocess.run([*git, *words], check=True, env=w.env)
        with sqlite3.connect(db) as made:
            made.execute('create table t (id integer primary key)')
        insert = '; '.join(f'insert into t values ({i})' for i in range(31))
        script = ('mkdir -p node_modules/a/b; for i in $(seq 2040); do : >node_modules/a/b/$i; done;'
                  ' echo "{ }" >package.json; echo "{}" >package-lock.json; for i in 0 1 2; do echo y >src/$i.c; done;'
                  ' for i in 1 2; do echo $i >done; git add done; git -c user.email=a@b -c user.name=n commit -qm $i; done;'
                  f' python3 -c "import sqlite3; c = sqlite3.connect(\'{db}\'); [c.execute(s) for s in \'{insert}\'.split(\';\')];'
                  ' c.commit()"')
        for rows, columns in ((24, 100), (10, 60)):
            t = w.terminal(ATOLL, 'run', '--git', str(repo), '--sqlite', str(db), '--', 'sh', '-c', f'cd {repo} && {script}',
                           rows=rows, columns=columns)
            said = shown_before_question(t)
            need(said.count('\n') + 1 <= rows // 2, f'more than half of {rows} rows: {said}')
            for text in ('2,042 new below r/node_modules/', 'M r/package.json', 'A r/package-lock.json', 'branch main: 2 commits',
                         'dev.db: 31 rows'):
                need(text in said, f'{text} is not in {said}')
            need(max(map(len, said.split('\n'))) <= columns, f'wider than {columns}: {said}')
            t.type('x\r')
            same(t.end(), 0, 'exit status')


def term_question_what_is_apart():
    """Conflicts, and what the policy names, have lines of their own."""
    with Runs() as w:
        (w.root / 'tree/in').mkdir(parents=True)
        (w.root / 'tree/in/file').write_text('x\n')
        t = w.run('rm -r tree; mkfifo pipe; cp /bin/true tool; chmod u+s tool; ln -s /etc/passwd out; echo new >file;'
                  f' echo begun; {w.wait_at_gate()}')
        t.expect('begun')
        (w.root / 'file').write_text('theirs\n')
        w.open_gate()
        said = shown_before_question(t)
        for line in ('conflict, changed outside the plan too: file', 'deleted with all that was in it: tree/',
                     'device, socket or FIFO, not committed without --allow special: pipe',
                     'set-id bits, taken off without --allow setuid: tool', 'link that leaves its tree: out'):
            need(line in said.split('\n'), f'{line} is not in {said}')
        t.type('x\r')
        t.end()


def term_question_what_git_does_not_install():
    """Settings and worktrees that git wrote stay in the plan: so it says where a commit is decided about."""
    with Runs() as w:
        repo = w.root / 'r'
        git = ['git', '-c', 'user.email=a@b', '-c', 'user.name=n', '-C', str(repo)]
        subprocess.run([*git[:-2], 'init', '-q', '-b', 'main', str(repo)], check=True, env=w.env)
        subprocess.run([*git, 'commit', '-q', '--allow-empty', '-m', 'first'], check=True, env=w.env)
        t = w.run(f'cd {repo}; git config core.pager cat; git worktree add -q -b side wt', '--git', str(repo),
                  columns=200)
        said = shown_before_question(t)
        for line in (r'stays in the plan, never installed: \.git/config, \.git/worktrees/',
                     r'a worktree made in the plan: it will not arrive working: \.git/worktrees/wt/'):
            need(re.search(f'^{line}$', said, re.M), f'{line} is not in {said}')
        t.type('x\r')
        t.end()


def term_question_where_it_is_asked():
    """Summary and question go to the same place; half a terminal is none."""
    with Runs() as w:
        run_it = f"'{ATOLL}' run -- sh -c 'echo said; echo new >file'"
        for shell in (f'{run_it} | tee out', f'{run_it} >out'):
            t = w.terminal('bash', '-c', f'cd {w.gate} 2>/dev/null; cd {w.root}; {shell.replace("out", str(w.gate / "out"))}')
            said = shown_before_question(t)
            need('M file' in said, f'no summary: {said}')
            t.type('x\r')
            same(t.end(), 0, 'exit status')
            same((w.gate / 'out').read_text(), 'said\n', 'standard output')
        for shell in (f'{run_it} 2>&1 | tee out', f'{run_it} </dev/null'):
            t = w.terminal('bash', '-c', shell.replace('out', str(w.gate / 'out')))
            t.expect(r'NOT committed: atoll commit \S+\r\n')
            same(t.end(), 0, 'exit status')
            need(b'ommit  [d]iff' not in t.shown, 'it asked')
        same(w.content(), 'old\n', 'the file')


def term_question_the_diff():
    """d: the patch in the pager, and the question again; a reader that leaves early ends nothing."""
    with Runs() as w:
        w.env['ATOLL_PAGER'] = 'sed s/^/PAGED:/'
        t = w.run('echo new >file')
        for answer in ('d', 'Diff'):
            t.expect(QUESTION)
            t.type(f'{answer}\r')
            t.expect(r'PAGED:.*\+new')
        t.expect(QUESTION)
        t.type('c\r')
        same(t.end(), 0, 'exit status')
        same(w.content(), 'new\n', 'the file')
        w.env['ATOLL_PAGER'] = 'head -n 1'
        t = w.run('i=0; while [ $i -lt 3000 ]; do echo some-text-of-a-line-$i; i=$((i + 1)); done >file')
        t.expect(QUESTION)
        t.type('d\r')
        t.expect(QUESTION)
        w.env['ATOLL_PAGER'] = 'cat >/dev/null; printf "reading\\n"; sleep 1000 <&-'
        t.type('k\r')
        same(t.end(), 0, 'exit status')
        t = w.run('echo newer >file')
        t.expect(QUESTION)
        t.type('d\r')
        t.expect('reading')
        t.say('\x03', QUESTION)  # the pager's, and no decision; a shell may miss it while it forks
        t.type('x\r')
        same(t.end(), 0, 'exit status')


def der_22_only_times_are_not_asked_about():
    """A touch is no question: the plan ends, on a terminal and without one; --commit commits it."""
    with Runs() as w:
        for name in ('one', 'two'):
            (w.root / name).write_text('x\n')
        for path in w.root.iterdir():
            os.utime(path, (1, 1))
        t = w.run('touch file one two')
        t.expect(r'only times changed \(3 files\)\r\n')
        same(t.end(), 0, 'exit status')
        need(b'iscard' not in t.shown, f'it asked: {t.shown!r}')
        said = w.atoll('run', '--', 'touch', 'file')
        same(said.stderr, b'only times changed (1 file)\n', 'what it says')
        same(w.others(), [], 'plans')
        same(os.stat(w.root / 'file').st_mtime, 1, 'the time')
        said = w.atoll('run', '--', 'sh', '-c', 'touch file; echo y >one')
        need(b'NOT committed' in said.stderr, f'more than times: {said.stderr!r}')
        w.drop_others()
        same(w.atoll('run', '--commit', '--', 'touch', 'file').returncode, 0, 'exit status of a commit')
        need(os.stat(w.root / 'file').st_mtime > 1, 'the time is not committed')


def term_question_nobody_to_ask():
    """No terminal and no option: kept, and the last line says so."""
    with Runs() as w:
        said = w.atoll('run', '--', 'sh', '-c', 'echo new >file')
        same(said.returncode, 0, 'exit status')
        name = w.others()[0]
        same(said.stderr.decode().split('\n')[-2:], [f'NOT committed: atoll commit {name}', ''], 'the end')
        t = w.run('echo new >file', '--yes')
        t.expect('NOT committed: atoll commit')
        same(t.end(), 0, 'exit status')
        same(w.content(), 'old\n', 'the file')


def term_question_job_control():
    """A shell that was killed leaves the terminal to a group that is gone; ^Z at the question and fg."""
    with Runs() as w:
        t = w.run("bash --norc -ic 'echo new >file; kill -KILL $$'; bash -c 'kill -KILL 0' ; true")
        t.expect(QUESTION)
        t.type('x\r')
        t.end()
        t = w.terminal('bash', '--norc', '--noprofile', '-i')
        t.expect('ready> ')
        t.type(f"{ATOLL} run -- sh -c 'echo new >file'\r")
        t.expect(QUESTION)
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.type('fg\r')
        t.expect(QUESTION, 'the question, once more')
        t.type('no answer\r')
        t.expect(CHOICES)
        t.expect(QUESTION)
        t.type('x\r')
        t.expect('ready> ')
        t.type('echo left=$?; exit\r')
        t.expect('left=0')
        t.end()
        same(w.others(), [], 'plans')


def term_question_after_a_command_that_was_stopped():
    """^Z stops the command and all of the job; fg, it goes on, and then the user is asked."""
    with Runs() as w:
        t = w.terminal('bash', '--norc', '--noprofile', '-i')
        t.expect('ready> ')
        t.type(f"{ATOLL} run -- bash -c 'echo be\"\"gun; while read -r x; do echo \"<$x>\"; done; echo new >file'\r")
        t.expect('begun')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.say('echo still $((40 + 2))\r', 'still 42')
        t.type('fg\r')
        t.expect('run')
        t.say('one\r', '<one>')
        t.type('\x04')
        t.expect(QUESTION)
        t.type('x\r')
        t.expect('ready> ')
        t.type('exit\r')
        t.end()


def term_question_of_each_shell():
    """The terminal is one of the shell's own, with jobs: also for those that insist on a foreground group they know."""
    for shell in ('dash', 'bash'):
        with Runs() as w:
            w.env['SHELL'] = f'/bin/{shell}'
            for words in (('shell', 'p'), ('run',)):
                t = w.terminal(ATOLL, *words)
                t.expect('nothing outside changes until you commit')
                t.say('echo x$?y\r', 'x0y')
                t.type('sleep 1000 & echo job=$?; fg\r')
                t.expect('job=0')
                t.say('\x1a', 'Stopped|suspended')
                t.say('kill -KILL %1; wait; echo new >file; echo tty=$(tty) end=$((40 + 2))\r', 'tty=/dev/console end=42')
                t.type('exit 3\r')
                if words[0] == 'run':
                    t.expect(QUESTION)
                    t.type('x\r')
                same(t.end(), 3, f'exit status of {shell}')
                need(b'process group' not in t.shown, f'{shell} complains: {t.shown!r}')


def term_question_of_a_run_in_a_run():
    """The terminal of the outer one's command is the inner one's to be asked at."""
    with Runs() as w:
        inner = ('mkdir /tmp/d && cd /tmp/d && echo old >file && ATOLL_HOME=/tmp/home '
                 f'{ATOLL} run --unfenced --strategy copy --dir . -- sh -c "tty; echo new >file"')
        t = w.run(f'{inner}; cat file; cd -; echo outer >file')
        t.expect(QUESTION)
        t.type('c\r')
        t.expect(r'committed .*(.|\n)*new\r\n')
        t.expect(QUESTION)
        t.type('k\r')
        same(t.end(), 0, 'exit status')


def term_question_yes_or_no():
    """Each row of the table of yes and no; nothing else, and nothing that was typed before it."""
    with Runs() as w:
        for i, (word, meaning) in enumerate(rows_of('answers', 'src/cli/cli.c')):
            w.atoll('start', 'q', '--dir', str(w.root))
            w.atoll('exec', 'q', '--', 'sh', '-c', 'echo new >file')
            t = w.terminal('sh', '-c', f"echo begun; while [ ! -e {w.gate}/{i} ]; do sleep 0.02; done; exec '{ATOLL}' rm q")
            t.expect('begun')
            t.type('y\ry\r')
            w.open_gate(str(i))
            t.expect(r'\[y/N\] $')
            for line in ('maybe', 'yup', f'{REPORTS}y'):
                t.type(f'{line}\r')
                t.expect('y: yes, n: no')
                t.expect(r'\[y/N\] $')
            t.type(f'{word.upper()}\r')
            status = t.end()
            same((status, 'q' in w.names()), (0, False) if meaning == 'true' else (1, True), f'after {word!r}')
            w.atoll('stop', '--force', '--yes', 'q')
        w.atoll('start', 'q', '--dir', str(w.root))
        w.atoll('exec', 'q', '--', 'sh', '-c', 'echo new >file')
        t = w.terminal(ATOLL, 'rm', 'q')
        t.expect(r'\[y/N\] $')
        t.type('\x03')
        same(t.end(), -signal.SIGINT, 'its end')
        need('q' in w.names(), 'it was stopped')


def term_question_of_a_shell():
    """`atoll run` alone: a shell, and then the question."""
    with Runs() as w:
        w.env['SHELL'] = '/bin/bash'
        t = w.terminal(ATOLL, 'run')
        t.expect(r'in plan \S+: nothing outside changes until you commit')
        t.say('echo new >file; echo x$?y\r', 'x0y')
        t.type('exit 0\r')
        t.expect(QUESTION)
        t.type('c\r')
        same((t.end(), w.content()), (0, 'new\n'), 'the file')


def term_question_discard():
    """Asks, also where the plan is named; without a name it takes the only one at work."""
    asked = r'drop 1 uncommitted change of plan (\S+) \(\d+ s ago: .*\)\? \[y/N\] $'
    with Runs() as w:
        w.atoll('exec', 'p', '--', 'sh', '-c', 'echo new >file')
        for words in ((), ('p',)):
            for answer, status in (('n\r', 1), ('\r', 1), ('\x03', -signal.SIGINT)):
                t = w.terminal(ATOLL, 'discard', *words)
                t.expect(asked)
                t.type(answer)
                same(t.end(), status, f'exit status after {answer!r}')
                same(w.inside('cat', 'file'), 'new\n', f'the plan after {answer!r}')
        t = w.terminal(ATOLL, 'discard', '--yes')
        t.expect('needs the name of the plan')
        same(t.end(), 2, 'exit status')
        t = w.terminal(ATOLL, 'discard')
        t.expect(asked)
        t.type('y\r')
        t.expect('discarded 1 uncommitted change of plan p; it goes on from what is there now')
        same((t.end(), w.inside('cat', 'file')), (0, 'old\n'), 'the plan of start')
        w.atoll('run', '--keep', '--', 'sh', '-c', 'echo new >file')
        t = w.terminal(ATOLL, 'discard')
        t.expect(asked)
        t.type('y\r')
        t.expect('has ended')
        same((t.end(), w.names()), (0, ['p']), 'the plan of run')


def term_question_discard_after_a_commit():
    """What another process commits while it asks can be undone afterwards."""
    with Runs() as w:
        w.atoll('run', '--keep', '--', 'sh', '-c', 'echo new >file; echo other >other')
        name = next(n for n in w.names() if n != 'p')
        t = w.terminal(ATOLL, 'discard', name)
        t.expect(r'drop 2 uncommitted changes of plan \S+ \(.*\)\? \[y/N\] $')
        w.atoll('commit', name, 'file')
        t.type('y\r')
        t.expect('it goes on from what is there now')
        same((t.end(), w.content(), sorted(w.names())), (0, 'new\n', sorted(['p', name])), 'the plan of run')
        w.atoll('undo', name)
        same(w.content(), 'old\n', 'the file after the undo')


def term_question_discard_running():
    """What a running command has not changed yet would be dropped, too: it is named."""
    with Runs() as w:
        w.atoll('exec', 'p', '--background', 'web', '--', 'sleep', '1000')
        t = w.terminal(ATOLL, 'discard', 'p')
        t.expect(r"'sleep 1000' is running in plan p \(.*\): wait for its end, and drop what it changes\? \[y/N\] $")
        t.type('n\r')
        t.expect('nothing was changed')
        same(t.end(), 1, 'exit status')
        w.atoll('job', 'stop', 'p', 'web')


def term_question_of_a_run_that_others_used():
    """What another command committed or changed in the plan meanwhile is neither dropped nor denied."""
    with Runs() as w:
        t = w.run('echo new >file')
        t.expect(QUESTION)
        name = w.others()[0]
        w.atoll('commit', name)
        t.type('x\r')
        t.expect(r'dropped what was not committed; plan \S+ stays, since another command')
        same((t.end(), w.content(), w.others()), (0, 'new\n', [name]), 'after x')
        w.atoll('undo', name)
        same(w.content(), 'old\n', 'the file after the undo')
        w.drop_others()
        # The command itself changes nothing; another one waits for its end.
        t = w.run(f'echo begun; {w.wait_at_gate()}')
        t.expect('begun')
        name = w.others()[0]
        with subprocess.Popen([ATOLL, 'exec', name, '--', 'sh', '-c', 'echo precious >file'], env=w.env, cwd=w.root,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
            w.open_gate()
            t.end()
            other.wait(timeout=300)
        if other.returncode == 0:
            same(w.atoll('exec', name, '--', 'cat', 'file').stdout, b'precious\n', 'what the other command wrote')


def term_question_rm():
    """What would be lost is asked for, plan by plan; nothing is asked where nothing would be."""
    with Runs() as w:
        for name in ('q', 'r', 'empty'):
            w.atoll('start', name, '--dir', str(w.root))
        for name in ('q', 'r'):
            w.atoll('exec', name, '--', 'sh', '-c', 'echo new >file')
        t = w.terminal(ATOLL, 'rm', 'empty', 'q', 'r')
        t.expect('removed empty')
        t.expect(r'plan q: 1 uncommitted change\. Remove it all the same\? \[y/N\] $')
        t.type('n\r')
        t.expect('plan q stays')
        t.expect(r'plan r: 1 uncommitted change\. Remove it all the same\? \[y/N\] $')
        t.type('y\r')
        t.expect('removed r')
        same(t.end(), 1, 'exit status')
        same(sorted(w.others()), ['q'], 'plans')
        same(w.content(), 'old\n', 'the file')
        # With --force nothing is asked.
        t = w.terminal(ATOLL, 'rm', '--force', 'q')
        t.expect('removed q')
        same(t.end(), 0, 'exit status')


def term_question_rm_running():
    """A running command is named, and ended after a yes."""
    with Runs() as w:
        w.atoll('start', 'q', '--dir', str(w.root))
        w.atoll('exec', 'q', '--background', 'web', '--', 'sleep', '1000')
        for answer, status, left in (('n', 1, ['q']), ('y', 0, [])):
            t = w.terminal(ATOLL, 'rm', 'q')
            t.expect(r"plan q: 'sleep 1000' is running\. Remove it all the same\? \[y/N\] $")
            t.type(f'{answer}\r')
            same((t.end(), w.others()), (status, left), f'after {answer}')


def term_question_rm_all():
    """One question for all of them, with a list; its yes covers what the list says."""
    with Runs() as w:
        w.atoll('stop', '--force', '--yes', 'p')
        for name in ('q', 'r'):
            w.atoll('start', name, '--dir', str(w.root))
        w.atoll('exec', 'q', '--', 'sh', '-c', 'echo new >file')
        for answer, status, left in (('', 1, ['q', 'r']), ('yes', 0, [])):
            t = w.terminal(ATOLL, 'rm', '--all')
            t.expect('q +1 uncommitted change')
            t.expect('r +no changes')
            t.expect(r'remove 2 plans\? What is not committed is lost, .*\[y/N\] $')
            t.type(f'{answer}\r')
            same((t.end(), sorted(w.names())), (status, left), f'after {answer!r}')
        same(w.content(), 'old\n', 'the file')


if __name__ == '__main__':
    sys.exit(run([complaining(check) for check in (
        term_question_each_answer,
        term_question_nothing_else_is_an_answer,
        term_question_keys_before_it_are_dropped,
        term_question_a_terminal_that_types_nothing,
        term_question_how_the_command_ended,
        term_question_summary_of_a_project,
        term_question_what_is_apart,
        term_question_what_git_does_not_install,
        term_question_where_it_is_asked,
        term_question_the_diff,
        der_22_only_times_are_not_asked_about,
        term_question_nobody_to_ask,
        term_question_job_control,
        term_question_after_a_command_that_was_stopped,
        term_question_of_each_shell,
        term_question_of_a_run_in_a_run,
        term_question_yes_or_no,
        term_question_rm,
        term_question_rm_running,
        term_question_discard_running,
        term_question_of_a_run_that_others_used,
        term_question_rm_all,
        term_question_of_a_shell,
        term_question_discard,
        term_question_discard_after_a_commit,
    )]))
