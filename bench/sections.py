# SPDX-License-Identifier: Apache-2.0
"""The sections of the benchmark, in the order they are run."""
import json, os, re, shutil, sqlite3, subprocess, sys, time

from measure import HERE, Run, median, ratio, walk

sys.path.insert(0, os.path.join(HERE, "..", "tests", "lib"))
import cluster  # noqa: E402
from remote import remote  # noqa: E402

MB = 1 << 20
STEPS = ("create", "exec", "diff", "commit", "undo", "stop")


def startup(t):
    t.report.begin("start-up", "against an empty C program; medians of interleaved rounds")
    n, rounds = (30, 5) if t.quick else (60, 11)
    v = {"empty": [], "version": [], "list": []}
    for _ in range(rounds):
        v["empty"].append(t.floor_us("spawn", n, t.empty))
        v["version"].append(t.floor_us("spawn", n, t.atoll_bin, "version"))
        v["list"].append(t.floor_us("spawn", n, t.atoll_bin, "list"))
    t.report.row("empty program", median(v["empty"]), "us")
    for k in ("version", "list"):
        t.report.row(f"atoll {k}", median(v[k]), "us")
        t.report.row(f"atoll {k} / empty", ratio(v[k], v["empty"]), "x", goal=2)


def prepare(t):
    """Trees, the largest also a git repository, and a store that is there."""
    for n in t.sizes:
        t.make_tree(n, n == t.sizes[-1])
    t.atoll("list")
    t.version_ms = t.floor_us("spawn", 51, t.atoll_bin, "version") / 1e3
    t.settle()


# ---- copy ----

def baselines(t, n, script):
    """cp -a and the naive way, once each; the second also leaves a fresh tree."""
    root = t.trees[n]
    cp = Run(t.floor, ["/bin/cp", "-a", root, os.path.join(t.base, "cp")]).ms
    shutil.rmtree(os.path.join(t.base, "cp"))
    naive = json.loads(subprocess.check_output(
        ["/usr/bin/python3", os.path.join(HERE, "naive.py"), root, t.base, script]))
    return cp, naive


def copy_notes(m, first, floor, cp, naive, smallest):
    flat = f"{{:.2f}} x at {smallest}"
    return {
        "create": f"{m['create'] / cp:.2f} x cp -a, {m['create'] / naive['create']:.2f} x naive",
        "diff": f"{m['diff'] / naive['diff']:.3f} x naive",
        "commit": f"{m['commit'] / floor:.2f} x floor, {m['commit'] / cp:.3f} x cp -a, "
                  f"{m['commit'] / naive['commit']:.4f} x naive, "
                  + flat.format(m["commit"] / first["commit"]),
        "undo": f"{m['undo'] / floor:.2f} x floor, " + flat.format(m["undo"] / first["undo"]),
        "stop": f"{m['stop'] / naive['clean']:.2f} x naive",
    }


def copy(t):
    t.report.begin("copy", "--strategy copy, 10 changed files, durable; whole commands")
    first = None
    for n in t.sizes:
        script, floor, got = t.mutate_script(n, 10), [], []
        for _ in range(2 if n >= 100000 or t.quick else 5):
            floor.append(t.floor_us("durable", t.floor_dir, 10, 3) / 1e3)
            got.append(t.cycle(t.trees[n], script, "--strategy", "copy"))
        cp, naive = baselines(t, n, script)
        m = {k: median([g[k].ms for g in got]) for k in STEPS}
        first = first or m
        notes = copy_notes(m, first, median(floor), cp, naive, t.sizes[0])
        t.report.part(f"{n} files")
        t.report.row("write+fdatasync+rename x10, fsync directory", median(floor), "ms",
                     key=f"floor 10, {n} files")
        t.report.row("cp -a of the tree", cp, "ms", key=f"cp -a, {n} files")
        for step, note in notes.items():
            t.report.row(f"atoll {step}", m[step], "ms", note, key=f"{step}, {n} files")


# ---- overlay ----

def flat(t, what, values):
    """VALUES[n]: a list per size. One row each, and largest over smallest."""
    small, large = t.sizes[0], t.sizes[-1]
    goal = 1.2
    t.report.row(f"{what}: {large} / {small} files", ratio(values[large], values[small]), "x",
                 goal=goal)


