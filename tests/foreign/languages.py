# SPDX-License-Identifier: Apache-2.0
"""Interpreters, and their ways of installing things."""

from row import Row

ROWS = [
    Row('python-venv', 'python3-venv', begin='''
mkdir -p pkg/pkg; printf '[build-system]\\nrequires = ["setuptools"]\\nbuild-backend = "setuptools.build_meta"\\n' >pkg/pyproject.toml
printf 'from setuptools import setup\\nsetup(name="pkg", version="1", packages=["pkg"], entry_points={"console_scripts": ["pkg=pkg:main"]})\\n' >pkg/setup.py
printf 'def main():\\n    print("pkg", __file__.rsplit("/", 3)[1])\\n' >pkg/pkg/__init__.py
''', script='''
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1; /usr/bin/python3 -m venv --system-site-packages v
v/bin/pip install -q --no-index --no-build-isolation --no-cache-dir ./pkg; v/bin/pkg; v/bin/pip list --local --format=freeze | grep pkg
v/bin/pip uninstall -qy pkg; v/bin/python -c 'import pkg' 2>&1 | tail -1; v/bin/pip install -q --no-index --no-build-isolation -e ./pkg; v/bin/pkg
find . -name __pycache__ -prune -exec rm -rf {} +; rm -r pkg/build
''', varying='v/lib/python3*/site-packages/*/RECORD v/lib/python3*/site-packages/*/direct_url.json'),
    Row('python', 'python3', short=True, begin='mkdir pkg; echo "x = 1" >pkg/__init__.py; seq 9 >numbers', script='''
/usr/bin/python3 - <<'END'
import compileall, dbm.dumb, fcntl, mmap, multiprocessing, os, pickle, shelve, shutil, sqlite3, tarfile, tempfile, zipfile
compileall.compile_dir('pkg', quiet=1, invalidation_mode=__import__('py_compile').PycInvalidationMode.CHECKED_HASH)
with open('numbers', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:1] = b'X'; m.flush(); fcntl.lockf(f, fcntl.LOCK_EX)
shutil.copytree('pkg', 'copy'); shutil.move('copy', 'moved'); os.replace('numbers', 'moved/numbers')
with dbm.dumb.open('d') as d: d['a'] = 'b'
with multiprocessing.Pool(2) as pool: print(pool.map(abs, range(-3, 0)), multiprocessing.cpu_count() == len(os.sched_getaffinity(0)))
with tempfile.NamedTemporaryFile(dir='.', delete=False) as f: f.write(b'x'); name = f.name
os.chmod(name, 0o640); os.link(name, 'kept'); os.unlink(name); print(oct(os.stat('kept').st_mode))
fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'anonymous'); os.link(f'proc/self/fd/{fd}', 'linked', src_dir_fd=os.open('/', os.O_RDONLY))
shm = multiprocessing.shared_memory.SharedMemory(create=True, size=9) if hasattr(multiprocessing, 'shared_memory') else None
print(sorted(os.listdir('.')), os.access('numbers', os.R_OK), os.statvfs('.').f_namemax)
END
/usr/bin/python3 -m zipapp pkg -m pkg:x -o app.pyz 2>&1 | tail -1; /usr/bin/python3 -m unittest 2>&1 | grep -o 'Ran 0 tests'; rm -f app.pyz
'''),
    Row('perl', 'perl', short=True, begin='seq 20 >numbers; mkdir lib; echo "package A; sub f { 7 } 1;" >lib/A.pm', script='''
perl -i.bak -pe 's/^1$/one/' numbers; perl -Ilib -MA -e 'print A::f(), "\\n"'
perl -MFile::Copy -MFile::Path=make_path,remove_tree -MFcntl=:flock -MStorable -e '
make_path "a/b/c"; copy "numbers", "a/b/copy" or die; move "a/b/copy", "a/moved" or die; remove_tree "a/b"; store {x => 1}, "stored";
open my $f, "+<", "a/moved" or die; flock $f, LOCK_EX or die; truncate $f, 5; rename "a/moved", "renamed" or die; utime 5, 5, "renamed";
symlink "renamed", "link"; print -l "link" ? "link\\n" : "", (-s "renamed"), "\\n"; defined(my $pid = fork) or die; exit 3 unless $pid; wait; print $? >> 8, "\\n"'
prove -Q - </dev/null 2>&1 | tail -1; perl -MDB_File -e 1 2>/dev/null || true; die() { exit 4; }; perl -e 'die "ends\\n"' || die
''', status=4, varying='stored'),
    Row('ruby', 'ruby', begin='echo "def f = 7" >lib.rb; seq 5 >numbers', script='''
ruby -r./lib -rfileutils -rpstore -ryaml -rtempfile -e '
puts f; FileUtils.cp "numbers", "copy"; FileUtils.mkdir_p "a/b"; FileUtils.mv "copy", "a/b/moved"; FileUtils.ln_s "a", "link"
s = PStore.new("store"); s.transaction { s[:a] = [1, 2] }; File.write("y.yml", {a: 1}.to_yaml); FileUtils.rm_r "a/b"; File.open("numbers", "r+") { |h| h.flock(File::LOCK_EX); h.truncate(3) }
Tempfile.create("x", ".") { |t| t.puts 1 }; p Dir["*"].sort; p Process.wait2(fork { exit 5 })[1].exitstatus; at_exit { puts "end" }; exit 6'
''', status=6),
    Row('gem', 'ruby', begin='''
mkdir -p lib; echo 'module Own; def self.f = 7; end' >lib/own.rb
printf 'Gem::Specification.new { |s| s.name = "own"; s.version = "1"; s.summary = "s"; s.authors = ["a"]; s.files = ["lib/own.rb"] }\\n' >own.gemspec
''', script='''
gem build -q own.gemspec 2>/dev/null; export GEM_HOME=$PWD/gems; gem install -q --local --no-document own-1.gem; ruby -rown -e 'puts Own.f'; gem list --local -q own
gem uninstall -qx own; ls gems/gems
'''),
    Row('lua', 'lua5.4', begin='echo "return { f = function() return 7 end }" >m.lua', script='''
lua5.4 -e 'print(require("m").f()); local f = assert(io.open("out", "w")); f:write("x"); f:close(); os.rename("out", "moved"); os.remove("m.lua")
local p = io.popen("ls"); print(p:read("a")); print(p:close()); os.exit(9)'
''', status=9),
    Row('tcl', 'tcl', begin='seq 5 >numbers', script='''
tclsh <<'END'
file mkdir a/b; file copy numbers a/b; file rename a/b/numbers a/moved; file delete -force a/b; file link -symbolic link a; file attributes a/moved -permissions 0600
set f [open numbers a]; puts $f six; close $f; puts [lsort [glob *]]; puts [exec sh -c {exit 0}]; if {[catch {exec false} e]} { puts $e }; exit 7
END
''', status=7),
    Row('node', 'nodejs', begin='mkdir src; echo "module.exports = 7" >src/m.js; seq 9 >numbers', script='''
node -e '
const fs = require("fs"), path = require("path"), cp = require("child_process"), { Worker } = require("worker_threads");
console.log(require("./src/m")); fs.cpSync("src", "copy", { recursive: true, preserveTimestamps: true }); fs.renameSync("copy/m.js", "copy/n.js");
fs.copyFileSync("numbers", "clone", fs.constants.COPYFILE_FICLONE); fs.appendFileSync("numbers", "ten\\n"); fs.symlinkSync("src", "link"); fs.rmSync("copy", { recursive: true });
fs.mkdirSync("a/b/c", { recursive: true }); fs.utimesSync("clone", 5, 5); console.log(cp.execSync("ls | sort").toString(), cp.spawnSync("sh", ["-c", "exit 4"]).status);
const w = fs.watch("a", () => { w.close(); new Worker("console.log(1+1)", { eval: true }).on("exit", () => process.exit(8)) }); fs.writeFileSync("a/file", "x")'
''', status=8),
    Row('npm', 'nodejs npm', begin='''
mkdir -p dep/bin tarred; printf '{"name":"dep","version":"1.0.0","bin":{"dep":"bin/dep.js"},"scripts":{"postinstall":"node -e 0"}}' >dep/package.json
printf '#!/usr/bin/env node\\nconsole.log("dep")\\n' >dep/bin/dep.js; chmod 755 dep/bin/dep.js
printf '{"name":"tarred","version":"2.0.0","main":"i.js"}' >tarred/package.json; echo 'module.exports = 2' >tarred/i.js
printf '{"name":"p","version":"1.0.0","private":true,"dependencies":{"dep":"file:dep","tarred":"file:tarred-2.0.0.tgz"},"scripts":{"go":"dep && node -p 7"}}' >package.json
tar -czf tarred-2.0.0.tgz --transform s/tarred/package/ tarred
''', script='''
export npm_config_cache=$PWD/cache npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false npm_config_offline=true NO_COLOR=1
npm install --no-progress >log; cut -d' ' -f1,2 log; npm run -s go; node -p 'require("tarred")'; npm ls --all | sed 1d; npm ci >log; npm uninstall -s dep; ls -a node_modules
npm pack -s ./tarred; rm -rf cache log
''', varying='node_modules/.package-lock.json tarred-2.0.0.tgz package-lock.json'),
    Row('awk', 'gawk mawk', short=True, begin='seq 30 >numbers', script='''
gawk -i inplace '{ print $1 * 2 }' numbers; awk '{ print > ("part" $1 % 3) } END { while (("sort -n part0" | getline line) > 0) n += line; print n }' numbers
gawk 'BEGIN { "date -u -d @0 +%F" | getline d; print d; system("exit 3"); exit 5 }'
''', status=5),
    Row('m4', 'm4', begin='''
cat >in.m4 <<'END'
define(`f', `$1-$2')f(a, b)syscmd(`echo said')sysval
END
''', script='''
m4 in.m4 | tee out; m4 -F frozen in.m4 >/dev/null; m4 -R frozen in.m4; echo "mkstemp(tXXXXXX)" | m4 | cut -c1; rm t[A-Za-z0-9]*
'''),
    Row('jq', 'jq', short=True, begin='''printf '{"a":[1,2,{"b":null}]}' >in.json''', script='''
jq -c '.a[2].b = 7' in.json >out.json; mv out.json in.json; jq -r '.a | length' in.json; jq -e .c in.json
''', status=1),
]
