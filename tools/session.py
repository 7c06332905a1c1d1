#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Replays the sessions in a document: session.py FILE DIR [--write]

Every ```console block is typed, line by line, into one shell in the empty directory DIR, which is
shown as /home/you. What it prints must be what the document says, but for what differs each time:
times, ids, made-up names, and how this host isolates directories. With --write the document gets
what was printed.
"""

import difflib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

HOME = "/home/you"
LIMIT = 120  # seconds for all of it
MARK = "@session@"
# Each stands for itself in the comparison, so that columns stay as wide as they are.
MASKS = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\buntil (tomorrow |\d{4}-\d\d-\d\d )?\d\d:\d\d\b", "until WHEN"),
    (r"\b[0-9a-f]{16}(-\d+)?\b", "ID"),
    (r"\bAGE +", "AGE "),
    (r"\bSTATE +", "STATE "),
    (r"  (may have changes|\d+ changes?)  +", "  CHANGES  "),  # a copy is not counted
    (r"\b\d+ (s|min)\b *", "AGE "),
    (r"\b(tomorrow )?\d\d:\d\d\b", "CLOCK"),
    (r"\b\d+(\.\d)?[KMG]\b", "SIZE"),
    (r"\b(overlay|copy)\b", "STRATEGY"),
    (r"\b[a-z]+-[a-z]+-\d\d\b", "NAME"),
    (r"/home/you/\.local/state/atoll/plans|/home/you/\.atoll-\d+", "AREA"),
)


class Shell:
    def __init__(self, directory):
        self.directory = str(directory)
        env = dict(os.environ, HOME=self.directory, ATOLL_HOME=f"{self.directory}/.local/state/atoll")
        for name in ("NO_COLOR", "ATOLL_PLAN", "ATOLL_PLAN_ID"):
            env.pop(name, None)
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=directory, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def type(self, line):
        """What LINE prints, and its exit status kept for the next."""
        self.process.stdin.write(f"eval {shlex.quote(line)} </dev/null\n__status=$?; printf '{MARK}\\n'; (exit $__status)\n")
        self.process.stdin.flush()
        printed = []
        for text in self.process.stdout:
            if text.rstrip("\n").endswith(MARK):
                rest = text.rstrip("\n")[: -len(MARK)]
                printed += [rest] if rest else []
                break
            printed.append(text.rstrip("\n"))
        return [text.replace(self.directory, HOME) for text in printed]


def replay(lines, shell):
    """The document with fresh output below every command."""
    fresh = []
    in_session = False
    for line in lines:
        if line.startswith("```"):
            in_session = line == "```console"
        if in_session and not line.startswith(("```", "$ ")):
            continue
        fresh.append(line)
        if in_session and line.startswith("$ "):
            fresh += shell.type(line[2:])
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
