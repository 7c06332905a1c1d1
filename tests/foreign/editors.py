# SPDX-License-Identifier: Apache-2.0
"""Editors, at a terminal where they need one."""

from row import Row

# Expect gives a program a terminal and types: words that are awaited, and what is typed then.
TEXT = 'seq 9 >text; chmod 640 text; ln -s text pointer; printf "no newline" >bare; mkdir sub; touch -d 2001-01-01 sub/old'

ROWS = [
    Row('sed', '', short=True, begin=TEXT, script='''
sed -i.was 's/^5$/five/;7d' text; sed -i --follow-symlinks 1d pointer; sed -n '$=' text; sed -i 's/x/y/' bare; sed -i -e 's/o/0/w written' bare; sed -s -n 1p text bare
sed -i 1d nothing sub/old
''', status=2),
    Row('ed', 'ed', begin=TEXT, script='''
printf '5s/5/five/\\n$a\\nten\\n.\\nw\\n1,3w first\\nr bare\\nW first\\n!echo said\\nq\\n' | ed -s text; cat first; printf 'q\\n' | ed nothing
'''),
    Row('ex', 'vim-tiny', short=True, begin=TEXT, script='''
vim.tiny -u NONE -i NONE -es -c '%s/3/three/' -c 'set backup backupext=.was writebackup' -c w -c 'w! sub/copy' -c 'saveas other' -c wq text
vim.tiny -u NONE -i NONE -es -c "1t\$" -c wq pointer; vim.tiny -u NONE -i NONE -es -c 'set backupcopy=yes' -c 's/no/some/' -c wq bare; vim.tiny -u NONE -i NONE -es -c cquit
''', status=1),
    Row('vim', 'vim expect', begin=TEXT, script='''
cat >typed <<'END'
log_user 0; set timeout 60; spawn -noecho vim -u NONE -N -i $env(PWD)/info -c {set undofile undodir=. directory=.} text
expect "9"; send "Goten\\033:w\\r"; expect "written"; send "ggdd:w! sub/second\\r"; expect "written"; send ":wq\\r"; expect eof; puts [lindex [wait] 3]
END
expect typed; cat text sub/second; ls -a; rm .text.un~ info
'''),
    Row('vim-hard-links', 'vim-tiny', short=True, begin='seq 9 >one; ln one two; ln one three', script='''
vim.tiny -u NONE -i NONE -es -c "1t\$" -c wq one; cat one; vim.tiny -u NONE -i NONE -es -c 1d -c wq one; cat one; rm two three; ls
''', splits=True),
    Row('nano', 'nano expect', begin=TEXT, script='''
cat >typed <<'END'
log_user 0; set timeout 60; set env(TERM) xterm; spawn -noecho nano -I -B text
expect "Exit"; send "first\\r"; send "\\017"; expect "Write"; send "\\r"; expect "Wrote"; send "\\030"; expect eof; puts [lindex [wait] 3]
END
expect typed; cat text; ls -a
'''),
    Row('emacs', 'emacs-nox', begin=TEXT, script='''
emacs -Q --batch text --eval '(progn (setq version-control t) (goto-char (point-max)) (insert "ten\\n") (save-buffer) (copy-file "text" "copy" t t) (make-symbolic-link "a" "b") (find-file "bare") (insert "x") (setq backup-by-copying t) (save-buffer))'
emacs -Q --batch --eval '(progn (write-region "(defun f () 1)" nil "f.el") (byte-compile-file "f.el"))' 2>&1 | wc -l >/dev/null; ls -a; emacs -Q --batch --eval '(kill-emacs 5)'
''', status=5, hidden=r'f\.el.*', varying='f.elc'),
]
