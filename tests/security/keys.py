# SPDX-License-Identifier: Apache-2.0
"""What the holder of an agent's key tries, with nothing but that key: to bring something into a directory of the
host that no reviewer looked at. Each test is an attack, and beside it the control: who may do it, does it."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import Daemon, main  # noqa: E402
from execclient import Refused, Session  # noqa: E402
from expect import need, same  # noqa: E402

JSON = 'Content-Type: application/json'
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'


class World(Daemon):
    """A daemon on TCP, an agent's key, and a directory of the host."""

    def __init__(self, top, *options, env=None, before=lambda w: None):
        super().__init__(top, f'--socket={top}/sock', '--listen=127.0.0.1:0', f'--mirrors={top}/mirrors', *options, env=env)
        self.local, self.victim = self.top / 'local', self.top / 'victim'
        for path in (self.local, self.victim):
            path.mkdir()
        (self.local / 'file').write_text('one\n')
        before(self)

    def start(self):
        super().start()
        self.tcp = next(p for p in self.places() if not p.startswith('unix:'))
        self.key = self.new_key('agent', 'agent')
        return self

    def atoll(self, *words, check=False):
        done = subprocess.run([os.environ['ATOLL'], *words], env=self.env, cwd='/', stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        need(not check or done.returncode == 0, f'atoll {words}: {done.stderr}')
        return done

    def new_key(self, name, scope):
        answer = self.ask('POST /v1/keys', {'name': name, 'scope': scope}, headers=[JSON])
        return [f"Authorization: Bearer {answer.json()['secret']}"]

    def as_agent(self, line, body=None, bearer=None):
        return self.ask(line, body, headers=[*([JSON] if body is not None else []), *(bearer or self.key)], place=self.tcp)

    def token(self, sandbox):
        answer = self.as_agent(f'POST /v1/sandboxes/{sandbox}/auth', {})
        same(answer.status, 201, 'a token')
        return [f"Authorization: Bearer {answer.json()['token']}"]

    def made(self):
        """A session of the agent's, and a token of it."""
        answer = self.as_agent('POST /v1/sessions', {'label': 'agent:/src'})
        same(answer.status, 201, 'a session')
        return answer.json(), self.token(answer.json()['sandbox'])

    @contextlib.contextmanager
    def session(self, plan, bearer):
        with Session(self, plan, place=self.tcp, headers=bearer) as s:
            yield s.open()

    def stream(self):
        said = subprocess.run([os.environ['ATOLL_SYNC'], 'send', str(self.local)], input=b'file\0', capture_output=True,
                              check=True, timeout=300)
        return said.stdout

    def audit(self, plan):
        """What was decided about the plan: (what, outcome)."""
        lines = [json.loads(line) for line in self.atoll('log', '--audit', check=True).stdout.splitlines()]
        return [(e['what'], e['outcome']) for e in lines if e['plan'] == plan and ' ' not in e['what']]

    def __exit__(self, kind, *rest):
        if kind is None:
            for plan in json.loads(self.atoll('list', '--json', check=True).stdout)['plans']:
                self.atoll('stop', '--force', '--yes', '--wait', '20', plan['id'])
        super().__exit__(kind, *rest)


SHELL = 'cp /bin/true "$1/shell" && chmod 4755 "$1/shell"'


# ---- a session commits its mirror, and nothing else ----

def bring_to_host(w):
    """One more directory in the plan of a session: "received" brought what a command did there to the host."""
    made, bearer = w.made()
    plan = made['plan']['id']
    added = w.as_agent(f'POST /v1/plans/{plan}/sandboxes', {'root': str(w.victim)}, bearer)
    with w.session(plan, bearer) as s:
        s.push(w.stream())
        s.run('sh', '-c', SHELL, '-', str(w.victim) if added.status == 201 else made['root'])
        s.received(s.exit['run'])
        s.shut()
    return added, Path(made['root'])


def keys_a_session_commits_its_mirror_only(top):
    with World(top) as w:
        added, mirror = bring_to_host(w)
        same(list(w.victim.iterdir()), [], 'what the agent brought to the host')
        same((added.status, added.json()['code']), (403, 'denied'), 'one more directory')
        # The mirror is the agent's own: there it may, as in its workspace.
        need((mirror / 'shell').stat().st_mode & stat.S_ISUID, 'the mirror is what the workspace was')
    if SABOTAGE:  # the control: where the plan is not checked, the attack succeeds
        (w.top / 'again').mkdir()
        with World(w.top / 'again', env={'ATOLL_SABOTAGE': 'mirror-only'}) as w:
            same(bring_to_host(w)[0].status, 201, 'one more directory')
            need((w.victim / 'shell').stat().st_mode & stat.S_ISUID, 'nothing came to the host')


def keys_a_plan_with_more_than_the_mirror_is_no_session(top):
    """However it came to have more: no step commits or drops any of it, and the agent does not end it."""
    with World(top) as w:
        made, bearer = w.made()
        plan = made['plan']['id']
        with w.session(plan, bearer) as s:
            s.push(w.stream())
            s.shut()
        need('takes no further resources' in w.atoll('add', plan, '--dir', str(w.victim)).stderr, 'one more by a command')
        record = w.home / 'sessions' / plan
        record.rename(w.top / 'record')
        w.atoll('add', plan, '--dir', str(w.victim), check=True)
        (w.top / 'record').rename(record)
        w.atoll('exec', plan, '--', 'sh', '-c', SHELL, '-', str(w.victim), check=True)
        before = w.atoll('diff', plan, check=True).stdout
        need('shell' in before, f'the work: {before}')
        try:
            with w.session(plan, bearer):
                pass
            need(False, 'the session was opened')
        except Refused as why:
            same(why.code, 'denied', 'the session')
        same(w.as_agent(f'DELETE /v1/sessions/{plan}').json()['code'], 'denied', 'ended by the agent')
        same(w.atoll('diff', plan, check=True).stdout, before, 'the work')
        same(list(w.victim.iterdir()), [], 'what came to the host')
        # The control: who may, does.
        w.atoll('commit', plan, '--allow', 'setuid', check=True)
        need((w.victim / 'shell').exists(), 'committed by the user')


# ---- a plan's id is nobody's name ----

def keys_a_name_is_no_id(top):
    with World(top) as w:
        made, _ = w.made()
        for name in (made['plan']['id'], 'deadbeefdeadbeef'):
            answer = w.as_agent('POST /v1/plans', {'name': name, 'resources': [{'root': str(w.local)}]})
            same((answer.status, answer.json()['code']), (400, 'invalid'), 'a name that is an id')
            same(w.atoll('start', name, '--dir', str(w.local)).returncode, 2, 'by a command')
        # The id of a plan that is gone is the beginning of nothing.
        gone = made['plan']['id']
        w.as_agent(f'DELETE /v1/sessions/{gone}')
        w.atoll('start', f'{gone}-more', '--dir', str(w.local), check=True)
        for words in (('show', gone), ('exec', gone, '--', 'true'), ('diff', gone)):
            need(w.atoll(*words).returncode != 0, f'{words}')
        same(w.ask(f'GET /v1/plans/{gone}').status, 404, 'by the daemon')
        same(w.atoll('show', f'{gone}-').returncode, 0, 'the control: a longer beginning')


# ---- what is decided is on record ----

def keys_every_decision_is_audited(top):
    twice = lambda *verbs: [(v, o) for v in verbs for o in ('asked', 'ok')]  # noqa: E731
    with World(top) as w:
        made, bearer = w.made()
        plan = made['plan']['id']
        with w.session(plan, bearer) as s:
            s.push(w.stream())
            same(w.audit(plan), twice('reset'), 'the first push')
            s.push(w.stream())
            same(w.audit(plan)[2:], twice('commit'), 'a push')
            s.run('sh', '-c', 'echo two >file')
            s.received(s.exit['run'])
            same(w.audit(plan)[4:], twice('commit'), 'received')
            s.run('sh', '-c', 'echo three >file')
            before = w.audit(plan)
            (w.home / 'audit.log').rename(w.top / 'kept')
            (w.home / 'audit.log').mkdir()
            try:
                s.received(s.exit['run'])
                need(False, 'received')
            except Refused as why:
                need('audit log' in why.problem['detail'], f'{why.problem}')
            same((Path(made['root']) / 'file').read_text(), 'two\n', 'the mirror, when it cannot be recorded')
            (w.home / 'audit.log').rmdir()
            (w.top / 'kept').rename(w.home / 'audit.log')
            same(w.audit(plan), before, 'the audit log')
            s.received(s.exit['run'])
            s.shut()
        lines = [json.loads(line) for line in (w.home / 'audit.log').read_text().splitlines()]
        who = {(e['by'], e['who'].split()[0]) for e in lines if e['plan'] == plan and e['what'] == 'commit'}
        same(who, {('http', 'token')}, 'by whom')
        same(w.as_agent(f'DELETE /v1/sessions/{plan}').status, 200, 'ended')
        same(w.audit(plan)[-2:], twice('stop'), 'ended')
        # Every other decision, by request and by command.
        review = w.new_key('review', 'review')
        project = w.top / 'project'
        project.mkdir()
        made = w.as_agent('POST /v1/plans', {'name': 'p', 'resources': [{'root': str(project)}]}).json()['plan']['id']
        for verb in ('commit', 'undo', 'redo', 'refresh', 'rollback', 'reset'):
            if verb == 'commit':
                w.atoll('exec', 'p', '--', 'sh', '-c', f'echo x >"{project}/new"', check=True)
            etag = w.ask('GET /v1/plans/p/diff').headers['etag']
            before = len(w.audit(made))
            head = [JSON, f'If-Match: {etag}']
            answer = (w.ask(f'POST /v1/plans/p/{verb}', {}, headers=head) if verb in ('refresh', 'reset') else
                      w.ask(f'POST /v1/plans/p/{verb}', {}, headers=[*head, *review], place=w.tcp))
            same(answer.status, 200, f'{verb}: {answer.body}')
            same(w.audit(made)[before:], twice(verb), verb)
            if verb == 'commit':
                same(w.ask('POST /v1/plans/p/commit', {'dry_run': True}, headers=[JSON]).status, 200, 'a dry run')
                same(w.audit(made)[before:], twice(verb), 'a dry run decides nothing')
        same(w.ask('POST /v1/plans/p/undo', {}, headers=[JSON]).status // 100, 4, 'nothing to undo')
        need(w.audit(made)[-1][1] not in ('asked', 'ok'), 'how that went')
        for words, verb in ((('commit', 'p'), 'commit'), (('undo', 'p'), 'undo'), (('redo', 'p'), 'redo'),
                            (('refresh', 'p'), 'refresh'), (('discard', 'p', '--yes'), 'reset'),
                            (('rollback', 'p', '--yes'), 'rollback'), (('rm', 'p'), 'stop')):
            if verb == 'commit':
                w.atoll('exec', 'p', '--', 'sh', '-c', f'echo y >"{project}/new"', check=True)
            before = len(w.audit(made))
            w.atoll(*words, check=True)
            same(w.audit(made)[before:], [(verb, 'ok')], f'atoll {words}')
        same(w.atoll('log', '--audit', '--check').returncode, 0, 'the chain')


# ---- what was looked at is what is committed ----

def keys_nothing_changes_after_the_review(top):
    """Times and attributes, too: an agent that waits for the reviewer's look changes them unseen."""
    with World(top) as w:
        project = w.top / 'project'
        project.mkdir()
        (project / 'old').write_text('old\n')
        answer = w.as_agent('POST /v1/plans', {'name': 'p', 'resources': [{'root': str(project)}]}).json()
        plan = answer['plan']['id']
        token, review = w.token(plan), w.new_key('review', 'review')

        def run(script):
            # The answer comes line by line, and ends with the command.
            got = w.as_agent(f'POST /v1/plans/{plan}/exec', {'argv': ['sh', '-ec', f'cd "{project}"; {script}']}, token)
            same(json.loads(got.body.splitlines()[-1])['exit_code'], 0, script)

        run('echo new >new; echo newer >old; mkdir dir; ln -s new link; touch -h -d @1500000000 new old link')
        for script in ('touch -d @1 new', 'touch -d @1500000000.000000001 old', 'touch -h -d @1 link',
                       'python3 -c "import os; os.setxattr(\'dir\', \'user.a\', b\'1\')"', 'chmod 700 dir', 'ln -sf old link'):
            etag = w.ask(f'GET /v1/plans/{plan}/diff').headers['etag']
            head = [JSON, f'If-Match: {etag}', *review]
            run(script)
            got = w.ask(f'POST /v1/plans/{plan}/commit', {}, headers=head, place=w.tcp)
            same((got.status, got.json()['code']), (412, 'stale'), script)
        same((project / 'old').read_text(), 'old\n', 'the project')
        # The control: what was looked at last is committed.
        etag = w.ask(f'GET /v1/plans/{plan}/diff').headers['etag']
        got = w.ask(f'POST /v1/plans/{plan}/commit', {}, headers=[JSON, f'If-Match: {etag}', *review], place=w.tcp)
        same((got.status, int((project / 'new').stat().st_mtime)), (200, 1), 'what was looked at')


# ---- what the administrator has set is a ceiling ----

# setting, its value; member, what is too much, what is not
CEILINGS = [
    ('exec.net', 'loopback', 'net', ['host'], ['loopback', 'none']),
    ('exec.net', 'none', 'net', ['host', 'loopback'], ['none']),
    ('exec.pids', '200', 'pids', [201, '1k', 0], [200, 100]),
    ('exec.memory', '512m', 'memory', ['513m', '1g', 0], ['512m', 1 << 28]),
    ('exec.cpus', '1.5', 'cpus', [2, 1.51, 'nan', 'inf', 0], [1.5, 0.5]),
    ('exec.timeout', '90s', 'timeout', [91, 0, 1e9], [90, 1]),
    ('exec.transcript-max', '128k', 'transcript', ['129k', '1m'], ['128k', '64k', True, False]),
    ('agent.shared', 'false', 'shared', [True], [False]),
    ('exec.net', 'host', 'rw', [['/var/tmp']], [[]]),
    ('exec.net', 'host', 'ro', [['/var/tmp']], [[]]),
    ('exec.net', 'host', 'profile', [['npm']], [[]]),
    ('exec.net', 'host', 'home', ['real'], ['scratch', 'none']),
    ('exec.net', 'host', 'unfenced', [True], [False]),
]
REACHES_FURTHER = ('rw', 'ro', 'profile', 'home', 'unfenced')


def keys_settings_are_ceilings(top):
    """Each row: what is above is refused to an agent, on every way to a command, and an admin has it."""
    env = {'XDG_CONFIG_HOME': f'{top}/config'}
    with World(top, env=env) as w:
        made, bearer = w.made()
        session = made['plan']['id']
        with w.session(session, bearer) as s:
            s.push(w.stream())
            s.shut()
        # What commands would do is not the point: none of them begins.
        answer = w.as_agent('POST /v1/plans', {'name': 'p', 'resources': [{'root': str(w.local)}]}).json()
        plan, box = answer['plan']['id'], answer['plan']['id']
        token = w.token(box)
        for setting, value, member, above, below in CEILINGS:
            w.atoll('config', 'set', setting, value, check=True)
            for wish in above:
                body = {'argv': ['false'], member: wish}
                what = f'{member} {wish!r} with {setting} {value}'
                for more in ({}, {'background': 'job'}):
                    got = w.as_agent(f'POST /v1/plans/{plan}/exec', {**body, **more}, token)
                    same((got.status, got.json().get('code')), (403, 'denied'), what)
                    need(member in got.json()['detail'], f"{what}: {got.json()['detail']}")
                with w.session(session, bearer) as s:
                    try:
                        s.run('false', **{member: wish})
                        need(False, f'{what}, in a session')
                    except Refused as why:
                        same(why.code, 'denied', f'{what}, in a session')
                if member not in REACHES_FURTHER:  # the control: an admin is not held to it
                    got = w.ask(f'POST /v1/plans/{plan}/exec', {**body, 'strict': 'x'}, headers=[JSON])
                    same(got.status, 400, f'{what}, by an admin')
            for wish in below:
                got = w.as_agent(f'POST /v1/plans/{plan}/exec', {'argv': ['false'], member: wish, 'strict': 'x'}, token)
                same((got.status, got.json()['code']), (400, 'invalid'), f'{member} {wish!r} with {setting} {value}')
            w.atoll('config', 'unset', setting)
        # What is not asked for is as the setting says.
        w.atoll('config', 'set', 'exec.pids', '37', check=True)
        with w.session(session, bearer) as s:
            s.run('true')
            same(s.exit['exit_code'], 0, 'a command that asks for nothing')
            s.shut()
        w.atoll('config', 'set', 'agent.shared', 'true', check=True)
        got = w.as_agent(f'POST /v1/plans/{plan}/exec', {'argv': ['false'], 'shared': True, 'strict': 'x'}, token)
        same(got.status, 400, 'shared, once it is allowed')


def keys_agents_stay_below_the_roots(top):
    with World(top, f'--root={top}/allowed', f'--root={top}/also', env={'HOME': f'{top}/home'},
               before=lambda w: [(w.top / n).mkdir() for n in ('allowed', 'also', 'home', 'outside')]) as w:
        inside, outside = w.top / 'allowed' / 'project', w.top / 'outside'
        inside.mkdir()
        (w.top / 'also' / 'link').symlink_to(outside)
        (w.top / 'allowed-too').mkdir()
        refused = [outside, w.top, '/', w.top / 'also' / 'link', w.top / 'allowed-too', w.top / 'also' / '..' / 'outside',
                   w.top / 'not-there', w.top / 'outside' / 'not-there']
        for root in refused:
            got = w.as_agent('POST /v1/plans', {'resources': [{'root': str(root)}]})
            same((got.status, got.json().get('code')), (403, 'denied'), f'{root}')
            got = w.as_agent('POST /v1/plans', {'resources': [{'root': str(inside)}, {'root': str(root)}]})
            same(got.status, 403, f'{root}, behind another')
        made = w.as_agent('POST /v1/plans', {'name': 'p', 'resources': [{'root': str(inside)}]})
        same(made.status, 201, 'below a root')
        plan = made.json()['plan']['id']
        token = w.token(plan)
        for root in refused:
            got = w.as_agent(f'POST /v1/plans/{plan}/sandboxes', {'root': str(root)}, token)
            same((got.status, got.json().get('code')), (403, 'denied'), f'{root}, added')
        for strategy in ('none', 'sqlite', 'copy', 'git'):
            got = w.as_agent(f'POST /v1/plans/{plan}/sandboxes', {'root': str(outside), 'strategy': strategy}, token)
            same((got.status, got.json().get('code')), (403, 'denied'), f'with {strategy}')
        got = w.as_agent(f'POST /v1/plans/{plan}/sandboxes', {'root': str(w.top / 'also')}, token)
        same(got.status, 201, 'the other root')
        # The controls: an admin is not held to it, and a session is the daemon's own.
        same(w.ask('POST /v1/plans', {'resources': [{'root': str(outside)}]}, headers=[JSON]).status, 201, 'by an admin')
        w.made()


def keys_agents_have_no_secrets_and_no_mirrors(top):
    """Also where no root is set."""
    with World(top, env={'HOME': f'{top}/home'}, before=lambda w: (w.top / 'home' / '.ssh' / 'keys').mkdir(parents=True)) as w:
        made, _ = w.made()
        mirror = Path(made['root'])
        secret = w.top / 'home' / '.ssh'
        (w.local / 'link').symlink_to(secret)
        for root in (secret, secret / 'keys', w.local / 'link', w.local / 'link' / 'keys', mirror, mirror.parent, w.top):
            got = w.as_agent('POST /v1/plans', {'resources': [{'root': str(root)}]})
            same((got.status, got.json().get('code')), (403, 'denied'), f'{root}')
        same(w.as_agent('POST /v1/plans', {'resources': [{'root': str(w.local)}]}).status, 201, 'a directory')
        same(w.ask('POST /v1/plans', {'resources': [{'root': str(secret)}]}, headers=[JSON]).status, 201, 'by an admin')


def keys_agents_name_databases_of_the_list(top):
    """One that is not in it is not even connected to."""
    listed = 'postgresql://nobody@127.0.0.1:1/listed'
    with World(top, f'--database={listed}') as w, contextlib.closing(socket.create_server(('127.0.0.1', 0))) as server:
        port = server.getsockname()[1]
        server.settimeout(0)
        for root in (f'postgresql://me:word@127.0.0.1:{port}/db', f'{listed}?options=-csearch_path=x', f'{listed}/',
                     f'postgres://127.0.0.1:{port}/', f'host=127.0.0.1 port={port} application_name=://'):
            got = w.as_agent('POST /v1/plans', {'resources': [{'root': root, 'strategy': 'postgres'}]})
            same((got.status, got.json().get('code')), (403, 'denied'), root)
            need('word' not in got.body.decode(), 'the password is not repeated')
        try:
            server.accept()
            need(False, 'the daemon connected to it')
        except BlockingIOError:
            pass
        # The controls: one of the list, and an admin, get as far as the server, which is not there.
        wish = {'resources': [{'root': listed, 'strategy': 'postgres'}]}
        need(w.as_agent('POST /v1/plans', wish).json()['code'] != 'denied', 'one of the list')
        wish['resources'][0]['root'] = 'postgresql://nobody@127.0.0.1:1/other'
        need(w.ask('POST /v1/plans', wish, headers=[JSON]).json()['code'] != 'denied', 'by an admin')


TESTS = [
    keys_a_session_commits_its_mirror_only,
    keys_a_plan_with_more_than_the_mirror_is_no_session,
    keys_a_name_is_no_id,
    keys_every_decision_is_audited,
    keys_nothing_changes_after_the_review,
    keys_settings_are_ceilings,
    keys_agents_stay_below_the_roots,
    keys_agents_have_no_secrets_and_no_mirrors,
    keys_agents_name_databases_of_the_list,
]

if __name__ == '__main__':
    main(TESTS)
