#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""git's own test scripts, once outside and once inside a sandbox: what passes outside must pass inside.

    tests/slow/git-suite.py [--atoll FILE] [--dir DIR] [--jobs N] [GLOB...]

The source is Debian's package of the git that is installed; it is fetched with apt-get and built in DIR
(kept, so that a second run begins at once). GLOB: names of scripts, t[01]*.sh by default. Prints TAP.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCES = """deb-src http://deb.debian.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm-updates main
deb-src http://deb.debian.org/debian-security bookworm-security main
"""


def call(args, **more):
    print("#", " ".join(map(str, args)), flush=True)
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, **more)


def fetch(top):
    found = list(top.glob("git-*/t/test-lib.sh"))
    if not found:
        lists = top / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        (top / "sources.list").write_text(SOURCES)
        options = ["-qq", "-o", f"Dir::Etc::sourcelist={top}/sources.list", "-o",
                   "Dir::Etc::sourceparts=-", "-o", f"Dir::State::lists={lists}"]
        call(["apt-get", *options, "update"])
        call(["apt-get", *options, "source", "--download-only", "git"], cwd=top)
        call(["dpkg-source", "--no-check", "-x", next(top.glob("git_*.dsc")).name], cwd=top)
        found = list(top.glob("git-*/t/test-lib.sh"))
    source = found[0].parent.parent
    if not (source / "t/helper/test-tool").exists():
        call(["make", f"-j{os.cpu_count()}", "NO_CURL=1", "NO_EXPAT=1", "NO_TCLTK=1", "NO_GETTEXT=1",
              "NO_PERL=", "all"], cwd=source)
    return source


def script(source, name, trash, prefix=()):
    """Its exit status and how many of its tests passed and failed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env["TEST_NO_MALLOC_CHECK"] = "1"
    done = subprocess.run([*prefix, "./" + name, f"--root={trash}"], cwd=source / "t", env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          errors="replace", timeout=1800, check=False)
    return (done.returncode, len(re.findall(r"^ok ", done.stdout, re.M)),
            tuple(re.findall(r"^not ok (\d+) (?!.*# T[O]DO)", done.stdout, re.M)))


class Sandbox:
    """A plan over a directory of trash of its own: scripts of one plan would wait for one another."""

    def __init__(self, atoll, top, name):
        self.atoll, self.plan = atoll, "git-" + name.removesuffix(".sh")
        self.trash = top / "inside" / name
        self.trash.mkdir(parents=True)

    def __enter__(self):
        subprocess.run([self.atoll, "start", self.plan, "--dir", self.trash], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([self.atoll, "stop", "--force", "--yes", self.plan], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compare(options, source, top, name):
    outside = top / "outside" / name
    outside.mkdir(parents=True)
    # Results go below t/, which is read-only inside; both sides get a place in their trash.
    wanted = script(source, name, outside)
    with Sandbox(options.atoll, top, name) as box:
        got = script(source, name, box.trash,
                     (options.atoll, "exec", box.plan, "--", "env", f"TEST_OUTPUT_DIRECTORY={box.trash}"))
        left = list(box.trash.iterdir())
    return wanted, got, left


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--atoll", default=os.environ.get("ATOLL", "build/src/cli/atoll"))
    p.add_argument("--dir", default="/var/tmp/atoll-git-suite", help="where the source is")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("names", nargs="*", default=["t[01]*.sh"])
    options = p.parse_args()
    options.atoll = os.path.abspath(options.atoll)
    kept = pathlib.Path(options.dir)
    kept.mkdir(parents=True, exist_ok=True)
    source = fetch(kept)
    names = sorted(f.name for f in (source / "t").glob("t[0-9]*.sh")
                   if any(fnmatch.fnmatch(f.name, g) for g in options.names))
    print(f"1..{len(names)}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(dir=kept) as work, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        os.environ["ATOLL_HOME"] = os.path.join(work, "home")
        jobs = {n: pool.submit(compare, options, source, pathlib.Path(work), n) for n in names}
        for i, (name, job) in enumerate(jobs.items(), 1):
            wanted, got, left = job.result()
            good = got == wanted and not left
            failed += not good
            print(f"{'ok' if good else 'not ok'} {i} - git_suite_{name.removesuffix('.sh')}", flush=True)
            if not good:
                print(f"# outside {wanted}\n# inside {got}\n# left outside: {left}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
