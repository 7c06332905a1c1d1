#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Types at a program on a terminal: type-at.py [--after TEXT] KEYS COMMAND...

Waits until the program is quiet before the first key and after each tab and line, as a person
does, and prints what the terminal showed. KEYS understands \\t, \\n and \\xNN; a backslash at the
end of a line joins it to the next. With --after it waits for TEXT instead, and its exit status is the
program's.
"""

import os
import pty
import re
import select
import signal
import sys
import time

QUIET = 0.1  # seconds without output: it waits for us
LIMIT = 60  # seconds for everything


class Terminal:
    def __init__(self, command):
        self.shown = b""
        self.end = time.monotonic() + LIMIT
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)

    def read(self, timeout):
        """False when nothing more comes: for now, or at all."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.shown += data
        return bool(data)

    def settle(self):
        self.read(QUIET * 10)
        while time.monotonic() < self.end and self.read(QUIET):
            pass

    def wait_for(self, text):
        while time.monotonic() < self.end and text not in self.shown:
            self.read(QUIET)

    def type(self, keys):
        for part in re.split(rb"(?<=[\t\n])", keys):
            if part:
                os.write(self.fd, part)
                self.settle()

    def close(self):
        while time.monotonic() < self.end and self.read(max(0.1, self.end - time.monotonic())):
            pass
        os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main():
    after = sys.argv[2].encode() if sys.argv[1] == "--after" else None
    if after:
        del sys.argv[1:3]
    keys = sys.argv[1].replace("\\\n", "").encode().decode("unicode_escape").encode("latin-1")
    terminal = Terminal(sys.argv[2:])
    if after:
        terminal.wait_for(after)
    else:
        terminal.settle()
    terminal.type(keys)
    status = terminal.close()
    sys.stdout.buffer.write(terminal.shown)
    return status if after else 0


sys.exit(main())
