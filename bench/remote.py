# SPDX-License-Identifier: Apache-2.0
"""The section `remote`: a command at a remote, beside rsync and beside a command here. Both ends on this
machine, over TCP on the loopback."""
import os, shutil, socket, subprocess, time

from measure import Run, median, ratio

CHANGED = 10


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(500):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("a server does not begin")


class Servers:
    """atolld with a key, and rsync as a daemon."""

    def __init__(self, t):
        self.t, self.port, self.rsync_port = t, free_port(), free_port()
        self.there, self.copies = os.path.join(t.base, "there"), os.path.join(t.base, "rsynced")
        os.mkdir(self.there, 0o700)
        os.mkdir(self.copies)
        self.env = dict(t.env, ATOLL_HOME=self.there)
        key = subprocess.check_output([t.atoll_bin, "token", "new", "bench", "--scope", "agent"], env=self.env)
        self.key = os.path.join(t.base, "bench.key")
        with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as fh:
            fh.write(key)
        conf = os.path.join(t.base, "rsyncd.conf")
        with open(conf, "w") as fh:
            fh.write(f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\nreverse lookup = no\n"
                     f"[copies]\npath = {self.copies}\nread only = no\n")
        log = open(os.path.join(t.base, "remote.log"), "w")
        self.processes = [
            subprocess.Popen([t.daemon_bin, f"--listen=127.0.0.1:{self.port}", f"--socket={t.base}/remote.sock",
                              f"--mirrors={t.base}/mirrors"], env=self.env, stderr=log),
            subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={conf}", "--address=127.0.0.1",
                              f"--port={self.rsync_port}"], stderr=log)]
        wait_for(self.port)
        wait_for(self.rsync_port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.terminate()
            p.wait()

    def rsync(self, root, name):
        return Run(self.t.floor, [shutil.which("rsync"), "-a", "--delete", root + "/",
                                  f"rsync://127.0.0.1:{self.rsync_port}/copies/{name}/"], env=self.t.env).ms


def far(t, root, *words):
    return t.atoll("--remote", "bench", "exec", "--", *words, cwd=root)


def change(root, dirs, r):
    for i in range(CHANGED):
        with open(os.path.join(root, dirs[i * 97 % len(dirs)], f"f{i}"), "ab") as fh:
            fh.write(b"round %d\n" % r)


def remote(t):
    n = t.sizes[-1]
    t.report.begin("remote", f"{n} files, sent over the loopback; beside rsync -a to its daemon")
    root = os.path.join(t.base, "remote-tree")
    subprocess.run(["cp", "-a", t.trees[n], root], check=True)
    shutil.rmtree(os.path.join(root, ".git"))
    env_before, t.env = t.env, dict(t.env, XDG_CONFIG_HOME=os.path.join(t.base, "remote-config"))
    try:
        with Servers(t) as s:
            t.atoll("remote", "add", "bench", f"http://127.0.0.1:{s.port}", "--key-file", s.key)
            first(t, s, root)
            changed(t, s, root, t.dirs(n))
            round_trip(t)
    finally:
        t.env = env_before


def first(t, s, root):
    v = {"rsync": [], "atoll": []}
    for r in range(2 if t.quick else 3):
        t.settle()
        v["rsync"].append(s.rsync(root, f"first{r}"))
        if r:
            t.atoll("--remote", "bench", "stop", "--yes", "--force", cwd=root)
        t.settle()
        v["atoll"].append(far(t, root, "true").ms)
    for k, values in v.items():
        t.report.row(f"the first time, {k}", median(values), "ms")
    t.report.row("the first time, atoll / rsync", ratio(v["atoll"], v["rsync"]), "x", goal=1.2)


def changed(t, s, root, dirs):
    v = {"rsync": [], "atoll": [], "none": []}
    far(t, root, "true")
    for r in range(5 if t.quick else 11):
        change(root, dirs, r)
        t.settle()
        v["rsync"].append(s.rsync(root, "first0"))
        t.settle()
        v["atoll"].append(far(t, root, "true").ms)
        t.settle()
        v["none"].append(far(t, root, "true").ms)
    t.report.row(f"{CHANGED} changed, rsync", median(v["rsync"]), "ms")
    t.report.row(f"{CHANGED} changed, atoll", median(v["atoll"]), "ms")
    t.report.row(f"{CHANGED} changed, atoll / rsync", ratio(v["atoll"], v["rsync"]), "x", goal=0.7)
    t.report.row("nothing changed, atoll", median(v["none"]), "ms")


def round_trip(t):
    """A small directory: what the cycle costs beside a command in a plan here."""
    small = os.path.join(t.base, "remote-small")
    os.mkdir(small)
    with open(os.path.join(small, "file"), "w") as fh:
        fh.write("x\n")
    v = {"here": [], "remote": [], "changing": []}
    t.atoll("start", "bench", "--dir", small)
    far(t, small, "true")
    for r in range(5 if t.quick else 21):
        v["here"].append(t.atoll("exec", "bench", "--", "true", cwd=small).ms)
        v["remote"].append(far(t, small, "true").ms)
        v["changing"].append(far(t, small, "sh", "-c", f"echo {r} >made").ms)
    t.atoll("stop", "--force", "bench")
    t.report.row("a command in a plan here", median(v["here"]), "ms")
    t.report.row("the same at a remote, nothing changed", median(v["remote"]), "ms", f"{ratio(v['remote'], v['here']):.1f} x here")
    t.report.row("one file changed there, and brought here", median(v["changing"]), "ms",
                 f"{ratio(v['changing'], v['here']):.1f} x here")
