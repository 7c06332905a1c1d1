# SPDX-License-Identifier: Apache-2.0
"""Copying, moving, linking, syncing, finding, locking."""

from row import Row
from archives import TREE

ROWS = [
    Row('rsync', 'rsync acl attr', short=True, splits=True, begin=TREE + '''
setfattr -n user.comment -v words src/one; setfacl -m g::rx src/deep; mkdir -p old/deep old/gone; echo old >old/deep/numbers; echo stray >old/gone/file
''', script='''
rsync -aHAX -i --delete src/ old/ | sort; rsync -aHAXn -i --delete src/ old/; echo more >>src/deep/numbers; rsync -a --inplace --no-whole-file -i src/ old/
rsync -a --backup --suffix=.was -i --checksum src/one old/; rsync -aH --link-dest=$PWD/old src/ third/; rsync -aS --remove-source-files src/holes moved/
rsync -a --partial --delay-updates --fuzzy -i src/ fourth/ | wc -l; rsync nowhere/ x/ 2>/dev/null
''', status=23),
    Row('coreutils-copy', 'acl attr', short=True, splits=True, begin=TREE + 'setfattr -n user.a -v b src/one; mkdir old; echo old >old/one', script='''
cp -a --reflink=auto src copy; cp -al src linked; cp -a --sparse=always src/holes sparse; cp -b src/one old/; cp -u src/deep/numbers old/; cp --parents src/deep/numbers old
cp -rL src/deep followed; install -D -m 751 src/one bin/tool; install -d -m 2755 shared; ln -sfn deep src/pointer; ln -f src/deep/numbers src/again; ln -sr src/one old/relative
cp -s $PWD/src/one symbolic; cp --remove-destination src/one symbolic; link src/one third; unlink third; cp src/one src/one
''', status=1),
    Row('coreutils-move', '', short=True, splits=True, begin=TREE, script='''
mv src/one src/uno; mv -b src/uno src/deep/numbers; mv -T src/deep/er src/er; mkdir target; mv -t target src/dangling src/holes; mv -n src/deep/numbers src/uno || true
mkdir made; mv made src/made; mv src/made target/; mv src/empty target/; rmdir target/made; rm -r target/empty; mv src/deep/soft target/; mv target/dangling target/soft -f
mkdir -m 700 x; mkdir -p x/y/z; rmdir -p x/y/z; mv nothing here
''', status=1),
    Row('rename-directories', 'python3 perl', short=True, begin=TREE + 'mkdir -p old/a; echo x >old/a/f; mkdir empty', script='''
/usr/bin/python3 -c "import os; os.rename('src', 'lib'); os.rename('lib/deep', 'lib/deeper'); os.rename('lib/deeper/er', 'er'); os.rename('old', 'empty')"
perl -e 'rename "empty", "full" or die "$!"; rename "full/a", "a" or die "$!"'; find . | sort; cat a/f; mkdir src; perl -e 'rename "a", "lib" or die "no\n"' || echo $?
''', splits=True),
    Row('dd', '', short=True, begin='seq 20000 >numbers; truncate -s 2M holes', script='''
dd if=numbers of=part bs=1k skip=3 count=7 conv=fsync status=none; dd if=numbers of=holes bs=512 seek=100 count=3 conv=notrunc,fdatasync status=none
dd if=/dev/zero of=direct bs=4096 count=4 oflag=dsync status=none; dd if=numbers of=numbers bs=1 count=4 seek=10 conv=notrunc status=none
dd if=/dev/zero of=append bs=10 count=1 oflag=append conv=notrunc status=none; dd if=/dev/zero of=new bs=1M count=0 seek=5 status=none; cksum *
dd if=nothing of=x
''', status=1),
    Row('fallocate', 'util-linux', begin='head -c 400000 /dev/zero | tr "\\0" x >full; seq 9 >small', script='''
fallocate -p -o 65536 -l 131072 full; fallocate -l 1M reserved; fallocate -n -l 2M small; fallocate -z -o 0 -l 4096 full; truncate -s 3M sparse; truncate -s -1 small
fallocate -d full; cksum full small reserved sparse; fallocate -c -o 4096 -l 4096 full; stat -c '%n %s' *; truncate -s %7 small;
'''),
    Row('find-xargs', '', short=True, splits=True, begin=TREE + 'mkdir many; cd many; seq 300 | xargs touch; cd ..', script='''
find . -type f -printf '%m %s %n %P\\n' | sort; find many -name '*7' -delete; find many -type f -print0 | xargs -0 -P4 -n20 rm; find src -newermt 2002-01-01 ! -newermt 2004-01-01 | sort
find . -samefile src/one | sort; find . -xtype l; find src -perm /222 -type d -exec chmod g+s {} +; find many -maxdepth 0 -empty; find . -inum 0; find src -type f -execdir touch -d 2005-01-01 {} \\;
xargs -n1 false <src/one
''', status=123),
    Row('parallel', 'parallel', begin='mkdir in; for i in $(seq 12); do echo $i >in/$i; done', script='''
export PARALLEL_HOME=$PWD/parallel; mkdir parallel; touch parallel/will-cite; parallel -j4 --results out 'cat {} >{.}.copy; echo {/}' ::: in/* | sort
parallel -k --joblog log -j2 'echo {}; exit {}' ::: 0 1 2 || echo $?; cut -f7 log; rm log; seq 100 | parallel --pipe -N10 -k wc -l; parallel --tmpdir . -k echo ::: a b; rm -r parallel
''', varying='out/*/seq log'),
    Row('sort', '', short=True, begin='seq 60000 | sed "s/$/ a line of text to make it long/" >big', script='''
sort -R --random-source=big -S 512k -T . --parallel=2 big >shuffled; sort -n -S 512k -T . --compress-program=gzip shuffled | cmp - big && echo sorted; sort -u -o shuffled shuffled
split -n l/7 big part.; sort -m -n part.* | cksum; comm -3 big shuffled | wc -l; csplit -s -z big '/^10000 /' '/^20000 /'; shuf --random-source=big -n3 big; tac big | head -1; rm part.*
sort -c shuffled; uniq -c shuffled | wc -l; tsort nothing
''', status=1),
    Row('locks', 'util-linux procmail', begin='echo 0 >counter', script='''
for i in 1 2 3 4; do (for j in $(seq 25); do flock lock sh -c 'n=$(cat counter); echo $((n + 1)) >counter'; done) & done; wait; cat counter
for i in 1 2 3; do (for j in $(seq 5); do lockfile -s0 -1 dot.lock; n=$(cat counter); echo $((n + 1)) >counter; rm -f dot.lock; done) & done; wait; cat counter
flock -s lock true; exec 9>lock; flock 9; flock -n lock true || echo held; flock -w 1 -E 5 lock true
''', status=5),
    Row('lock-stress', 'python3', begin='head -c 400 /dev/zero >table', script='''
/usr/bin/python3 - <<'END'
import fcntl, os, random, struct
def work(seed):
    r = random.Random(seed)
    with open('table', 'r+b', buffering=0) as f:
        for _ in range(200):
            at = r.randrange(100) * 4
            fcntl.lockf(f, fcntl.LOCK_EX, 4, at)
            n, = struct.unpack('i', os.pread(f.fileno(), 4, at)); os.pwrite(f.fileno(), struct.pack('i', n + 1), at)
            fcntl.lockf(f, fcntl.LOCK_UN, 4, at)
            fcntl.fcntl(f, 38, struct.pack('hhqqi', fcntl.F_WRLCK, 0, at, 4, 0)); fcntl.fcntl(f, 37, struct.pack('hhqqi', fcntl.F_UNLCK, 0, at, 4, 0))
pids = [os.fork() or (work(i), os._exit(0)) for i in range(4)]
print([os.waitpid(p, 0)[1] for p in pids], sum(struct.unpack('100i', open('table', 'rb').read())))
END
'''),
    Row('inotify', 'inotify-tools', begin='mkdir watched; echo old >watched/old', script='''
inotifywait -q -m -r --format '%e %f' -e create,modify,close_write,delete,move,attrib watched >events & watcher=$!
inotifywait -q -t 20 -e create watched >first & until grep -qs ^inotify /proc/$watcher/fdinfo/* && grep -qs ^inotify /proc/$!/fdinfo/*; do sleep 0.05; done
echo new >watched/new; wait $!; echo more >>watched/old; mv watched/new watched/moved; chmod 600 watched/old; rm watched/moved; mkdir watched/end
until grep -q ISDIR events; do sleep 0.05; done; kill $watcher; cat first; sort -u events; inotifywait -q -t 1 -e create watched
''', status=2),
    Row('attr', 'acl attr', short=True, begin='mkdir -p d/e; touch d/f d/g; setfacl -m g::r d/g; setfattr -n user.old -v x d/f', script='''
setfattr -n user.new -v 0x00ff d/f; setfattr -x user.old d/f; setfattr -n user.big -v "$(head -c 2000 /dev/zero | tr '\\0' y)" d/g; getfattr -Rd -m user d | sort
setfacl -m m::rx d/g; setfacl -d -m u::rwx,g::rx,o::- d; mkdir d/inherits; touch d/inherits/f; setfacl -b d/g; find d | sort | xargs getfacl; getfattr -n user.none d/f
''', status=1),
    # An ordinary user's command cannot set these: docs/caveats.md, "ACLs of an ordinary user's plan".
    Row('attributes-of-others', 'acl attr', users='root', begin='mkdir d; touch d/f', script='''
setfacl -m u:1234:rw,g:4321:r d/f; setfacl -d -m u:1234:rwx d; touch d/heir; setfacl -x u:1234 d/f; getfacl -n d/f d d/heir; getfacl -nR d >saved; setfacl --restore=saved
'''),
    Row('chattr', 'e2fsprogs', users='root', begin='mkdir d; echo x >d/f', script='''
chattr +d d/f 2>&1 | wc -l; lsattr -d d | cut -d' ' -f2; mkfs.ext4 -q -E root_owner=0:0 -d d -U clear image 2M; e2fsck -fn image | grep files | cut -d, -f1; debugfs -R 'cat f' image 2>/dev/null
''', varying='image', hidden=r'\d+/\d+ blocks'),
    Row('mktemp', '', short=True, begin='echo text >file', script='''
a=$(mktemp -d); b=$(mktemp -p .); mktemp -u x.XXX >/dev/null; echo x >$a/f; mv $a/f kept; rmdir $a; rm $b; export TMPDIR=$PWD; c=$(mktemp); mv $c named; stat -c '%a %n' kept named
(cd /var/tmp; d=$(mktemp -d /var/tmp/foreign.XXXXXX); echo y >$d/f; cat $d/f; rm -r $d); e=$(mktemp -p /dev/shm); echo z >$e; cat $e; rm $e; mkfifo pipe; cat pipe & echo through >pipe; wait; rm pipe
'''),
    Row('patch', 'patch', short=True, begin='seq 50 >a; cp a b; sed -i s/^25$/changed/ b; diff -u a b >p || true; mkdir d; seq 9 >d/e', script='''
patch -b a p; cmp a b; patch -R a p; patch --dry-run a p; sed -i 25d a; patch -f a p || echo $?; printf -- '--- /dev/null\\n+++ d/new\\n@@ -0,0 +1 @@\\n+x\\n--- d/e\\n+++ /dev/null\\n@@ -1,9 +0,0 @@\\n' >q; seq 9 | sed s/^/-/ >>q; patch -p0 <q; ls -d d/*; patch nothing q
''', status=1),
    Row('quilt', 'quilt patch', begin='seq 30 >file; seq 5 >other', script='''
export QUILT_PATCHES=patches QUILT_NO_RCFILES=1 QUILT_PATCH_OPTS=--unified; quilt new one; quilt add file; sed -i s/^7$/seven/ file; quilt refresh --no-timestamps; quilt new two
quilt add file other; echo more >>file; rm other; quilt refresh --no-timestamps; quilt pop -a; quilt push; quilt series; quilt applied; quilt diff; quilt push; quilt pop nothing
''', status=1),
    Row('diff', 'diffutils', begin=TREE + 'cp -a src new; echo x >>new/one; rm new/dangling; mkdir new/empty/more 2>/dev/null || true', script='''
diff -r --no-dereference src new | sort; diff -ruN src/one new/one | tail -1 || true; cmp src/one new/one || true; sdiff -s src/one new/one || true; diff3 src/one src/one new/one || true; diff -q src/one nothing
''', status=2),
]
