#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What `atoll diff` shows, form by form.

load cli

# plan STRATEGY SCRIPT: p over the directory app, changed by SCRIPT, which runs in it.
plan() {
	atoll start p --strategy "$1" --dir app >/dev/null 2>&1
	(cd app && atoll exec p -- sh -c "$2")
}

# shown ARGUMENT...: only what is on standard output, in $output.
shown() {
	run --separate-stderr atoll diff p "$@"
	status_is 0
}

# Type, mode and content of everything below; git keeps no more of a mode than one bit.
content() {
	(cd "$1" && find . -type d -printf '%P %y\n' -o -type l -printf '%P %y %l\n' -o -printf '%P %y %m\n' | sort)
	(cd "$1" && find . -type f -exec sha256sum -z {} + | sort -z | tr '\0' '\n')
}

# A project in which names and contents are of all kinds.
odd_project() {
	mkdir -p app/sub/deep app/gone/below 'app/with blank'
	seq 40 >app/numbers
	printf 'no end' >app/no-end
	printf 'an end\n' >app/an-end
	printf 'windows\r\nlines\r\n' >app/crlf
	: >app/empty
	: >app/empty-gone
	echo x >app/sub/script
	echo y >app/sub/deep/file
	echo z >app/gone/below/file
	echo b >'app/with blank/a file'
	echo q >'app/say "hi"'
	echo n >$'app/two\nlines'
	echo l >$'app/latin-\351'
	echo t >$'app/tab\there'
	echo s >'app/back\slash'
	ln -s numbers app/link
	ln -s numbers app/link-gone
	echo now-a-file >app/file-to-link
	echo now-a-file >app/file-to-dir
	mkdir app/dir-to-file && echo inner >app/dir-to-file/inner
	ln -s numbers app/link-to-file
	mkdir app/replaced && echo old >app/replaced/old && echo both >app/replaced/both
}

odd_edits='
	sed -i "s/^7$/seven/; s/^35$/thirty-five/; \$a41" numbers
	printf "no end either" >no-end
	printf "no end any more" >an-end
	printf "windows\r\nmore\r\nlines\r\n" >crlf
	echo filled >empty; rm empty-gone; : >empty-new
	chmod +x sub/script
	mkdir -p new/below; echo new >new/below/file; printf "%s" "new, no end" >new/no-end
	rm -r gone
	echo more >>"with blank/a file"; echo new >"with blank/new file"
	echo more >>"say \"hi\""; echo more >>"$(printf "two\nlines")"; echo more >>"$(printf "latin-\351")"
	echo more >>"$(printf "tab\there")"; echo more >>"back\\slash"
	echo new >"$(printf "new\n\001\377")"
	ln -sfn empty link; rm link-gone; ln -s nowhere link-new
	rm file-to-link; ln -s numbers file-to-link
	rm file-to-dir; mkdir file-to-dir; echo inside >file-to-dir/inside
	rm -r dir-to-file; echo file >dir-to-file
	rm link-to-file; echo file >link-to-file; chmod +x link-to-file
	rm -r replaced; mkdir replaced; echo both >replaced/both; echo fresh >replaced/fresh'

@test "cli diff --patch is a patch that git applies: the same tree as a commit's" {
	outside_tmp
	for strategy in overlay copy; do
		rm -rf app pristine && odd_project
		cp -a app pristine
		plan "$strategy" "$odd_edits"
		atoll diff p --patch >patch 2>/dev/null
		git -C pristine apply --whitespace=nowarn "$PWD/patch"
		atoll commit p >/dev/null 2>&1
		diff <(content pristine) <(content app)
		atoll stop --force p
	done
}