def overlay_create(t):
    ms = {n: [] for n in t.sizes}
    t.atoll("start", "first", "--dir", t.trees[t.sizes[0]])
    for _ in range(7 if t.quick else 15):
        for n in t.sizes:
            ms[n].append(t.quiet_ms("start", "bench", "--dir", t.trees[n]))
            t.quiet_ms("stop", "bench")
    t.atoll("stop", "first")
    for n in t.sizes:
        t.report.row(f"atoll start, {n} files", median(ms[n]), "ms", goal=5)
    flat(t, "atoll start", ms)


def overlay_exec(t):
    root = t.trees[t.sizes[0]]
    true = shutil.which("true")
    bwrap = shutil.which("bwrap")
    v = {"true": [], "bwrap": [], "mounts": [], "atoll": []}
    t.atoll("start", "bench", "--dir", root)
    jail = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
            "--dev-bind", "/", "/", "--proc", "/proc", true]
    # As much as a plan's command gets, but for the overlay.
    same = [*jail[:-1], "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", root, root, true]
    steps = {"true": lambda: Run(t.floor, [true]), "atoll": lambda: t.atoll("exec", "bench", "--", true, cwd=root)}
    if bwrap:
        steps |= {"bwrap": lambda: Run(t.floor, jail), "mounts": lambda: Run(t.floor, same)}
    names = list(steps)
    # Nobody pays for the namespaces that the one before left to the kernel to take down.
    for i in range(9 if t.quick else 21):
        for name in names[i % len(names):] + names[:i % len(names)]:
            t.settle()
            v[name].append(steps[name]().ms)
    t.quiet_ms("stop", "bench")
    t.report.row("fork and exec of true", median(v["true"]), "ms")
    t.report.row("atoll exec PLAN -- true", median(v["atoll"]), "ms",
                 f"{ratio(v['atoll'], v['true']):.2f} x true")
    if bwrap:
        t.report.row("bwrap with the same namespaces, true", median(v["bwrap"]), "ms",
                     f"{ratio(v['bwrap'], v['true']):.2f} x true")
        t.report.row("atoll exec / bwrap", ratio(v["atoll"], v["bwrap"]), "x", goal=1.5)
        t.report.row("bwrap with private /dev, /tmp and /run, too", median(v["mounts"]), "ms")
        t.report.row("atoll exec / that", ratio(v["atoll"], v["mounts"]), "x", goal=1.5)


def overlay_steps(t):
    """Ten changes: every size once in each round, and the floors beside them."""
    got, floor, fsync = {n: [] for n in t.sizes}, [], []
    scripts = {n: t.mutate_script(n, 10) for n in t.sizes}
    for _ in range(5 if t.quick else 11):
        t.settle()
        floor.append(t.floor_us("durable", t.floor_dir, 10, 3) / 1e3)
        fsync.append(t.floor_us("fsync", t.floor_dir, 9) / 1e3)
        for n in t.sizes:
            got[n].append(t.cycle(t.trees[n], scripts[n]))
    t.report.row("write+fdatasync+rename x10, fsync directory", median(floor), "ms")
    t.report.row("B: a new file of 4 KiB, fsync", median(fsync), "ms")
    for n in t.sizes:
        t.report.part(f"{n} files, 10 changes")
        ms = {k: median([g[k].ms for g in got[n]]) for k in STEPS}
        t.report.row("atoll diff", ms["diff"], "ms", key=f"diff, {n} files")
        t.report.row("atoll diff, CPU time", median([g["diff"].cpu_ms for g in got[n]]), "ms",
                     goal=3, key=f"diff CPU, {n} files")
        for step in ("commit", "undo"):
            t.report.row(f"atoll {step}", ms[step], "ms",
                         f"{ratio([g[step].ms for g in got[n]], floor):.2f} x floor",
                         key=f"{step}, {n} files")
        t.report.row("atoll stop", ms["stop"], "ms", key=f"stop, {n} files")
    t.report.part("all sizes")
    for step in ("commit", "undo"):
        flat(t, f"atoll {step}", {n: [g[step].ms for g in got[n]] for n in t.sizes})
    small = [g["commit"].ms - t.version_ms for g in got[t.sizes[0]]]
    t.report.row("(commit - atoll version) / B", ratio(small, fsync), "x", goal=2.5)
    t.fsync_ms = median(fsync)


LOOKS = (
    ("find", ["find", "."]),
    ("find with sizes", ["find", ".", "-size", "+1G"]),
    ("git status", ["git", "--no-optional-locks", "status", "--porcelain"]),
)


