# SPDX-License-Identifier: Apache-2.0
"""Archivers and compressors."""

from row import Row

# A tree with what archives are about: links of both kinds, modes, times, holes, odd names.
TREE = '''
mkdir -p src/deep/er src/empty
echo one >src/one; seq 4000 >src/deep/numbers; printf 'tail' >"src/deep/er/an odd  name"
ln src/one src/deep/hard; ln -s ../one src/deep/soft; ln -s /nowhere src/dangling
truncate -s 3M src/holes; printf end >>src/holes
chmod 600 src/one; chmod 750 src/deep; chmod 555 src/empty
touch -d '2001-02-03 04:05:06.789' src/one src/deep/numbers; touch -h -d 2002-01-01 src/dangling
touch -d 2003-01-01 src/deep/er src/empty
'''

ROWS = [
    Row('tar', 'xz-utils', short=True, begin=TREE, script='''
tar -c --sort=name -Sf all.tar src; tar -tvf all.tar --numeric-owner | sed 's/  */ /g'
mkdir out; tar -C out -xpf all.tar; tar -df all.tar; tar -czf all.tgz src; tar -cJf all.txz src
tar -xzf all.tgz src/one -O; tar -tJf all.txz | wc -l; rm -r src/deep; tar -xpf all.tar
tar --delete -f all.tar src/one; tar -tf all.tar | wc -l; tar -rf all.tar src/one; rm all.tgz all.txz all.tar
'''),
    Row('tar-incremental', '', begin=TREE, varying='snapshot* *.tar', script='''
tar -cf full.tar -g snapshot src; echo more >>src/deep/numbers; rm src/dangling; echo new >src/new
cp snapshot snapshot.1; tar -cvf next.tar -g snapshot.1 src
mkdir back; tar -C back -xf full.tar -g /dev/null; tar -C back -xf next.tar -g /dev/null; diff -r src back/src && echo equal
'''),
    Row('tar-attributes', 'acl attr libcap2-bin', users='root', allow='setuid', short=True, begin=TREE, script='''
setfattr -n user.comment -v words src/deep/numbers; setfattr -n user.secret -v x src/deep
setfacl -m u:1234:rw,g:4321:r src/deep/numbers; setfacl -d -m u:1234:rwx src/deep; chown 1234:4321 src/deep/numbers
cp /bin/true src/true; setcap cap_net_raw+ep src/true
tar -c --acls --xattrs --xattrs-include='*' -f all.tar src; mkdir out; tar -C out -x --acls --xattrs --xattrs-include='*' -pf all.tar
find out ! -type l | sort | tr '\\n' '\\0' | xargs -0 getfacl; getfattr -hRd -m - out | sort; getcap -r out; rm all.tar
'''),
    Row('cpio', 'cpio', splits=True, begin=TREE, script='''
find src -depth -print0 | sort -z | cpio -0o -H newc --quiet >all.cpio; cpio -it --quiet <all.cpio
mkdir out; cd out; cpio -idm --quiet --no-absolute-filenames <../all.cpio; cd ..; diff -r --no-dereference src out/src && echo equal
mkdir pass; find src -depth | sort | cpio -pdml --quiet pass; rm all.cpio
'''),
    Row('zip', 'zip unzip', begin=TREE, varying='*.zip', script='''
zip -qry all.zip src; unzip -Z1 all.zip | sort; unzip -qd out all.zip; echo more >>src/deep/numbers; zip -qu all.zip src/deep/numbers
unzip -qod out all.zip; cmp src/deep/numbers out/src/deep/numbers; zip -qd all.zip 'src/deep/*'; unzip -tq all.zip
'''),
    Row('7z', 'p7zip-full', begin=TREE, varying='*.7z', script='''
7z a -bso0 -bsp0 all.7z src/one src/deep/numbers; 7z t -bso0 -bsp0 all.7z; 7z x -bso0 -bsp0 -oout all.7z
7z d -bso0 -bsp0 all.7z src/one; 7z l -ba -slt all.7z | grep -a '^Path'
'''),
    Row('compressors', 'bzip2 xz-utils zstd lz4 pigz', short=True, begin='seq 20000 >numbers; touch -d 2001-01-01 numbers', script='''
for with in gzip bzip2 xz zstd lz4 pigz; do cp -p numbers by-$with; done
gzip by-gzip; bzip2 by-bzip2; xz -T2 by-xz; zstd -q --rm by-zstd; lz4 -q --rm by-lz4 by-lz4.lz4; pigz -p2 by-pigz; ls
gunzip by-gzip.gz; bunzip2 by-bzip2.bz2; unxz by-xz.xz; unzstd -q --rm by-zstd.zst; unlz4 -q --rm by-lz4.lz4 by-lz4; unpigz by-pigz.gz
for with in gzip bzip2 xz zstd lz4 pigz; do cmp numbers by-$with; done; gzip -f numbers; zcat numbers | tail -1
'''),
    Row('ar', 'binutils gcc libc6-dev', begin='for i in 1 2 3; do echo "int f$i(void) { return $i; }" >$i.c; done', script='''
gcc -c 1.c 2.c 3.c; ar rcs libf.a 1.o 2.o; ar t libf.a; ar r libf.a 3.o; ar d libf.a 1.o; ar tv libf.a; nm -A libf.a
ranlib libf.a; mkdir out; cd out; ar x ../libf.a; ls; strip 2.o; size 3.o
'''),
    Row('squashfs', 'squashfs-tools', begin=TREE, script='''
mksquashfs src all.sqfs -quiet -no-progress -all-root -processors 2
unsquashfs -d out -no-progress -quiet all.sqfs >unsquashed; unsquashfs -ll all.sqfs | sort; diff -r --no-dereference src out && echo equal
'''),
    Row('dpkg-deb', '', short=True, begin='''
mkdir -p p/DEBIAN p/usr/share/p; echo data >p/usr/share/p/data
printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: p\\n' >p/DEBIAN/control
''', script='''
dpkg-deb --root-owner-group -b p p.deb; dpkg-deb -c p.deb | cut -c1-30,48-; dpkg-deb -f p.deb Version; dpkg-deb -R p.deb out; diff -r p out
mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates; touch root/var/lib/dpkg/status; dpkg-deb -x p.deb root; cat root/usr/share/p/data
'''),
    Row('fakeroot', 'fakeroot', users='root', begin='mkdir t; echo x >t/f', script='''
fakeroot -s state -- sh -c 'chown 12:34 t/f; mknod t/null c 1 3; stat -c "%n %u %g %t %T" t/f t/null; tar -cf t.tar t'
tar -tvf t.tar --numeric-owner | cut -c1-20; fakeroot -i state -- stat -c '%u' t/f; rm state t/null t.tar
'''),
]
