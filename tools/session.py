#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Replays the sessions in a document: session.py FILE DIR [--write]

Every ```console block is typed, line by line, into one shell on a terminal, in the empty directory DIR, which is
shown as /home/you. What it prints must be what the document says, but for what differs each time: times, ids,
made-up names, and how this host isolates directories. A question is answered as the document answers it. With
--write the document gets what was printed.
"""

import difflib
import fcntl
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios

HOME = "/home/you"
LIMIT = 120  # seconds for all of it
MARK = "@session@"
QUESTIONS = (" ? ", "[y/N] ")
# Each stands for itself in the comparison, so that columns stay as wide as they are.
MASKS = (
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "TIME"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\buntil (tomorrow |\d{4}-\d\d-\d\d )?\d\d:\d\d\b", "until WHEN"),
    (r"\b[0-9a-f]{16}(-\d+)?\b", "ID"),
    (r"\bAGE +", "AGE "),
    (r"\bSTATE +", "STATE "),
    (r"  (may have changes|\d+ changes?)  +", "  CHANGES  "),  # a copy is not counted
    (r"\b\d+ (s|min)\b *", "AGE "),
    (r"\b(tomorrow )?\d\d:\d\d\b", "CLOCK"),
    (r"\b\d+(\.\d)? ([KMG]iB|bytes?)\b", "SIZE"),
    (r"\b(overlay|copy)\b", "STRATEGY"),
    (r"\b[a-z]+-[a-z]+-\d\d\b", "NAME"),
    (r"/home/you/\.local/state/atoll/plans|/home/you/\.atoll-\d+", "AREA"),
)


class Shell:
    def __init__(self, directory):
        self.directory = str(directory)
        env = dict(os.environ, HOME=self.directory, ATOLL_HOME=f"{self.directory}/.local/state/atoll", TERM="dumb",
                   NO_COLOR="1", PAGER="cat", GIT_CONFIG_NOSYSTEM="1")
        for name in ("ATOLL_PLAN", "ATOLL_PLAN_ID", "ATOLL_PAGER", "XDG_CONFIG_HOME"):
            env.pop(name, None)
        self.terminal, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=directory, env=env, text=True, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
            stdin=subprocess.PIPE, stdout=slave, stderr=slave)
        os.close(slave)

    def type(self, line, answers):
        """What LINE prints, and its exit status kept for the next. ANSWERS: the document's lines, of which those
        that begin with a question go on with its answer."""
        self.process.stdin.write(f"eval {shlex.quote(line)} </dev/tty\n__status=$?; printf '{MARK}\\n'; (exit $__status)\n")
        self.process.stdin.flush()
        printed = ""
        while not printed.endswith(f"{MARK}\n"):
            printed += os.read(self.terminal, 65536).decode().replace("\r\n", "\n")
            question = printed.rpartition("\n")[2]
            if question.endswith(QUESTIONS):
                given = [a for a in answers if a.startswith(question)]
                if not given:
                    sys.exit(f"no answer to '{question}' of: {line}")
                answers = answers[answers.index(given[0]) + 1:]
                os.write(self.terminal, given[0][len(question):].encode() + b"\n")
        printed = printed[: -len(MARK) - 1]
        return [text.rstrip() for text in printed.replace(self.directory, HOME).splitlines()]


def replay(lines, shell):
    """The document with fresh output below every command."""
    fresh = []
    in_session = False
    for i, line in enumerate(lines):
        if line.startswith("```"):
            in_session = line == "```console"
        if in_session and not line.startswith(("```", "$ ")):
            continue
        fresh.append(line)
        if in_session and line.startswith("$ "):
            below = lines[i + 1:]
            end = next(k for k, text in enumerate(below) if text.startswith(("$ ", "```")))
            fresh += shell.type(line[2:], below[:end])
    return fresh


def mask(line):
    for pattern, name in MASKS:
        line = re.sub(pattern, name, line)
    return re.sub(r" {2,}", "  ", line)


def main():
    file, directory = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    lines = file.read_text().splitlines()
    signal.alarm(LIMIT)
    fresh = replay(lines, Shell(directory))
    if "--write" in sys.argv:
        file.write_text("\n".join(fresh) + "\n")
        return
    found = list(difflib.unified_diff(
        [mask(line) for line in lines], [mask(line) for line in fresh],
        str(file), "what is printed", lineterm=""))
    print("\n".join(found))
    sys.exit(1 if found else 0)


main()