def look(t, root, *before):
    """Milliseconds of the first and of the second time of each look at the tree."""
    script = os.path.join(t.base, "look.sh")
    with open(script, "w") as fh:
        fh.write("set -e\n")
        for _, argv in LOOKS:
            program = shutil.which(argv[0])
            line = " ".join([t.floor, "run", program, *argv[1:]])
            fh.write(f"{line}\n{line}\n")
    out = subprocess.check_output([*before, "/bin/sh", script], cwd=root, env=t.env, text=True)
    ms = [float(line.split()[0]) / 1e3 for line in out.splitlines()]
    return {name: (ms[2 * i], ms[2 * i + 1]) for i, (name, _) in enumerate(LOOKS)}


BARE = """set -e
mkdir -p "$1/u" "$1/w"
mount -t overlay -o "volatile,lowerdir=$2,upperdir=$1/u,workdir=$1/w" overlay "$2"
cd "$2"
shift 2
exec "$@"
"""


def bare_overlay(t, root):
    """How to run a command below an overlay that somebody mounted by hand; None: not allowed to."""
    where = os.path.join(t.base, "bare")
    before = ["unshare", "--mount", "sh", "-c", BARE, "bare", where, root]
    ok = os.geteuid() == 0 and subprocess.run([*before, "true"], capture_output=True).returncode == 0
    return where, before if ok else None


def overlay_looks(t):
    root, n = t.trees[t.sizes[-1]], t.sizes[-1]
    where, by_hand = bare_overlay(t, root)
    t.report.part(f"looking at {n} files from inside one exec, against outside")
    t.git(root, "status", "--porcelain", stdout=subprocess.DEVNULL)  # the index is fresh
    t.atoll("start", "bench", "--dir", root)
    inside, outside, bare_inside = [], [], []
    look(t, root)
    for _ in range(3 if t.quick else 5):
        outside.append(look(t, root))
        inside.append(look(t, root, t.atoll_bin, "exec", "bench", "--"))
        if by_hand:
            shutil.rmtree(where, ignore_errors=True)  # a volatile one is mounted once
            bare_inside.append(look(t, root, *by_hand))
    for name, _ in LOOKS:
        first, second, bare = ([v[name][i] for v in got]
                               for got, i in ((inside, 0), (inside, 1), (outside, 1)))
        t.report.row(f"{name}, outside", median(bare), "ms")
        t.report.row(f"{name}, first inside / outside", ratio(first, bare), "x")
        kernel = [v[name][1] for v in bare_inside]
        note = f"the kernel's overlay alone: {ratio(kernel, bare):.2f}" if by_hand else ""
        t.report.row(f"{name}, second inside / outside", ratio(second, bare), "x", note, goal=1.15)
        if by_hand:
            t.report.row(f"{name}, an overlay mounted by hand / outside", ratio(kernel, bare), "x")
            t.report.row(f"{name}, second inside / by hand", ratio(second, kernel), "x", goal=1.05)
    t.quiet_ms("stop", "bench")


def overlay_thousand(t):
    n = t.sizes[-1]
    t.report.part(f"1,000 changes among {n} files")
    script = t.mutate_script(n, 1000)
    t.settle()
    f = t.floor_us("durable", t.floor_dir, 1000, 1) / 1e3
    got = [t.cycle(t.trees[n], script) for _ in range(1 if t.quick else 3)]
    t.report.row("write+fdatasync+rename x1000, fsync directory", f, "ms")
    for step in ("diff", "commit", "undo"):
        ms = median([g[step].ms for g in got])
        t.report.row(f"atoll {step}", ms, "ms", f"{ms / f:.3f} x floor", key=f"{step}, 1000 changes")
    commit = median([g["commit"].ms for g in got]) - t.version_ms
    t.report.row("(commit - atoll version) / B", commit / t.fsync_ms, "x", goal=60,
                 key="commit / B, 1000 changes")