@test "cli diff --patch with patch(1), and with as many lines around as asked for" {
	mkdir app && seq 20 >app/f
	cp -a app pristine
	plan copy 'sed -i s/^10$/ten/ f'
	shown --unified 0
	[[ $output == *$'\n@@ -10 +10 @@\n-10\n+ten' ]]
	shown --patch --unified 1
	[[ $output == *$'\n@@ -9,3 +9,3 @@\n 9\n-10\n+ten\n 11' ]]
	shown --patch
	[[ $output == *$'\n@@ -7,7 +7,7 @@'* ]]
	[ "${lines[0]}" = "resource $work/app" ]
	[ "${lines[1]}" = 'diff --git a/f b/f' ]
	[[ $stderr == *'1 file changed, 1 insertion(+), 1 deletion(-)'* ]]
	if command -v patch; then
		patch -d pristine -p1 <<<"$output"
		[ "$(sed -n 10p pristine/f)" = ten ]
	fi
}

@test "cli diff counts as git counts" {
	odd_project
	cp -a app pristine
	plan copy "$odd_edits"
	# A file that becomes another kind of thing is one entry here and two there; sums are equal.
	ours=$(atoll diff p --stat --json 2>/dev/null | jq -r '[.insertions, .deletions] | join(" ")')
	cd pristine
	sh -c "$odd_edits"
	cd ..
	theirs=$(git diff --no-index --no-renames --numstat app pristine | awk '{ a += $1; d += $2 } END { print a, d }')
	[ "$ours" = "$theirs" ]
	[[ $(atoll diff p --stat 2>/dev/null | tail -n 1) == *" files changed, ${ours% *} insertions(+), ${ours#* } deletions(-)"* ]]
}

