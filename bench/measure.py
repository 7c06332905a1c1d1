# SPDX-License-Identifier: Apache-2.0
"""What the sections of the benchmark are built from: runs, trees, rows, the loop image."""
import glob, json, os, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
FILES_PER_DIR = 20


def median(values):
    return statistics.median(values)


def ratio(over, under):
    """The median of the ratios of each round, which a busy machine disturbs least."""
    return median([a / b for a, b in zip(over, under)])


class Report:
    """Rows on the terminal and, with --json, in a file."""

    def __init__(self):
        self.info, self.rows, self.section, self.over = {}, [], "", 0

    def begin(self, section, about):
        self.section = section
        print(f"{section}: {about}", flush=True)

    def part(self, title):
        print(f" {title}", flush=True)

    def row(self, what, value, unit, note="", goal=None, key=None):
        """GOAL: the most the value may be. KEY: the row's name in the file, when WHAT is not one."""
        over = goal is not None and value > goal
        self.over += over
        self.rows.append({"section": self.section, "name": key or what, "value": round(value, 4),
                          "unit": unit, "note": note, "goal": goal, "over": over})
        shown = f"{value:.0f}" if unit in ("", "us") or value >= 100 else f"{value:.2f}"
        text = f"  {what:<50} {shown:>9} {unit:<4}"
        if goal is not None:
            text += f" goal <= {goal:g}" + ("  OVER" if over else "")
        if note:
            text += ("; " if goal is not None else " ") + note
        print(text, flush=True)

    def save(self, path):
        with open(path, "w") as fh:
            json.dump({"host": self.info, "rows": self.rows}, fh, indent=1)
            fh.write("\n")


class Run:
    """One finished command: milliseconds, CPU milliseconds, resident size, bytes written."""

    def __init__(self, floor, argv, env=None, cwd=None):
        p = subprocess.run([floor, "run", *argv], env=env, cwd=cwd, capture_output=True)
        if p.returncode != 0:
            sys.exit(f"{' '.join(argv)}: exit {p.returncode}\n{p.stderr.decode(errors='replace')}")
        us, rss, blocks, cpu = p.stdout.split()[-4:]
        self.ms, self.cpu_ms = float(us) / 1e3, float(cpu) / 1e3
        self.rss_mb, self.written = int(rss) / 1024, int(blocks) * 512


