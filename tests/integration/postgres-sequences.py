# SPDX-License-Identifier: Apache-2.0
"""Random sequences of protocol messages, to the server itself and to the holder of a plan's transaction, beside
equal databases: every answer must be the same, message by message, and so must what the sequences leave behind.

    postgres-sequences.py [SEED...] [--without REGEX]     ATOLL_LONG=1: a million sequences

A failing session is made small and printed; its seed alone repeats it. --without leaves statements out, to look
past a known fault; --control compares the server with itself, and must find nothing.
"""

import argparse
import ast
import itertools
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
import pgsequence  # noqa: E402
import pgwire  # noqa: E402
from cluster import Cluster  # noqa: E402

HOLDER = os.environ['ATOLL_POSTGRES']
LONG = os.environ.get('ATOLL_LONG') == '1'
SEQUENCES = 1_000_000 if LONG else 10_000
PER_SESSION = 50
WORKERS = 2
PATIENCE = 60   # seconds, for an answer
IMPATIENCE = 1  # the same while a sequence is made small: that it hangs is known then
WORST = 12      # kinds of differences that are made small by each worker
NAME = 'sequence'  # of the clients' application: without one the server would say the holder's
PIECES = 7      # of so many sessions, in one the messages arrive in pieces
EVERY = 20      # seconds between signs of life


