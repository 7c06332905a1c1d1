#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a cmocka program and puts its skips into TAP that everybody reads as skips: cmocka 1.1.5
says "not ok 3 # SKIP name" where "ok 3 - name # SKIP reason" is meant. The reason is what
atest_skip() printed before. What follows a failure is written to stderr too, which is what the
build server's log shows. $ATOLL_TEST_WRAPPER, if set, is put in front of the program, which finds
atoll-helper by $ATOLL_HELPER.

usage: run-cmocka.py PROGRAM ARGUMENT...
"""

import os
import re
import shlex
import signal
import subprocess
import sys

SKIP = re.compile(rb'(?:not )?ok (\d+) # SKIP (\w+)\s*$')
REASON = re.compile(rb'# skipped: (.*?)\s*$')


def main():
    wrapper = shlex.split(os.environ.get('ATOLL_TEST_WRAPPER', ''))
    os.environ['ATOLL_HELPER'] = os.environ['ATOLL_TEST_HELPER']
    reason, failing = b'', False
    with subprocess.Popen([*wrapper, *sys.argv[1:]], stdout=subprocess.PIPE) as program:
        for line in program.stdout:
            skipped, said = SKIP.match(line), REASON.match(line)
            if skipped:
                line = b'ok %s - %s # SKIP %s\n' % (skipped[1], skipped[2], reason)
            if said:
                reason = said[1]
            elif re.match(rb'(?:not )?ok ', line):
                reason = b''
                failing = line.startswith(b'not')
            if failing:
                sys.stderr.buffer.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    if program.returncode < 0:  # as if it had been called directly
        signal.signal(-program.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -program.returncode)
    return program.returncode


sys.exit(main())
