# SPDX-License-Identifier: Apache-2.0
"""Keys, tracers, formatters, and what else people call."""

from row import Row

PROGRAM = r'''
printf '#include <stdio.h>\n#include <stdlib.h>\nint f(int x) { return x * 2; }\nint main(void) { int *p = malloc(40); p[0] = f(21); printf("%%d\\n", p[0]); free(p); return 3; }\n' >p.c; gcc -g -O0 -o p p.c
'''

ROWS = [
    Row('gpg', 'gnupg', begin='echo text >text', script='''
export GNUPGHOME=$PWD/home; mkdir -m 700 home; g='gpg --batch -q --no-tty --pinentry-mode loopback --passphrase ""'; eval $g --quick-generate-key me@here ed25519 default never 2>/dev/null; eval $g --quick-add-key $(gpg -k --with-colons 2>/dev/null | awk -F: '/^fpr/ { print $10; exit }') cv25519 encr never
eval $g -e -r me@here --trust-model always text; eval $g -d text.gpg; eval $g --detach-sign text; gpg -q --verify text.sig 2>&1 | grep -c Good; gpg --armor --export me@here | head -1; gpgconf --kill all; ls home; rm -rf home text.gpg text.sig
''', hidden='pubring.*'),
    Row('openssl', 'openssl', short=True, begin='echo text >text', varying='key* *.pem text.enc sig', script='''
openssl genpkey -algorithm ed25519 -out key; openssl pkey -in key -pubout -out key.pub; openssl pkeyutl -sign -inkey key -rawin -in text -out sig; openssl pkeyutl -verify -pubin -inkey key.pub -rawin -in text -sigfile sig
openssl req -x509 -newkey ed25519 -nodes -keyout k.pem -out c.pem -subj /CN=here 2>/dev/null; openssl verify -CAfile c.pem c.pem; openssl enc -aes-256-cbc -pbkdf2 -k pw -in text -out text.enc; openssl enc -d -aes-256-cbc -pbkdf2 -k pw -in text.enc; openssl dgst -sha256 text; stat -c %a key; openssl x509 -in nothing 2>/dev/null
''', status=1),
    Row('ssh-keygen', 'openssh-client', begin='echo text >text', varying='id* text.sig', script='''
ssh-keygen -q -t ed25519 -N '' -C me -f id; cut -d' ' -f1,3 id.pub; ssh-keygen -q -Y sign -f id -n file text 2>/dev/null; echo "me $(cat id.pub)" >allowed; ssh-keygen -Y verify -f allowed -I me -n file -s text.sig <text | cut -c1-20; eval $(ssh-agent -s -a $PWD/agent) >/dev/null; ssh-add -q id
ssh-add -l | wc -l; ssh-agent -k >/dev/null; ssh-keygen -q -p -N new -P '' -f id; stat -c %a id; rm allowed; ssh-keygen -y -P wrong -f id 2>/dev/null
''', status=255),
    Row('strace', 'strace', short=True, begin='echo x >f', script='''
strace -f -o log -e trace=openat,execve sh -c 'cat f; exit 4' || echo $?; grep -c 'openat.*"f"' log; strace -c -o counted true; test -s counted; strace -qq -e trace=none -e signal=usr1 sh -c 'kill -USR1 $$' 2>/dev/null || echo $?; rm log counted; strace -D -o log -e inject=unlink,unlinkat:error=EPERM rm f 2>/dev/null
''', status=1, varying='log'),
    Row('gdb', 'gdb gcc libc6-dev', begin=PROGRAM, script='''
gdb -nx -q -batch -ex 'break f' -ex run -ex bt -ex 'set var x = 4' -ex finish -ex 'info proc' -ex continue ./p 2>&1 | grep -vE 'process|libthread|Using host|^$|exe =|cmdline|cwd'; ulimit -c unlimited; (./p & sleep 0) ; gdb -nx -q -batch -ex 'print f(5)' -ex start -ex 'generate-core-file core' ./p 2>&1 | grep -c Saved
rm core
''', hidden=r'0x[0-9a-f]+'),
    Row('valgrind', 'valgrind gcc libc6-dev', begin=PROGRAM, script='''
valgrind -q --leak-check=full --error-exitcode=5 ./p || echo $?; valgrind --tool=callgrind --callgrind-out-file=out ./p >/dev/null 2>&1 || echo $?; grep -c fn= out >/dev/null; valgrind -q --vgdb=full --log-file=log.%p ./p || echo $?; rm out log.*
'''),
    Row('logrotate', 'logrotate', begin='mkdir logs; seq 900 >logs/a.log; seq 5 >logs/b.log; chmod 640 logs/b.log', script='''
printf '%s/logs/*.log {\\n rotate 2\\n size 1\\n compress\\n delaycompress\\n missingok\\n copytruncate\\n}\\n' "$PWD" >conf; chmod 644 conf; for i in 1 2 3; do logrotate -s $PWD/state conf; seq $i >>logs/a.log; done; ls -l logs | awk '{ print $1, $5, $9 }'; sed -n 's/ [0-9].*//p' state; rm state
''', varying='logs/*.gz'),
    Row('imagemagick', 'imagemagick', script='''
convert -size 40x30 gradient:red-blue -define png:exclude-chunks=date,time a.png; convert a.png -resize 50% -strip b.jpg; identify -format '%f %w %h\\n' a.png b.jpg; mogrify -rotate 90 -define png:exclude-chunks=date,time a.png; compare -metric AE a.png a.png null: 2>&1; montage a.png a.png -geometry +1+1 m.gif; identify nothing 2>/dev/null
''', status=1, varying='*.png *.jpg *.gif'),
    Row('groff', 'groff', begin="printf '.TH A 1\\n.SH NAME\\na \\\\- text\\n.TS\\nl l.\\nx\\ty\\n.TE\\n' >a.1", script='''
groff -t -man -Tutf8 a.1 | head -5; groff -t -man -Tps a.1 >a.ps; grep -c showpage a.ps; groff -man -Thtml a.1 >a.html 2>/dev/null; man --warnings -l a.1 2>/dev/null | head -1; test -s a.html; rm -f grohtml*
''', varying='a.html'),
    Row('texinfo', 'texinfo', begin="printf '\\\\input texinfo\\n@setfilename a.info\\n@settitle A\\n@node Top\\n@top A\\n@menu\\n* B::\\n@end menu\\n@node B\\n@chapter B\\ntext\\n@bye\\n' >a.texi", script='''
makeinfo a.texi; grep -c Node: a.info; makeinfo --html a.texi; ls a; makeinfo --plaintext a.texi | tail -1; install-info a.info dir; grep -c a.info dir || true; makeinfo nothing.texi 2>/dev/null
''', status=1),
    Row('autotools-m4', 'libtool autoconf automake', begin='printf "AC_INIT([p],[1])\\nLT_INIT\\nAC_OUTPUT\\n" >configure.ac', script='''
libtoolize -cq --install; aclocal --install -I m4 2>&1 | wc -l; autoconf; test -x configure; ls m4 | wc -l
''', varying='autom4te.cache/*'),
    Row('lockfile-progs', 'lockfile-progs', begin='touch mail', script='''
lockfile-create --retry 0 mail; lockfile-check mail; lockfile-touch -o mail; lockfile-create --retry 0 mail 2>/dev/null || echo $?; ls; lockfile-remove mail; lockfile-check mail
''', status=255),
    Row('gettext', 'gettext', begin="printf '#include <libintl.h>\\nint main(void) { gettext(\"hello\"); }\\n' >a.c", script='''
xgettext --omit-header -o a.pot a.c; msginit --no-translator -l de -i a.pot -o de.po 2>/dev/null; sed -i '$s/""/"hallo"/' de.po; msgfmt -o de.mo de.po; msgunfmt de.mo | tail -2; msgmerge -q -U --backup=simple de.po a.pot; envsubst <a.c | wc -c; msgfmt nothing 2>/dev/null
''', status=1, varying='de.*'),
    Row('xmllint', 'libxml2-utils', begin='''
mkdir x; printf '<!DOCTYPE a SYSTEM "a.dtd"><a><b c="1">t</b></a>' >x/a.xml; printf '<!ELEMENT a (b)*><!ELEMENT b (#PCDATA)><!ATTLIST b c CDATA #IMPLIED>' >x/a.dtd
''', script='''
xmllint --format x/a.xml | tee formatted; xmllint --valid --noout x/a.xml; mv x y; xmllint --xpath 'string(//b/@c)' --dtdvalid y/a.dtd y/a.xml; xmllint --c14n y/a.xml --output y/c.xml
xmlcatalog --create --noout own.xml; xmlcatalog --noout --add system http://x.example/a.dtd y/a.dtd own.xml; xmlcatalog own.xml http://x.example/a.dtd; echo '<a>' >bad; xmllint bad
''', status=1),
    Row('yq', 'yq jq', begin="printf 'a:\\n  - 1\\n  - b: x\\n' >in.yml", script='''
yq -y '.a[1].b = 7' in.yml; yq -i -y '.c = "new"' in.yml; cat in.yml; yq -r '.a | length' in.yml; mkdir d; yq . in.yml >d/out.json; mv d e; yq '.a | .none' in.yml 2>/dev/null
''', status=5),
    Row('ctags', 'universal-ctags cscope', begin='''
mkdir -p src/sub; printf 'int f(void) { return 1; }\\nstruct s { int m; };\\n' >src/a.c; printf 'int f(void);\\nint main(void) { return f(); }\\n' >src/sub/b.c
''', script='''
ctags -R --sort=yes src; ctags -x src/a.c; ctags --append -R src/sub; mv src lib; ctags -R -f t2 --tag-relative=yes lib; diff tags t2 | grep -c '^[<>]'; sed -i /main/d t2
find lib -name '*.c' | sort >cscope.files; cscope -b -q -k; cscope -d -L -1 f; cscope -d -L -3 f; mv lib src; cscope -d -L -1 main; rm src/a.c; cscope -b -q -k 2>&1
''', status=1, varying='cscope.*'),
    Row('e2fsprogs', 'e2fsprogs', begin='mkdir -p tree/a; seq 2000 >tree/a/numbers; ln -s a tree/link; ln tree/a/numbers tree/hard', script='''
PATH=$PATH:/usr/sbin:/sbin; mke2fs -q -t ext4 -U 00000000-0000-0000-0000-000000000001 -E hash_seed=00000000-0000-0000-0000-000000000002,root_owner=0:0 -d tree image 8M
e2fsck -fn image 2>/dev/null | tail -1; debugfs -R 'ls -p /' image 2>/dev/null | cut -d/ -f6 | sort; debugfs -w -R 'rm /a/numbers' image 2>/dev/null; mkdir back; debugfs -R 'rdump / back' image 2>/dev/null; cmp tree/hard back/hard
resize2fs -M image >/dev/null 2>&1 || echo no; tune2fs -L own image >/dev/null; e2label image; truncate -s 1M cut; mv tree back/; dumpe2fs cut >/dev/null 2>&1 || echo cut; e2fsck -fn cut 2>/dev/null >&2
''', status=8, varying='image cut'),
]