class Holder:
    """The process that keeps a plan's transaction."""

    def __init__(self, url, top):
        self.dir = Path(tempfile.mkdtemp(dir=top))
        self.clients = self.dir / 'clients'
        self.clients.mkdir(mode=0o700)
        self.child = subprocess.Popen([HOLDER, 'hold', str(self.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)
        self.child.stdin.write(url + '\n')
        self.child.stdin.close()
        said = self.child.stdout.readline().strip()
        self.child.stdout.close()
        if said != 'ok ready':
            raise OSError(f'the holder said {said!r}')

    def is_alive(self):
        return self.child.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.dir)


def knowledge(peer):
    """What its client knows of the settings, once all it has sent is answered. How often it was said is free, and
    so is whether what a failed block has set goes at once or with the block."""
    return [(b'S', str(sorted(peer.parameters.items())).encode())] if peer.status in (b'I', b'T') else []


class NoHolder:
    """In the place of one: the server itself, which must find nothing to differ from."""

    def __init__(self, socket):
        self.clients = socket

    @staticmethod
    def is_alive():
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def has_ended(messages):
    """Did the server end the session? EXECUTE of a ROLLBACK TO that was prepared by Parse is one such thing."""
    return (b'?', b'EOFError') in messages


# Where two things are wrong with a message, which one is said is free: the holder looks at what it knows (a block that
# has failed, a name that is there, a statement or a portal that is not) before it asks the server.
HOLDER_KNOWS = ('25P02', '26000', '34000', '42P03', '42P05')


def is_same(want, got):
    def differs_in_reason(a, b):
        return a[0] == b[0] == b'E' and pgwire.fields(b[1])['C'] in HOLDER_KNOWS

    return len(want) == len(got) and all(a == b or differs_in_reason(a, b) for a, b in zip(want, got))


def is_silent(messages):
    return b'?' in [kind for kind, _ in messages]


class Pair:
    """Two equal databases, and the ways to them: the first directly, the second through a holder."""

    def __init__(self, cluster, top, number, control):
        self.cluster, self.top, self.control, self.pieces = cluster, top, control, None
        self.names = [f'direct{number}', f'inside{number}']
        for name in self.names:
            cluster.sql(f'create database {name} owner {cluster.role}', user='postgres', database='postgres')
            cluster.sql(pgsequence.SCHEMA, database=name)

    def compare(self, bursts, patience=PATIENCE):
        """None, or (number of a burst, what the server answered, what came from the plan)."""
        url = self.cluster.url.replace(self.cluster.database, self.names[1], 1)
        for name in self.names[:1 + self.control]:
            with pgwire.Peer(self.cluster.socket, self.cluster.role, name, patience=PATIENCE) as fresh:
                fresh.send([pgwire.query(pgsequence.SCHEMA)])
                fresh.answers()
        with NoHolder(self.cluster.socket) if self.control else Holder(url, self.top) as holder:
            return self.exchange(bursts, holder, patience)

    def connect(self, holder, patience):
        ways = zip((self.cluster.socket, holder.clients), self.names)
        pair = [pgwire.Peer(way, self.cluster.role, name, patience=patience, application_name=NAME)
                for way, name in ways]
        pair[1].pieces = self.pieces
        return pair

    @staticmethod
    def leave(pair, messages):
        """None, or how the two differ in that. What they were answered is not looked at."""
        left = [peer.leave(messages) for peer in pair]
        for peer in pair:
            peer.socket.close()
        return None if left[0] == left[1] else ([(b'?', str(left[0]).encode())], [(b'?', str(left[1]).encode())])

    def exchange(self, bursts, holder, patience):
        peers = {}
        try:
            for i, (client, wait, items) in enumerate(bursts):
                if client not in peers:
                    peers[client] = self.connect(holder, patience)
                messages = [m for _, part in items for m in part]
                if messages[-1] == pgwire.TERMINATE:
                    differs = self.leave(peers.pop(client), messages[:-1])
                    if differs:
                        return i, *differs
                    continue
                for peer in peers[client]:
                    peer.send(messages)
                if not wait:
                    continue
                want, got = (peer.answers() + knowledge(peer) for peer in peers[client])
                if not holder.is_alive():
                    return i, want, [*got, (b'?', b'the holder has ended')]
                if has_ended(want):
                    return None
                if want != got and not is_same(want, got):
                    return i, want, got
            return None
        finally:
            for peer in itertools.chain(*peers.values()):
                peer.socket.close()

    def fails(self, bursts, silent):
        """SILENT: the plan does not answer at all. Without the end of a client's block the other waits for it."""
        try:
            found = self.compare(bursts, IMPATIENCE)
        except OSError:  # the server has closed the connection: an invalid sequence
            return False
        return found is not None and not is_silent(found[1]) and is_silent(found[2]) == silent


# Statements that a plan must answer otherwise: what it says, what the server says, and why. No sequence has them.
DIFFERENT = [
    ('vacuum full t', 'E 25001', 'C VACUUM', 'works outside of transactions alone'),
    ('create index concurrently on t (v)', 'E 25001', 'C CREATE INDEX', 'works outside of transactions alone'),
    ("prepare transaction 'x'", 'E 0A000', 'C ROLLBACK', 'the transaction is prepared by atoll commit'),
    ("commit prepared 'x'", 'E 0A000', 'E 42704', 'what is prepared is finished outside of plans'),
    ("rollback prepared 'x'", 'E 0A000', 'E 42704', 'what is prepared is finished outside of plans'),
    ('do $$ begin commit; end $$', 'E 2D000', 'C DO', 'would end the transaction'),
    ('begin; savepoint _atoll_unit; rollback', 'E', 'C ROLLBACK', 'names of the holder are its own'),
    ('begin isolation level serializable; show transaction_isolation; rollback', 'D repeatable read', 'D serializable',
     "the plan's transaction has begun, and keeps its level"),
]


def first_word(answers, want):
    """Of ANSWERS, what WANT says of them: the error, or else the last tag or the row."""
    errors = [pgwire.fields(body)['C'] for kind, body in answers if kind == b'E']
    if errors:
        return 'E ' + errors[0] if len(want) > 1 else 'E'
    if want.startswith('D'):
        return 'D ' + next(body[6:].decode() for kind, body in answers if kind == b'D')
    return 'C ' + [body[:-1].decode() for kind, body in answers if kind == b'C'][-1]


def what_a_plan_must_answer_otherwise(cluster, top):
    pair, problems = Pair(cluster, top, WORKERS, False), []
    for words, inside, outside, why in DIFFERENT:
        with Holder(cluster.url.replace(cluster.database, pair.names[1], 1), top) as holder:
            for peer, want in zip(pair.connect(holder, PATIENCE), (outside, inside)):
                with peer:
                    peer.send([pgwire.query(words)])
                    got = first_word(peer.answers(), want)
                    if got != want:
                        problems.append(f'{words}: {got}, not {want} ({why})')
            if not holder.is_alive():
                problems.append(f'{words}: the holder has ended')
    return problems


def show(messages, other):
    for kind, body in messages:
        if kind == b'S':
            there = dict(ast.literal_eval(next((b for k, b in other if k == b'S'), b'[]').decode()))
            for name, value in ast.literal_eval(body.decode()):
                if there.get(name) != value:
                    yield f'    S {name} {value!r}'
        elif kind in (b'E', b'N'):
            said = pgwire.fields(body)
            yield f'    {kind.decode()} {said.get("C")} {said.get("M")}' + ''.join(
                f' {k}={v}' for k, v in said.items() if k not in 'CMV')
        else:
            yield f'    {kind.decode()} {body[:60]!r}'


def describe(seed, bursts, found):
    yield f'seed {seed}, as small as it gets:'
    for client, wait, items in bursts[:found[0] + 1]:
        yield f'  client {client}' + ('' if wait else ', which does not wait:')
        for words, messages in items:
            more = ' '.join(k.decode() for k, _ in messages[1:])
            yield f'    {words}' + (f'  and {more}' if more else '')
    yield '  the server:'
    yield from show(found[1], found[2])
    yield '  the plan:'
    yield from show(found[2], found[1])


def kind_of(found):
    """Of the first message that differs, what it says: one fault shows in many sequences."""
    def word(message):
        kind, body = message
        return kind, pgwire.fields(body).get('M') if kind in (b'E', b'N') else body if kind in (b'C', b'?') else b''

    pairs = itertools.zip_longest(found[1], found[2], fillvalue=(b'-', b''))
    return next(str((word(a), word(b))) for a, b in pairs if a != b)


def explain(pair, seed, bursts, found):
    kind, silent = kind_of(found), is_silent(found[2])
    small = pgsequence.shrink(bursts, lambda part: pair.fails(part, silent))
    found = pair.compare(small, IMPATIENCE)
    return [f'seed {seed}: {kind}', *describe(seed, small, found)] if found else [f'seed {seed}: it fails not always']


def work(cluster, top, number, given, out):
    """One process: its share of the sessions, differences to OUT as (seed, lines); None at the end."""
    try:
        pair, known = Pair(cluster, top, number, given.control), set()
        for seed in given.seeds[number::WORKERS]:
            bursts = pgsequence.session(seed, PER_SESSION, given.without)
            pair.pieces = random.Random(seed) if seed % PIECES == 3 else None
            found = pair.compare(bursts)
            out.put((seed, None))
            if not found:
                continue
            new = kind_of(found) not in known
            known.add(kind_of(found))
            out.put((seed, explain(pair, seed, bursts[:found[0] + 1], found) if new else [f'seed {seed}: one like those']))
            if len(known) >= WORST:
                break
    except Exception as broken:  # pylint: disable=broad-except
        out.put((-1, [f'{type(broken).__name__}: {broken}']))
        raise
    finally:
        out.put((None, None))


def run(cluster, top, given):
    out = multiprocessing.SimpleQueue()
    workers = [multiprocessing.Process(target=work, args=(cluster, top, i, given, out))
               for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    running, sessions, problems, told = len(workers), 0, [], time.monotonic()
    while running:
        seed, lines = out.get()
        running -= seed is None
        sessions += seed is not None and lines is None
        if lines:
            problems.append(lines)
            print('\n'.join('# ' + line for line in lines), flush=True)
        if time.monotonic() - told > EVERY:
            print(f'# {sessions * PER_SESSION} sequences', flush=True)
            told = time.monotonic()
    for worker in workers:
        worker.join()
    return sessions, problems


def main():
    options = argparse.ArgumentParser()
    options.add_argument('seeds', nargs='*', type=int)
    options.add_argument('--without')
    options.add_argument('--control', action='store_true')
    given = options.parse_args()
    given.seeds = given.seeds or range(SEQUENCES // PER_SESSION)
    print('1..2', flush=True)
    top = tempfile.mkdtemp(prefix='atoll-pg-', dir='/var/tmp')
    os.chmod(top, 0o755)
    began = time.monotonic()
    try:
        # Statistics change plans, and with them how many rows come before an error: no database gets any by itself.
        with Cluster(top, max_locks_per_transaction=256, autovacuum='off') as cluster:
            sessions, problems = run(cluster, top, given)
            otherwise = what_a_plan_must_answer_otherwise(cluster, top)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f'# {sessions * PER_SESSION} sequences in {time.monotonic() - began:.1f} s')
    print(f'{"not ok" if problems else "ok"} 1 - sequences_of_messages_are_answered_as_by_the_server')
    print('\n'.join('# ' + line for line in otherwise) + '\n' if otherwise else '', end='')
    print(f'{"not ok" if otherwise else "ok"} 2 - what_a_plan_must_answer_otherwise')
    return 1 if problems or otherwise else 0


if __name__ == '__main__':
    sys.exit(main())