class Tools:
    """The programs under test, on a directory of their own."""

    def __init__(self, build, base, quick, report):
        for built in ("src/cli/atoll", "src/helper/atoll-helper", "src/daemon/atolld"):
            if not os.access(os.path.join(build, built), os.X_OK):
                sys.exit(f"{build}/{built} is not built: meson setup {build}, then ninja -C {build}")
        place = self.install(build, os.path.join(base, "installed"))
        self.atoll_bin = os.path.join(place, "bin/atoll")
        own = glob.glob(os.path.join(place, "libexec/atoll-*"))[0]
        self.helper_bin = os.path.realpath(os.path.join(own, "atoll-helper"))
        self.daemon_bin = os.path.join(own, "atolld")
        self.floor = os.path.join(build, "bench/bench-floor")
        self.empty = os.path.join(build, "bench/bench-empty")
        self.proxy = os.path.join(build, "bench/bench-proxy")
        self.lock = os.path.join(build, "bench/bench-lock")
        self.tokens = os.path.join(build, "bench/bench-tokens")
        self.http = os.path.join(build, "bench/bench-http")
        for program in (self.atoll_bin, self.helper_bin, self.floor, self.empty, self.proxy, self.lock, self.tokens,
                        self.http, self.daemon_bin):
            if not os.access(program, os.X_OK):
                sys.exit(f"{program} is not built: meson setup {build}, then ninja -C {build}")
        self.base, self.quick, self.report = base, quick, report
        self.floor = shutil.copy(self.floor, base)  # the build may be out of sight in a plan
        self.store = os.path.join(base, "store")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
        self.env.update(ATOLL_HOME=self.store, LC_ALL="C")
        self.floor_dir = os.path.join(base, "floor")
        os.makedirs(self.floor_dir)
        self.sizes = (1000, 20000) if quick else (1000, 10000, 100000)
        self.rss, self.trees = {}, {}

    @staticmethod
    def install(build, place):
        """As a user has them: what a linker wrote piece by piece takes longer to load than a copy of it."""
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", place],
                       check=True, stdout=subprocess.DEVNULL)
        options = json.loads(subprocess.check_output(["meson", "introspect", "--buildoptions", build]))
        return place + next(o["value"] for o in options if o["name"] == "prefix")

    def atoll(self, *args, **kw):
        r = Run(self.floor, [self.atoll_bin, *args], env=self.env, **kw)
        self.rss[args[0]] = max(self.rss.get(args[0], 0), r.rss_mb)
        return r

    def floor_us(self, *args):
        return float(subprocess.check_output([self.floor, *map(str, args)], env=self.env))

    def helpers(self):
        """Our helpers that still run: a workspace is synced after the command has ended."""
        n = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as fh:
                    helper = fh.read() == "atoll-helper\n"
                n += helper and os.readlink(f"/proc/{pid}/exe") in (self.helper_bin, os.path.realpath(self.atoll_bin))
            except OSError:
                pass
        return n

    def settle(self):
        """Nothing of the step before is left to disturb the next."""
        deadline = time.monotonic() + 20
        seen_none = 0
        # Twice, since a process that forks and ends may be missed once.
        while seen_none < 2 and time.monotonic() < deadline:
            seen_none = 0 if self.helpers() else seen_none + 1
            time.sleep(0.003)
        subprocess.run(["sync", "-f", self.base], check=True)

    def quiet_ms(self, *args):
        self.settle()
        return self.atoll(*args).ms

    def cycle(self, root, script, *options):
        """start, exec, diff, commit, rollback, stop of one plan."""
        r = {}
        self.settle()
        r["create"] = self.atoll("start", "bench", "--dir", root, *options)
        r["exec"] = self.atoll("exec", "bench", "--", "sh", script, cwd=root)
        r["diff"] = self.atoll("diff", "bench")
        for step, command in (("commit", "commit"), ("undo", "rollback"), ("stop", "stop")):
            self.settle()
            r[step] = self.atoll(command, "bench")
        return r

    # ---- trees ----

    @staticmethod
    def content(d, f):
        return b"%d %d\n" % (d, f) * (50 + (d * 7 + f * 13) % 900)

    @staticmethod
    def dirs(n):
        return [os.path.join(f"d{d % 50}", f"e{d}") for d in range(n // FILES_PER_DIR)]

    def git(self, root, *args, **kw):
        subprocess.run(["git", "-C", root, *args], check=True, env=self.env, **kw)

    def make_tree(self, n, as_git):
        """N files. AS_GIT: checked out from a repository in it that holds one pack."""
        root = os.path.join(self.base, f"tree{n}")
        os.makedirs(root)
        if as_git:
            self.git(root, "init", "-q", "-b", "main")
            self.git(root, "config", "gc.auto", "0")
            p = subprocess.Popen(["git", "-C", root, "fast-import", "--quiet"], env=self.env,
                                 stdin=subprocess.PIPE)
            p.stdin.write(b"commit refs/heads/main\ncommitter a <a@b> 1 +0000\ndata 1\nx\n")
            for d, path in enumerate(self.dirs(n)):
                for f in range(FILES_PER_DIR):
                    data = self.content(d, f)
                    p.stdin.write(b"M 644 inline %s/f%d\ndata %d\n%s\n"
                                  % (path.encode(), f, len(data), data))
            p.stdin.close()
            if p.wait() != 0:
                sys.exit("git fast-import failed")
            self.git(root, "reset", "-q", "--hard")
        else:
            for d, path in enumerate(self.dirs(n)):
                os.makedirs(os.path.join(root, path))
                for f in range(FILES_PER_DIR):
                    with open(os.path.join(root, path, f"f{f}"), "wb") as fh:
                        fh.write(self.content(d, f))
        self.trees[n] = root
        return root

    def mutate_script(self, n, k):
        """K changes: half modified in place, three tenths added, the rest deleted."""
        path = os.path.join(self.base, f"mutate-{n}-{k}.sh")
        dirs = self.dirs(n)
        with open(path, "w") as fh:
            fh.write("set -e\n")
            for i in range(k):
                d = dirs[(i * 7) % len(dirs)] if k <= len(dirs) else dirs[i % len(dirs)]
                f = i % 18 if k <= len(dirs) else (i // len(dirs)) % 18
                if i % 10 < 5:
                    fh.write(f"printf changed-%s $$ 1<> {d}/f{f}\n")
                elif i % 10 < 8:
                    fh.write(f"printf 'new %s\\n' $$ > {d}/new{i}\n")
                else:
                    fh.write(f"rm {d}/f{f}\n")
        return path


def walk(root):
    for d, _, names in os.walk(root):
        yield d
        for n in names:
            yield os.path.join(d, n)


class Place:
    """Where it is measured: as root a fresh journalled ext4 in a loop image, else a directory. Not
    in /tmp, of which a command in a plan has its own."""

    def __init__(self, given):
        self.scratch = tempfile.mkdtemp(prefix="atoll-bench-", dir=given or "/var/tmp")
        os.chmod(self.scratch, 0o711)  # PostgreSQL does not run as root
        self.base, self.mounted, self.tools = self.scratch, False, None
        self.image = os.geteuid() == 0 and not given

    def __enter__(self):
        try:
            if self.image:
                self.mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def mount(self):
        image, self.base = os.path.join(self.scratch, "image"), os.path.join(self.scratch, "mnt")
        os.mkdir(self.base)
        subprocess.run(["truncate", "-s", "12G", image], check=True)
        # Nothing left for the kernel to initialise while we measure.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0",
                        "-N", "1500000", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.base], check=True)
        self.mounted = True

    def filesystem(self):
        kind = subprocess.check_output(["stat", "-f", "-c", "%T", self.base], text=True).strip()
        return "ext4 with a journal, fresh, in a loop image" if self.mounted else kind

    def __exit__(self, *_):
        if self.tools:
            deadline = time.monotonic() + 20
            while self.tools.helpers() and time.monotonic() < deadline:
                time.sleep(0.05)
        # Never through a mount that is still there: what is below it is not ours to empty.
        for attempt in range(50 if self.mounted else 0):
            how = ["umount"] if attempt < 49 else ["umount", "-l"]
            if subprocess.run([*how, self.base], stderr=subprocess.DEVNULL).returncode == 0:
                self.mounted = False
                break
            time.sleep(0.1)
        if not self.mounted:
            shutil.rmtree(self.scratch, ignore_errors=True)