def sync_calls(t, command):
    """How many sync calls COMMAND made before it ended."""
    trace = os.path.join(t.base, "trace")
    subprocess.run(["strace", "-f", "-qq", "-o", trace, "-e",
                    "trace=fsync,fdatasync,syncfs,sync,msync", t.atoll_bin, command, "bench"],
                   env=t.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(trace) as fh:
        return sum("(" in line and "resumed" not in line for line in fh)


def overlay_syncs(t):
    if not shutil.which("strace"):
        return
    n = t.sizes[0]
    t.report.part("sync calls (strace), 10 changes")
    t.atoll("start", "bench", "--dir", t.trees[n])
    t.atoll("exec", "bench", "--", "sh", t.mutate_script(n, 10), cwd=t.trees[n])
    t.settle()
    for step, command in (("commit", "commit"), ("undo", "rollback")):
        t.report.row(f"atoll {step}: sync calls", sync_calls(t, command), "", goal=7)
    t.atoll("stop", "bench")


def overlay_no_change(t):
    root = t.trees[t.sizes[-1]]
    t.report.part("nothing changed")
    before = {p: os.lstat(p).st_ctime_ns for p in walk(root)}
    t.atoll("start", "bench", "--dir", root)
    t.atoll("exec", "bench", "--", "true", cwd=root)
    t.settle()
    r = t.atoll("commit", "bench")
    after = {p: os.lstat(p).st_ctime_ns for p in walk(root)}
    t.report.row("entries of the resource touched",
                 len(before.items() ^ after.items()), "", goal=0)
    t.report.row("written by the commit", r.written / 1024, "KiB", "records of the registry")
    t.quiet_ms("stop", "bench")


def overlay_big_file(t):
    size = (256 if t.quick else 2048) * MB
    t.report.part(f"a file of {size // MB} MiB, one byte changed")
    root = os.path.join(t.base, "big")
    os.makedirs(root)
    with open(os.path.join(root, "blob"), "wb") as fh:
        chunk = os.urandom(MB)
        for _ in range(size // MB):
            fh.write(chunk)
    t.settle()
    t.atoll("start", "bench", "--dir", root)
    r = t.atoll("exec", "bench", "--", "sh", "-c", "printf x 1<> blob", cwd=root)
    t.report.row("atoll exec", r.ms, "ms", "where there are no reflinks the kernel copies the file "
                 f"on its first write: {r.written // MB} MiB", key="exec, big file")
    for step, command in (("commit", "commit"), ("undo", "rollback")):
        t.settle()
        r = t.atoll(command, "bench")
        t.report.row(f"atoll {step}", r.ms, "ms", key=f"{step}, big file")
        t.report.row(f"atoll {step}: written", r.written / MB, "MiB", goal=1)
    t.quiet_ms("stop", "bench")
    shutil.rmtree(root)


def overlay(t):
    t.report.begin("overlay", "the default strategy; whole commands")
    overlay_create(t)
    overlay_exec(t)
    overlay_steps(t)
    overlay_looks(t)
    overlay_thousand(t)
    overlay_syncs(t)
    overlay_no_change(t)
    overlay_big_file(t)


def git_way(t, root, script, name):
    """The same by a linked worktree: ms."""
    tree = os.path.join(t.base, "linked")
    begin = time.monotonic()
    t.git(root, "worktree", "add", "-q", "-b", name, tree)
    t.git(tree, "config", "user.name", "a")
    t.git(tree, "config", "user.email", "a@b")
    subprocess.run(["/bin/sh", script], cwd=tree, check=True, env=t.env)
    t.git(tree, "add", "-A")
    t.git(tree, "commit", "-q", "-m", name)
    t.git(root, "merge", "-q", "--ff-only", name)
    ms = (time.monotonic() - begin) * 1e3
    t.git(root, "worktree", "remove", "--force", tree)
    t.git(root, "reset", "-q", "--hard", "HEAD~1")
    return ms


def git(t):
    """A repository: its plan against a linked worktree."""
    n = t.sizes[-1] if t.quick else 50000
    root = t.trees.get(n) or t.make_tree(n, True)
    script = t.mutate_script(n, 10)
    t.report.begin("git", f"a repository of {n} files, 10 of them changed and committed inside")
    v = {"start": [], "all": [], "worktree": [], "commit": [], "rollback": []}
    for i in range(2 if t.quick else 5):
        name = f"git{i}"
        v["worktree"].append(git_way(t, root, script, name))
        begin = time.monotonic()
        v["start"].append(Run(t.floor, [t.atoll_bin, "start", name, "--git", root], env=t.env).ms)
        t.atoll("exec", name, "--", "/bin/sh", "-c",
                f"cd {root} && sh {script} && git add -A && git commit -q -m x")
        v["commit"].append(Run(t.floor, [t.atoll_bin, "commit", name], env=t.env).ms)
        v["all"].append((time.monotonic() - begin) * 1e3)
        v["rollback"].append(Run(t.floor, [t.atoll_bin, "rollback", name], env=t.env).ms)
        t.atoll("stop", name)
    t.report.row("atoll start --git", median(v["start"]), "ms", goal=20)
    for step in ("commit", "rollback"):
        t.report.row(f"atoll {step}", median(v[step]), "ms")
    t.report.row("git worktree add, commit, merge", median(v["worktree"]), "ms")
    t.report.row("start, exec, commit / that", ratio(v["all"], v["worktree"]), "x", goal=0.5)


# ---- text ----

def text_tree(t, n):
    """Two trees of N files in which every path differs: the second as the script leaves it."""
    before, after = os.path.join(t.base, "before"), os.path.join(t.base, "after")
    script = os.path.join(t.base, "text.py")
    for i in range(n):
        d = os.path.join(before, f"d{i % 100}")
        os.makedirs(d, exist_ok=True)
        with open(os.path.join(d, f"f{i}"), "w") as fh:
            fh.writelines(f"line {k} of file {i}\n" for k in range(40 + i % 60))
    with open(script, "w") as fh:
        fh.write(f"""import os
for i in range({n}):
    p = f"d{{i % 100}}/f{{i}}"
    if i % 10 < 6:
        with open(p) as fh:
            text = fh.read()
        with open(p, "w") as fh:
            fh.write(text.replace("line 7 of", "line seven of") + "more\\n")
    elif i % 10 < 8:
        os.unlink(p)
    else:
        os.unlink(p)
        with open(p, "w") as fh:
            fh.write("new\\n" * 30)
""")
    shutil.copytree(before, after)
    subprocess.run(["/usr/bin/python3", script], cwd=after, check=True)
    return before, after, script


def text(t):
    """diff --stat reads and compares both sides of every file, as git does for two directories."""
    n = 2000 if t.quick else 10000
    t.report.begin("text", f"{n} changed files: atoll diff against git diff --no-index")
    before, after, script = text_tree(t, n)
    t.atoll("start", "bench", "--dir", before)
    t.atoll("exec", "bench", "--", "/usr/bin/python3", script, cwd=before)
    t.settle()
    # git says with 1 that there are differences.
    git = ["/bin/sh", "-c", 'git diff --no-index --no-renames "$@" || test $? -eq 1', "sh"]
    v = {}
    for _ in range(5 if t.quick else 9):
        for form in ("--stat", "--patch"):
            v.setdefault("git" + form, []).append(
                Run(t.floor, [*git, form, before, after], env=t.env).ms)
            v.setdefault("atoll" + form, []).append(t.atoll("diff", "bench", form).ms)
        v.setdefault("names", []).append(t.atoll("diff", "bench").ms)
    t.report.row("atoll diff", median(v["names"]), "ms")
    for form, goal in (("--stat", 0.5), ("--patch", None)):
        t.report.row(f"git diff --no-index {form}", median(v["git" + form]), "ms")
        t.report.row(f"atoll diff {form}", median(v["atoll" + form]), "ms")
        t.report.row(f"atoll diff {form} / git", ratio(v["atoll" + form], v["git" + form]), "x",
                     goal=goal)
    t.quiet_ms("stop", "bench", "--force")
    shutil.rmtree(before)
    shutil.rmtree(after)


# ---- many plans ----

def lines_in(path):
    with open(path) as fh:
        return sum(1 for _ in fh)


def disk_kib(path):
    return int(subprocess.check_output(["du", "-sk", path]).split()[0])


def rate(t, names, *command):
    began = time.monotonic()
    for name in names:
        subprocess.run([t.atoll_bin, command[0], name, *command[1:]], env=t.env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return len(names) / (time.monotonic() - began)


def many_exec(t, name, root):
    """A command in one of them, against one in a store that holds no other plan."""
    alone = {**t.env, "ATOLL_HOME": os.path.join(t.base, "store-of-one")}
    true, v = shutil.which("true"), {"one": [], "many": []}
    Run(t.floor, [t.atoll_bin, "start", name, "--dir", root], env=alone)
    for _ in range(9 if t.quick else 21):
        for key, env in (("one", alone), ("many", t.env)):
            t.settle()
            v[key].append(Run(t.floor, [t.atoll_bin, "exec", name, "--", true], env=env, cwd=root).ms)
    t.settle()
    Run(t.floor, [t.atoll_bin, "stop", name], env=alone)
    t.report.row("atoll exec of true", median(v["many"]), "ms", f"{median(v['one']):.2f} ms alone")
    t.report.row("atoll exec / alone", ratio(v["many"], v["one"]), "x", goal=1.2)


def many(t):
    n = 100 if t.quick else 1000
    names = [f"many{i}" for i in range(n)]
    root = t.trees[t.sizes[0]]
    t.report.begin("many", f"{n} plans open on one base")
    t.settle()
    mounts, disk = lines_in("/proc/mounts"), disk_kib(t.store)
    alone = t.quiet_ms("list")
    created = rate(t, names, "start", "--dir", root)
    t.settle()
    t.report.row("created", created, "/s")
    t.report.row("more lines in /proc/mounts", lines_in("/proc/mounts") - mounts, "", goal=0)
    t.report.row("processes left", t.helpers(), "", goal=0)
    t.report.row("disk for each plan", (disk_kib(t.store) - disk) / n, "KiB")
    ms = t.floor_us("spawn", 21, t.atoll_bin, "list") / 1e3
    t.report.row("atoll list", ms, "ms", f"{alone:.2f} ms with none", goal=10)
    t.settle()
    many_exec(t, names[0], root)
    one = [t.quiet_ms("start", "onemore", "--dir", root), t.quiet_ms("stop", "onemore")]
    t.report.row("atoll start of one more", one[0], "ms")
    t.report.row("atoll stop of one", one[1], "ms")
    t.report.row("stopped", rate(t, names, "stop"), "/s")


def resident(t):
    t.report.begin("resident size", "the most any run of a command took")
    for k, v in sorted(t.rss.items()):
        t.report.row(f"atoll {k}", v, "MB", goal=20)


# ---- databases ----

def make_database(path, mode, rows):
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
    db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
               "INSERT INTO t SELECT i, hex(randomblob(60)) FROM n", (rows,))
    db.commit()
    db.close()


def sqlite(t):
    """A sandbox is the copy that is kept and the copy that is worked on."""
    rows = 300_000 if t.quick else 700_000
    t.report.begin("sqlite", f"a database of {rows} rows, 10 changed; whole commands")
    for what, mode in (("delete", "delete"), ("wal", "wal"), ("wal, in use", "wal")):
        path = os.path.join(t.base, f"{what.replace(', in ', '-')}.db")
        make_database(path, mode, rows)
        got, user = {}, sqlite3.connect(path, isolation_level=None)
        if what == "wal, in use":  # somebody has it open, and pages of his are in the WAL
            user.execute("UPDATE t SET v='y' WHERE id % 10000 = 2")
        for _ in range(3 if t.quick else 7):
            t.settle()
            to = os.path.join(t.base, "cp.db")
            got.setdefault("cp", []).append(Run(t.floor, ["/bin/cp", path, to]).ms)
            os.unlink(to)
            got.setdefault("start", []).append(t.quiet_ms("start", "bench", "--sqlite", path))
            t.atoll("exec", "bench", "--", "sqlite3", path, "UPDATE t SET v='x' WHERE id % 10000 = 1 AND id < 100000")
            for step, command in (("diff", "diff"), ("commit", "commit"), ("undo", "rollback"), ("stop", "stop")):
                got.setdefault(step, []).append(t.quiet_ms(command, "bench"))
        user.close()
        t.report.part(f"journal_mode={what}, {os.path.getsize(path) / MB:.0f} MiB")
        t.report.row("cp", median(got["cp"]), "ms", key=f"cp, {what}")
        for step in ("start", "diff", "commit", "undo"):
            t.report.row(f"atoll {step}", median(got[step]), "ms", key=f"{step}, {what}")
        t.report.row("start / cp", ratio(got["start"], got["cp"]), "x", goal=5, key=f"start / cp, {what}")


BY_KEY = "\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
BLOCK = 20
SCRIPTS = {"one by one": BY_KEY, f"in blocks of {BLOCK}": f"BEGIN;\n{BY_KEY * BLOCK}END;\n"}


def pgbench_us(t, host, mode, what, count):
    """Microseconds for a statement."""
    script, each = os.path.join(t.base, "pgbench.sql"), BLOCK if "block" in what else 1
    with open(script, "w") as fh:
        fh.write(SCRIPTS[what])
    out = subprocess.check_output([cluster.binary("pgbench"), "-n", "-M", mode, "-t", str(count // each), "-f", script,
                                   "-h", host, "-U", "app", "shop"], text=True, stderr=subprocess.DEVNULL)
    return float(re.search(r"latency average = ([\d.]+)", out)[1]) * 1e3 / each


def postgres_rows(t, places):
    count, rounds = (400, 7) if t.quick else (1000, 21)
    for what in SCRIPTS:
        t.report.part(what)
        for mode in ("simple", "extended", "prepared"):
            us = {k: [] for k in places}
            for _ in range(rounds):
                for k, host in places.items():
                    us[k].append(pgbench_us(t, host, mode, what, count))
            key = f"{mode}, {what}"
            t.report.row(f"{mode}: the server itself", median(us["server"]), "us", key=f"{key}: server")
            t.report.row(f"{mode}: through the proxy", median(us["proxy"]), "us", key=f"{key}: proxy")
            t.report.row(f"{mode}: through the plan", median(us["plan"]), "us", key=f"{key}: plan")
            t.report.row(f"{mode}: plan / proxy", ratio(us["plan"], us["proxy"]), "x", goal=1.3, key=f"{key}: plan / proxy")


def postgres(t):
    """What the holder of a plan's transaction adds to a statement. A plan does two things more than a proxy: it
    reads what it passes on, and one by one, where every statement is a transaction of its own, it sets a savepoint
    after each; in blocks only at the end of the block."""
    if not shutil.which("pgbench"):
        return
    t.report.begin("postgres", "pgbench, one client, a row by its key, against a proxy that only copies bytes")
    place = os.path.join(t.base, "postgres")
    os.makedirs(place, mode=0o755)
    with cluster.Cluster(place, shared_buffers="64MB") as server:
        subprocess.run([cluster.binary("pgbench"), "-i", "-q", "-h", str(server.socket), "-U", "app", "shop"], check=True,
                       capture_output=True)
        proxied = os.path.join(place, "proxy")
        os.mkdir(proxied)
        with subprocess.Popen([t.proxy, f"{proxied}/.s.PGSQL.5432", f"{server.socket}/.s.PGSQL.5432"]) as proxy:
            try:
                t.atoll("start", "bench", "--postgres", server.url)
                shown = subprocess.check_output([t.atoll_bin, "show", "bench", "--json"], env=t.env)
                area = json.loads(shown)["sandboxes"][0]["area"]
                postgres_rows(t, {"server": str(server.socket), "proxy": proxied, "plan": f"{area}/t/clients"})
                t.atoll("stop", "--force", "bench")
            finally:
                proxy.kill()


# ---- builds and locks ----

MAKEFILE = """OBJECTS := $(patsubst %.c,%.o,$(wildcard */*.c))
all: program
program: $(OBJECTS)
\t@$(CC) -o $@ $^
%.o: %.c common.h
\t@$(CC) -O1 -I. -c -o $@ $<
"""

UNIT = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"

struct item{n} {{ struct item{n} *next; char name[64]; int value; }};

static struct item{n} *push(struct item{n} *list, const char *name, int value)
{{
\tstruct item{n} *i = calloc(1, sizeof(*i));

\tif (!i)
\t\treturn list;
\tsnprintf(i->name, sizeof(i->name), "%s", name);
\ti->value = value;
\ti->next = list;
\treturn i;
}}

int unit{n}(int x)
{{
\tstruct item{n} *list = NULL;
\tint sum = 0;

\tfor (int i = 0; i < x; i++)
\t\tlist = push(list, "{n}", i * {n});
\tfor (struct item{n} *i = list; i; i = i->next)
\t\tsum += i->value + (int)strlen(i->name);
\treturn sum + COMMON;
}}
"""


def project(t, units):
    """A C project of so many units, in 40 directories."""
    root = os.path.join(t.base, "project")
    for n in range(units):
        folder = os.path.join(root, f"part{n % 40}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"unit{n}.c"), "w") as fh:
            fh.write(UNIT.format(n=n))
    with open(os.path.join(root, "common.h"), "w") as fh:
        fh.write("#define COMMON 1\n")
    with open(os.path.join(root, "part0", "main.c"), "w") as fh:
        fh.write("int unit0(int);\nint main(void) { return unit0(0) == 1 ? 0 : 1; }\n")
    with open(os.path.join(root, "Makefile"), "w") as fh:
        fh.write(MAKEFILE)
    return root


def build(t):
    """A whole build in a plan, beside the same one outside; both begin without objects."""
    units = 300 if t.quick else 2000
    t.report.begin("build", f"make -j2 of a C project of {units} units, inside and outside")
    root = project(t, units)
    jobs = f"-j{os.cpu_count()}"
    make = shutil.which("make")
    v = {"outside": [], "inside": []}
    for _ in range(3 if t.quick else 5):
        t.settle()
        v["outside"].append(Run(t.floor, [make, "-s", jobs], cwd=root).ms)
        for folder, _, names in os.walk(root):
            for name in names:
                if name.endswith(".o") or name == "program":
                    os.unlink(os.path.join(folder, name))
        t.quiet_ms("start", "bench", "--dir", root)
        t.settle()
        v["inside"].append(t.atoll("exec", "bench", "--", make, "-s", jobs, cwd=root).ms)
        t.quiet_ms("stop", "--force", "bench")
    for k, values in v.items():
        t.report.row(f"make, {k}", median(values), "ms")
    t.report.row("inside / outside", ratio(v["inside"], v["outside"]), "x", goal=1.03)


def lock(t):
    t.report.begin("lock", "the plan's lock and flock(2), in microseconds")
    out = subprocess.check_output([t.lock, t.floor_dir, "200" if t.quick else "1000"], text=True)
    ticket, flock, ticket_over, flock_over = map(float, out.split())
    t.report.row("flock: open, take, let go", flock, "us")
    t.report.row("ticket lock: the same", ticket, "us", f"{ticket / flock:.2f} x flock", goal=6)
    t.report.row("flock: handed over, 8 waiting", flock_over, "us")
    t.report.row("ticket lock: the same", ticket_over, "us", f"{ticket_over / flock_over:.2f} x flock",
                 goal=50, key="ticket handover")


def tokens(t):
    t.report.begin("tokens", "a cached token, 64 threads, 64 sandboxes; processor time of one get")
    v = {"handle": [], "id": [], "mutex": []}
    for _ in range(5 if t.quick else 11):
        for way in v:
            v[way].append(float(subprocess.check_output([t.tokens, way, "64", "300"])))
    t.report.row("from a map under a mutex", median(v["mutex"]), "ns")
    for way, goal in (("handle", 30), ("id", 100)):
        t.report.row(f"by {way}", median(v[way]), "ns", f"{ratio(v[way], v['mutex']):.3f} x map", goal=goal)


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as fh:
        return int(re.search(r"VmRSS:\s+(\d+)", fh.read())[1]) / 1024


def daemon(t):
    t.report.begin("daemon", "32 connections that are kept, on a Unix socket; 20 plans; requests a second")
    for i in range(20):
        os.makedirs(os.path.join(t.base, f"served-{i}"))
        t.atoll("start", f"served-{i}", "--dir", os.path.join(t.base, f"served-{i}"))
    bare, served = (os.path.join(t.base, name) for name in ("bare.sock", "atolld.sock"))
    servers = [subprocess.Popen([t.http, "hello", bare], stdout=subprocess.DEVNULL),
               subprocess.Popen([t.daemon_bin, "--socket", served], env=t.env, stderr=open(os.path.join(t.base, "log"), "w"))]
    try:
        while not os.path.exists(bare) or not os.path.exists(served):
            time.sleep(0.02)
        time.sleep(0.2)
        t.report.row("resident at first", resident_mb(servers[1].pid), "MB", goal=15)
        v = {"hello": [], "healthz": [], "plans": []}
        for _ in range(5 if t.quick else 11):
            for key, socket, target in (("hello", bare, "/"), ("healthz", served, "/healthz"), ("plans", served, "/v1/plans")):
                v[key].append(float(subprocess.check_output([t.http, "load", socket, target, "32", "500"])))
        t.report.row("a bare libmicrohttpd that says hello", median(v["hello"]), "")
        t.report.row("/healthz", median(v["healthz"]), "", f"{ratio(v['healthz'], v['hello']):.2f} x hello")
        t.report.row("/v1/plans", median(v["plans"]), "", f"{ratio(v['plans'], v['hello']):.2f} x hello")
        t.report.row("hello / plans", ratio(v["hello"], v["plans"]), "x", goal=2)
        time.sleep(1)
        t.report.row("resident after that", resident_mb(servers[1].pid), "MB", goal=15)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        for i in range(20):
            t.atoll("stop", f"served-{i}")


ALL = (startup, copy, overlay, build, lock, git, text, many, sqlite, postgres, tokens, daemon, remote, resident)