@test "cli diff --stat draws what it counts" {
	mkdir app && seq 300 >app/long && echo x >app/short && printf 'a\0b' >app/bin
	plan copy 'seq 100 >long; echo y >short; printf "a\0bc" >bin; mkdir dir; echo new >dir/new'
	shown --stat
	[[ ${lines[0]} == *'/app/bin     | Bin 3 -> 4 bytes' ]]
	[[ ${lines[1]} == *'/app/dir/    |   0  (new)' ]]
	[[ ${lines[2]} == *'/app/dir/new |   1 +  (new)' ]]
	[[ ${lines[3]} =~ '/app/long    | 200 -'-+$ ]]
	[[ ${lines[4]} == *'/app/short   |   2 +-' ]]
	[ "${lines[5]}" = ' 4 files changed, 2 insertions(+), 201 deletions(-), 1 directory' ]
	# A graph is no wider than the rest of the line, or ten.
	line=${lines[3]}
	[ "${#line}" -le 80 ] || [[ ${line##* } =~ ^-{1,10}$ ]]
}

@test "cli diff shows every entry of a directory that comes, goes or is replaced" {
	outside_tmp
	for strategy in overlay copy; do
		rm -rf app && odd_project
		plan "$strategy" 'rm -r gone; mkdir -p new/a; echo x >new/a/b; rm -r replaced; mkdir replaced; echo fresh >replaced/fresh
			rm -r dir-to-file; echo file >dir-to-file'
		for form in name-status stat patch json; do
			atoll diff p "--$form" >"$form" 2>/dev/null
		done
		for path in 'D gone' 'D gone/below' 'D gone/below/file' 'A new' 'A new/a' 'A new/a/b' \
			'D replaced/old' 'D replaced/both' 'A replaced/fresh' 'M dir-to-file' 'D dir-to-file/inner'; do
			letter=${path%% *} path=${path#* }
			echo "$path"
			grep -qE "^$letter  $work/app/$path/?( |$)" name-status
			grep -qE "^ $work/app/$path/? +\|" stat
			grep -qE "^($letter  $work/app/$path/|diff --git a/$path b/$path$)" patch
			jq -e --arg path "$path" 'any(.changes[]; .path == $path)' json >/dev/null
		done
		atoll stop --force p
	done
}

@test "cli diff says what a path does not" {
	outside_tmp
	mkdir app && echo x >app/file && echo l >app/name1 && ln app/name1 app/name2 && chmod 644 app/file
	mkdir app/dir
	plan overlay 'chmod 600 file; chmod 700 dir; echo more >>name1; echo x >tool; chmod 4755 tool
		ln -s ../../etc out; ln -s file in; mkfifo pipe; echo x >secret; chmod 600 secret'
	for form in --name-status --patch --stat; do
		shown "$form"
		says 'mode 0644 -> 0600'
		says 'mode 0755 -> 0700'
		says 'hard link broken: 1 other name stays as it is'
		says 'setuid 4755: taken off by a commit without --allow setuid'
		says 'escaping-link: ../../etc'
		says 'special FIFO: not committed without --allow special'
	done
	shown --patch
	says "A  $work/app/secret  (mode 0600)"
	if is_root; then
		(cd app && atoll exec p -- chown 7:8 file)
		shown
		says 'owner 0:0 -> 7:8'
	fi
}

@test "cli diff of what is no text" {
	mkdir app && printf 'a\0b' >app/bin && cp -a app pristine
	plan copy 'printf "longer\0b" >bin; printf "\0" >new'
	shown --patch
	says 'Binary files differ: 3 -> 8 bytes'
	says 'Binary files differ: 0 -> 1 bytes'
	# Half a patch is not applied.
	run git -C pristine apply - <<<"$output"
	[ "$status" -ne 0 ]
	[ "$(atoll diff p --stat --json 2>/dev/null | jq -c '[.changes[].content]')" = '["binary","binary"]' ]
}

@test "cli diff of a file that is too large takes no memory for it" {
	no_sanitizer
	outside_tmp
	mkdir app && head -c 40M /dev/zero | tr '\0' a >app/large && yes | head -n 1048577 >app/lines
	plan overlay 'echo end >>large; echo end >>lines'
	for form in --stat --patch; do
		[ "$(rss atoll diff p $form)" -lt 60000 ]
	done
	shown --patch
	says 'bytes (too large to compare line by line)'
	[ "$(wc -l <<<"$output")" -eq 5 ]
	shown --stat
	says 'Big 41943040 -> 41943044 bytes'
}

@test "cli diff --conflicts shows both sides and the ways out" {
	outside_tmp
	for strategy in overlay copy; do
		rm -rf app && mkdir -p app/dir && echo one >app/one && echo two >app/two && echo x >app/dir/x
		plan "$strategy" 'echo ours >one; echo ours >two; rm -r dir; echo ours >new'
		shown --conflicts
		[ -z "$output" ]
		[[ $stderr == *'p: no conflicts'* ]]
		echo 'their longer text' >app/one
		echo theirs >app/new
		echo theirs >app/dir/y
		shown --conflicts
		[ "$(grep -c '^C' <<<"$output")" -eq 3 ]
		! grep -q "app/two" <<<"$output"
		grep -A 4 -F "C  $work/app/one" <<<"$output" >one
		grep -qx '     |ours' one
		grep -qx '     |their longer text' one
		grep -q '^   ours:   changed; 5 bytes' one
		grep -q '^   theirs: changed; 18 bytes, written 20' one
		grep -A 4 -F "C  $work/app/new" <<<"$output" | grep -q 'theirs: created; 7 bytes, written 20'
		grep -A 2 -F "C  $work/app/dir/" <<<"$output" | grep -q 'theirs: contains changes: dir/y'
		run at_terminal diff p --conflicts
		for way in --ours --theirs 'atoll refresh p' 'atoll discard p'; do
			says "$way"
		done
		# In another form: those, and no others.
		shown --conflicts --patch
		[ "$(grep -c '^diff --git' <<<"$output")" -ge 2 ]
		grep -q '^-their longer text' <<<"$output"
		grep -q '^+ours' <<<"$output"
		! grep -q two <<<"$output"
		shown --name-status --conflicts
		! grep -q two <<<"$output"
		grep -q "^M  $work/app/one" <<<"$output"
		run at_terminal diff p
		says 'conflict: changed'
		says 'next: atoll diff p --conflicts'
		atoll diff p --conflicts --json 2>/dev/null |
			jq -e 'all(.changes[]; .conflict != "") and .conflicts == (.changes | length)'
		atoll stop --force p
	done
}

@test "cli diff shows names that mean harm as what they are" {
	mkdir app
	plan copy 'echo x >"$(printf "red\033[31m")"; echo x >"$(printf "rtl\342\200\256cod.exe")"; echo x >"$(printf "bad\377")"; ln -s "$(printf "t\033]0;x")" link'
	for form in --name-status --stat; do
		shown "$form"
		says 'red\x1b[31m'
		says 'rtl\u{202e}cod.exe'
		says 'bad\xff'
		says 't\x1b]0;x'
		! grep -q $'[\033\377]' <<<"$output"
	done
	shown --patch
	says '"b/red\033[31m"'
	says '"b/rtl\342\200\256cod.exe"'
	says '"b/bad\377"'
	atoll diff p --json 2>/dev/null >json
	! grep -q $'\033' json
	[ "$(jq -r '.changes[] | select(.path_b64) | .path_b64' json | base64 -d)" = $'bad\377' ]
	jq -e 'any(.changes[]; .path == "red\u001b[31m") and any(.changes[]; .path == "rtl\u202ecod.exe")' json
}

@test "cli diff on a terminal shows what a file would do to it" {
	command -v script || skip 'no script(1)'
	mkdir app && echo x >app/f
	plan copy 'printf "\033[2Jhidden\n\tx\n" >f'
	script -qec "$ATOLL diff p --patch --color never --no-pager" /dev/null </dev/null >seen
	grep -qF '+\x1b[2Jhidden' seen
	grep -q $'^+\tx' seen
	# A pipe gets the very bytes.
	atoll diff p --patch 2>/dev/null | grep -q $'^+\033\\[2Jhidden$'
	# Colours, when they are wanted.
	env -u NO_COLOR "$ATOLL" diff p --patch --color always 2>/dev/null | grep -q $'^\033\\[31m-x\033\\[m$'
}

@test "cli diff --json names patterns that match nothing" {
	mkdir dir
	atoll start p --dir dir
	atoll exec p -- touch dir/a
	[ "$(atoll diff p --json --exclude a --exclude 'b*' | jq -c .unmatched)" = '["b*"]' ]
}

@test "cli diff --exclude leaves out what matches" {
	mkdir app
	plan copy 'mkdir -p build src/build; echo x >build/o; echo x >src/build/o; echo x >src/a.log; echo x >src/a.c'
	paths() {
		atoll diff p --json "$@" 2>/dev/null | jq -r '[.changes[].path] | join(" ")'
	}
	[ "$(paths --exclude build)" = 'src src/a.c src/a.log' ]
	[ "$(paths --exclude /build)" = 'src src/a.c src/a.log src/build src/build/o' ]
	[ "$(paths --exclude '*.log' --exclude 'src/build/*' --exclude /build)" = 'src src/a.c src/build' ]
	[ "$(paths --exclude '*')" = '' ]
	[ "$(paths --exclude '**/o' "$work/app/src/build")" = 'src src/build' ]
	run atoll diff p --exclude '*' --exit-code
	status_is 0
}

@test "cli diff of several resources: a part each, with its own paths" {
	two_dirs
	cp -a b pristine
	atoll start p --dir a --dir b >/dev/null 2>&1
	atoll exec p -- sh -c 'echo 1 >"$ATOLL_RESOURCE_1/one"; echo 3 >"$ATOLL_RESOURCE_2/three"; echo 4 >"$ATOLL_RESOURCE_2/four"'
	shown --patch
	[ "$(grep -nE '^(resource|diff)' <<<"$output" | cut -d : -f 2-)" = "resource $work/a
diff --git a/one b/one
resource $work/b
diff --git a/four b/four
diff --git a/three b/three" ]
	atoll diff p b --patch 2>/dev/null | git -C pristine apply -
	[ "$(cat pristine/three pristine/four)" = $'3\n4' ]
}

@test "cli diff: forms that do not go together, and numbers that are none" {
	mkdir app
	plan copy 'echo x >f'
	for wrong in '--stat --patch' '--name-status --stat --conflicts' '--stat --unified 3' '--unified x' '--unified -1' '--unified 1.5' '--exclude'; do
		# shellcheck disable=SC2086 # words
		run atoll diff p $wrong
		status_is 2
		says 'atoll: '
		# shellcheck disable=SC2086
		run atoll diff p --json $wrong
		status_is 2
		[ "$(jq -r .format <<<"$output")" = atoll.error/1 ]
	done
}

@test "cli diff --json is as its schema says, in every form" {
	outside_tmp
	mkdir -p a/sub && echo x >a/sub/x && ln -s x a/link && echo y >a/y
	atoll start none --dir a >/dev/null 2>&1
	atoll diff none --json >json 2>/dev/null
	atoll start p --strategy overlay --dir a >/dev/null 2>&1
	(cd a && atoll exec p -- sh -c 'rm -r sub; ln -sfn "$(printf "\377")" link; echo new >"$(printf "\376")"; printf "\375\n" >bytes; printf "\0" >bin; mkfifo f; chmod 4711 y')
	echo theirs >a/bytes
	for form in --name-status --stat --patch --conflicts '--unified 0'; do
		# shellcheck disable=SC2086 # words
		atoll diff p --json $form >>json 2>/dev/null
	done
	/usr/bin/python3 - "$BATS_TEST_DIRNAME/../../docs/schema/diff.schema.json" json <<-'END'
		import json, jsonschema, sys
		schema = json.load(open(sys.argv[1]))
		lines = open(sys.argv[2], encoding="utf-8").read().splitlines()
		assert len(lines) == 6, len(lines)
		for line in lines:
		    jsonschema.Draft202012Validator(schema).validate(json.loads(line))
		patched = json.loads(lines[3])
		assert any("patch_b64" in c for c in patched["changes"])
		assert patched["complete"] is True
	END
}

@test "cli diff without libgit2 says what is missing, and that it is not all" {
	is_root || skip 'only root can hide a library'
	mkdir app && echo x >app/two
	plan copy 'echo new >one; echo y >two'
	library=$(ldconfig -p | sed -n 's/.*libgit2\.so\.1.* => //p' | head -n 1)
	without() {
		unshare -m sh -c 'mount --bind /dev/null "$1" && shift && exec "$@"' sh "$(realpath "$library")" "$@"
	}
	for form in --stat --patch; do
		run without "$ATOLL" diff p "$form"
		status_is 6
		says 'cannot compare texts'
		says 'hint: install the package that holds libgit2'
	done
	run --separate-stderr without "$ATOLL" diff p --patch --json
	status_is 6
	jq -e '.complete == false and .error.code == "unsupported" and .error.exit == 6 and (.changes | length) == 1' <<<"$output"
	# Names need no library, nor does what comes or goes whole.
	run without "$ATOLL" diff p
	status_is 0
	run without "$ATOLL" diff p --patch app/one
	status_is 0
	says '+new'
}

@test "cli diff takes no more memory for many changes than for few" {
	no_sanitizer
	outside_tmp
	# A hundred thousand files are nothing for memory, and much for a disk.
	is_root || skip 'only root can mount a tmpfs'
	mount -t tmpfs tmpfs "$work"
	mounted=$work
	cd "$work"
	mkdir app && echo x >app/f
	atoll start few --strategy overlay --dir app >/dev/null 2>&1
	(cd app && atoll exec few -- sh -c 'echo y >f')
	plan overlay '/usr/bin/python3 -c "
import os
for d in range(200):
    os.mkdir(str(d))
    for f in range(250):
        open(f\"{d}/{f}\", \"w\").close()
os.mkdir(\"new\")
for d in range(200):
    os.mkdir(f\"new/{d}\")
    for f in range(250):
        open(f\"new/{d}/{f}\", \"w\").write(\"line\\n\")
"'
	for form in --name-status --json --stat --patch; do
		few=$(rss atoll diff few $form)
		many=$(rss atoll diff p $form)
		echo "$form: $few kB, $many kB"
		[ $((many - few)) -lt 4096 ]
	done
	[ "$(atoll diff p --json 2>/dev/null | grep -o '"path":' | wc -l)" -eq 100401 ]
	atoll stop --force p
	atoll stop --force few
	cd "$elsewhere"
}

# rss COMMAND...: the most memory it took, in kB; what it says is dropped.
rss() {
	/usr/bin/python3 - "$ATOLL" "${@:2}" <<-'END'
		import os, sys
		null = os.open("/dev/null", os.O_WRONLY)
		pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
		                     file_actions=[(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)])
		_, status, usage = os.wait4(pid, 0)
		assert os.waitstatus_to_exitcode(status) == 0
		print(usage.ru_maxrss)
	END
}

@test "diff names the directories that somebody else replaced around our changes" {
	outside_tmp
	for strategy in overlay copy; do
		rm -rf a
		mkdir -p a/sub/deep a/same
		echo one >a/sub/deep/one
		echo one >a/same/one
		atoll start p --dir a --strategy "$strategy"
		[ "$strategy" = "$(atoll show p --json | jq -r '.sandboxes[0].strategy')" ] || return 1
		atoll exec p -- sh -c 'echo new >a/sub/deep/new; chmod 700 a/same; echo x >>a/same/one'
		mv a/sub/deep a/old
		mkdir a/sub/deep
		cp a/old/one a/sub/deep/one
		run -0 atoll diff p --conflicts
		says "C  $work/a/sub/deep/"
		says 'ours:   changes inside it'
		says 'theirs: replaced'
		says '1 conflict with'
		run -0 atoll diff p
		says "M  $work/a/sub/deep/  (conflict: replaced)"
		# As many as commit finds, and each once.
		run -3 atoll commit p --json
		[ "$(jq '[.notes[] | select(.kind == "conflict")] | length' <<<"$output")" -eq 1 ]
		run -0 atoll diff p --json
		[ "$(jq -r .conflicts <<<"$output")" -eq 1 ]
		[ "$(jq -r '[.changes[].path] | sort | join(" ")' <<<"$output")" = 'same same/one sub/deep sub/deep/new' ]
		[ "$(jq -r '.changes[] | select(.path == "sub/deep") | [.kind, .what[], .conflict] | join(" ")' <<<"$output")" = \
			'changed conflict replaced' ]
		run -0 atoll commit p --ours a/sub
		[ "$(cat a/sub/deep/new)" = new ]
		atoll stop --force --yes p
	done
}

# when_idle COMMAND...: as soon as nothing is being synced on a filesystem any more.
when_idle() {
	for _ in $(seq 500); do
		"$@" 2>/dev/null && return 0
		sleep 0.02
	done
	"$@"
}

@test "diff looking needs no writing, of the resource or of the store" {
	is_root || skip 'only root mounts a filesystem of its own'
	outside_tmp
	mounted=$work/disk
	mkdir "$mounted"
	for home in "$elsewhere/home" "$mounted/home"; do
		mount -t tmpfs -o mode=700 none "$mounted"
		export ATOLL_HOME=$home
		mkdir "$mounted/a"
		echo one >"$mounted/a/one"
		for strategy in overlay copy; do
			atoll start "$strategy" --dir "$mounted/a" --strategy "$strategy"
			atoll exec "$strategy" -- sh -c 'echo two >"$ATOLL_RESOURCE_1/one"'
		done
		when_idle mount -o remount,ro "$mounted"
		for strategy in overlay copy; do
			run -0 atoll diff "$strategy"
			[ "${lines[0]}" = "M  $mounted/a/one" ]
			run -0 atoll diff "$strategy" --patch
			says '+two'
			run -0 atoll diff "$strategy" --conflicts
			run -0 atoll show "$strategy"
		done
		run -0 atoll list
		run -0 atoll log
		mount -o remount,rw "$mounted"
		atoll stop --force --yes overlay
		atoll stop --force --yes copy
		[ -z "$(find "$mounted" -name '.atoll*')" ]
		when_idle umount "$mounted"
	done
	mounted=
	export ATOLL_HOME=$elsewhere/home
}
