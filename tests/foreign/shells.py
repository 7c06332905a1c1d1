# SPDX-License-Identifier: Apache-2.0
"""Shells: redirections, substitution, jobs, traps, wildcards, their own temporary files."""

from row import Row

COMMON = r'''
set -e; cd "$(pwd)"; echo a >a; echo b >>a; cat <<END >here
$(pwd | wc -l) text
END
for i in 1 2 3; do echo $i; done | while read -r n; do mkdir -p d$n; echo $n >d$n/f; done; ls -d d*; rm -r d[23]; (umask 077; echo x >closed); set -C; (echo no >a) 2>/dev/null || echo kept; set +C; exec 3>three; echo y >&3; exec 3>&-
trap 'echo trapped >trap; echo leaving' EXIT; sleep 0 & wait $!; kill -0 $$; (kill -TERM $(sh -c 'echo $PPID')) 2>/dev/null || echo $?; test -d d1 -a ! -e d2; echo [a-c]* *.none; x=$(cat a; exit 3) || echo $?; exit 9
'''

ROWS = [Row(name, packages, short=short, status=9, begin='cat >script <<"XXX"' + COMMON + 'XXX\n', script=f'{call} script')
        for name, packages, call, short in (
            ('dash', '', 'dash', True), ('bash', '', 'bash', True), ('bash-posix', '', 'bash --posix', False),
            ('zsh', 'zsh', 'zsh -f -o nonomatch -o shwordsplit', True), ('busybox-sh', 'busybox-static', 'busybox sh', False))] + [
    Row('bash-own', '', short=True, begin='seq 9 >f', script='''
exec bash --norc <<'END'
coproc { read -r x; echo "co $x"; }; echo hi >&${COPROC[1]}; read -r y <&${COPROC[0]}; echo $y; diff <(sort f) <(sort -r f) | wc -l; tee >(wc -l >count) <f | tail -1; cat <<<word; shopt -s globstar nullglob; mkdir -p x/y; touch x/y/{a..c}.t
echo **/*.t; mapfile -t lines <f; printf '%s,' "${lines[@]}"; exec {fd}<>rw; echo z >&$fd; echo $((2**40)) $BASH_SUBSHELL; set -m; sleep 100 & kill %1; wait %1; echo $?; ulimit -c; type -t ls; until [ -s count ]; do sleep 0.05; done; exit 6
END
''', status=6),
    Row('zsh-own', 'zsh', begin='mkdir -p a/b; seq 5 >a/b/f; touch a/x', script='''
zsh -f -c 'print -l **/*(.N) a/*(/); zmodload zsh/files zsh/stat zsh/system; mv a/x a/y; stat -H s +size a/b/f; print ${s[size]} $s; cat =(echo tmp); setopt multios; echo m >one >two; autoload zmv; zmv "a/(y)" "a/\\$1z"; print a/*; return 4'
''', status=4),
    Row('fish', 'fish', begin='seq 5 >f', script='''
export XDG_CONFIG_HOME=$PWD/c XDG_DATA_HOME=$PWD/d XDG_RUNTIME_DIR=$PWD; fish --no-config -c 'for i in (seq 3); echo $i >n$i; end; cat n* | string join ,; cat (echo x | psub); ls | count; begin; echo in; end >out; test -f out; and echo yes; sleep 0 &; wait; mv n1 m1; set -U kept 1; exit 7'
''', status=7, varying='c/fish/fish_variables'),
    Row('busybox', 'busybox-static', begin='mkdir d; seq 9 >d/f; ln -s d link', script='''
b=busybox; $b cp -a d e; $b mv e/f e/g; $b tar -cf t.tar d e; $b tar -tf t.tar; $b find . -type f | $b sort; $b sed -i s/3/three/ d/f; $b grep -rl three .; $b gzip t.tar; $b md5sum d/f; $b mkfifo p; ($b cat p & echo x >p; wait); $b rm p t.tar.gz
$b cp d/f tool; $b chmod 700 tool; $b ln -s tool sym; $b readlink -f sym | $b wc -l; $b truncate -s 5 tool; $b diff -r d e || true; $b mktemp -p . -d | $b wc -l; $b rmdir tmp.*; $b ps | $b wc -l >/dev/null; $b false
''', status=1),
    Row('expect-pty', 'expect', begin='', script='''
cat >typed <<'END'
log_user 0; set timeout 60; spawn -noecho sh; expect -re {[#$] }; send "stty -echo; PS1=ready:; tty | cut -c1-9 >which; tty -s && echo terminal >made; stty size >size\\r"; expect "ready:"
send "sleep 1000\\r"; sleep 0.3; send "\\003"; expect "ready:"; send "cat >typed-in\\r"; sleep 0.2; send "line\\r\\004"; expect "ready:"; send "exit 5\\r"; expect eof; puts [lindex [wait] 3]
END
expect typed; cat which made typed-in; script -qec 'test -t 0 && test -t 1 && echo on a terminal; exit 8' log </dev/null | tr -d '\\r'; rm log; setsid -w sh -c 'test -c /dev/tty; : </dev/tty' 2>/dev/null || echo no terminal
'''),
    Row('tmux', 'tmux', script='''
export TMUX_TMPDIR=$PWD; tmux -f /dev/null new-session -d -s s -x 80 -y 24 "sh -c 'echo in >made; tmux wait-for -S ready; exec cat >typed'"; tmux wait-for ready; tmux send-keys -t s words Enter; until [ -s typed ]; do sleep 0.05; done
tmux split-window -d -t s 'echo split >split; tmux wait-for -S second'; tmux wait-for second; tmux list-sessions -F '#{session_name} #{session_windows}'; tmux kill-server; cat made typed split; rm -r tmux-*
'''),
]
