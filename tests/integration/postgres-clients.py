# SPDX-License-Identifier: Apache-2.0
"""What clients of a plan's database find, and what they do with it: the same program runs beside the server and in a
plan, and says the same."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from kinds import World  # noqa: E402


# ---- which database ----

def a_command_that_joins_reaches_the_plans_database(w):
    real = {'PGHOST': str(w.cluster.socket), 'PGUSER': w.cluster.role, 'PGDATABASE': w.cluster.database}
    w.start()
    w.must('exec', 'p', '--background', 'job', '--', 'sleep', '1000')
    done = w.must('exec', '--shared', 'p', '--', 'psql', '-XAtc', 'delete from t where id > 2', **real)
    same(done.out, 'DELETE 3\n', 'deleted')
    same(w.cluster.sql('select count(*) from t'), '5', 'outside')
    w.must('job', 'stop', 'p', 'job')
    same(w.sql('select count(*) from t'), '2', 'in the plan')
    # Of a plan without a database nothing is left that another command had.
    w.must('start', 'q', '--dir', 'd', '--or-open')
    w.must('exec', 'q', '--background', 'job', '--', 'sleep', '1000')
    same(w.must('exec', '--shared', 'q', '--', 'sh', '-c', 'echo $PGHOST').out, '\n', 'a plan without a database')
    w.must('job', 'stop', 'q', 'job')


TESTS = [a_command_that_joins_reaches_the_plans_database]


def attempt(number, test, cluster, top):
    problem, began = None, time.monotonic()
    try:
        with World(cluster, top) as w:
            test(w)
    except (Broken, OSError, ValueError, KeyError, AssertionError, subprocess.SubprocessError) as broken:
        problem = f'{type(broken).__name__}: {broken}'
    print(f'{"not ok" if problem else "ok"} {number} - {test.__name__}', flush=True)
    print(f'# {time.monotonic() - began:.1f} s', flush=True)
    if problem:
        print('\n'.join('# ' + line for line in problem.splitlines()[:30]), flush=True)
    return not problem


def main():
    only = sys.argv[1:]
    tests = [t for t in TESTS if not only or t.__name__ in only]
    print(f'1..{len(tests)}', flush=True)
    top = tempfile.mkdtemp(prefix='atoll-pg-', dir='/var/tmp')
    os.chmod(top, 0o755)
    try:
        with Cluster(top) as cluster:
            return 0 if all([attempt(i, t, cluster, top) for i, t in enumerate(tests, 1)]) else 1
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
