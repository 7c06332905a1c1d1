#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a command may change of the home directory, and what is reported of that: the tables of src/plan/home.c and
# src/plan/private-files.c, row by row.

load cli

# A used home, and a plan p of ~/work/app in it. Not below /tmp, which a command has to itself.
home_with_plan() {
	outside_tmp
	export HOME=$elsewhere/me
	unset XDG_STATE_HOME XDG_CONFIG_HOME
	export ATOLL_HOME=$HOME/.local/state/atoll
	local name
	for name in $(rows private_variables); do
		unset "${name/\*/CACHE}"
	done
	mkdir -p "$HOME"/{.config/foo,.cache,work/app,work/other,Documents,dev/tools/sub}
	echo old | tee "$HOME"/{notes.txt,.config/foo/a.conf,work/other/file,Documents/letter,dev/file} >/dev/null
	cd "$HOME/work/app"
	atoll start p --dir "$HOME/work/app" >/dev/null 2>&1
}

# rows TABLE [FILE]: of src/plan/home.c, or of another there.
rows() {
	sed -n "/^static const char \*const $1\[\]/,/^};/p" "$ATOLL_SOURCE_ROOT/src/plan/${2:-home}.c" | grep -o '"[^"]*"' | tr -d '"'
}

see() {
	atoll exec p "$@" 2>/dev/null
}

# refused PATH [OPTION...]: writing there fails as in the rest of the system, and nothing came of it.
refused() {
	local path=$1
	shift
	run atoll exec p "$@" -- sh -c "echo x >'$path'"
	[ "$status" -ne 0 ]
	says 'Read-only file system'
	[ ! -e "$path" ] || [ "$(cat "$path")" = old ]
}

# private PATH [OPTION...]: a command writes there, the next one sees it, nothing real has changed.
private() {
	local path=$1
	shift
	local before=
	[ ! -e "$path" ] || before=$(cat "$path")
	see "$@" -- sh -c "mkdir -p \"\$(dirname '$path')\" && echo mine >'$path'" || { echo "cannot write to $path"; return 1; }
	[ "$(see "$@" -- cat "$path")" = mine ]
	if [ -n "$before" ]; then
		[ "$(cat "$path")" = "$before" ]
	else
		[ ! -e "$path" ]
	fi
}

@test "home_other_directories_are_only_read and writing to them fails loudly" {
	home_with_plan
	[ "$(see -- sh -c 'cat ~/work/other/file ~/Documents/letter')" = old$'\n'old ]
	refused "$HOME/work/new"
	refused "$HOME/work/other/file"
	refused "$HOME/work/other/new"
	refused "$HOME/Documents/letter"
	refused "$HOME/dev/tools/sub/new"
	run ! see -- mv "$HOME/Documents" "$HOME/Papers"
	run ! see -- mkdir "$HOME/work/build"
	run ! see -- rmdir "$HOME/dev/tools/sub"
	see -- sh -c 'echo x >~/work/app/new'
	[ "$(atoll diff p --name-status 2>/dev/null | wc -l)" -eq 1 ]
}

@test "home dot entries, files and new entries of the home are private" {
	home_with_plan
	private "$HOME/.config/foo/a.conf"
	private "$HOME/.new"
	private "$HOME/.cache/x/y"
	private "$HOME/notes.txt"
	private "$HOME/out"
	private "$HOME/build/deep/file"
	[ -z "$(atoll diff p --name-status 2>/dev/null)" ]
}

@test "home every row of the table of directories is private, there or new" {
	home_with_plan
	[ "$(rows private_dirs | wc -l)" -ge 10 ]
	local name
	for name in go snap R perl5 miniconda3 miniforge3 mambaforge anaconda3 Android nltk_data; do
		rows private_dirs | grep -qx "$name"
	done
	for name in $(rows private_dirs); do
		private "$HOME/$name/a/new"
	done
	for name in $(rows private_dirs); do
		mkdir -p "$HOME/$name/b"
		echo old >"$HOME/$name/b/file"
		private "$HOME/$name/b/file"
		private "$HOME/$name/c"
	done
}

@test "home every variable of the table names a private directory, wherever it lies" {
	home_with_plan
	local name
	for name in GOPATH GOMODCACHE GOBIN CARGO_HOME RUSTUP_HOME PNPM_HOME NPM_CONFIG_PREFIX VIRTUAL_ENV \
		CONDA_PREFIX GRADLE_USER_HOME ANDROID_HOME FLUTTER_ROOT 'XDG_*_HOME'; do
		rows private_variables | grep -qxF "$name"
	done
	for name in $(rows private_variables); do
		name=${name/\*/DATA}
		mkdir -p "$HOME/top-$name" "$HOME/dev/$name"
		refused "$HOME/top-$name/x"
		refused "$HOME/dev/$name/x"
		env "$name=$HOME/top-$name" true
		export "$name=$HOME/top-$name:$HOME/dev/$name"
		private "$HOME/top-$name/x"
		private "$HOME/dev/$name/x"
		refused "$HOME/dev/x"
		refused "$HOME/dev/file"
		unset "$name"
		# Given to the command alone, and taken away from it.
		private "$HOME/dev/$name/y" --env "$name=$HOME/dev/$name"
		export "$name=$HOME/dev/$name"
		refused "$HOME/dev/$name/z" --unset "$name"
		unset "$name"
	done
}

@test "home a private directory that is not there yet can be made where it is named" {
	home_with_plan
	export GOPATH=$HOME/dev/tools/go
	private "$GOPATH/bin/x"
	refused "$HOME/dev/tools/sub/x"
	refused "$HOME/work/x"
	# The home itself, or all around it, names nothing.
	for GOPATH in "$HOME" / "$elsewhere" relative '' "$HOME/../me"; do
		export GOPATH
		refused "$HOME/work/x"
	done
}

@test "home fence.private names more of them" {
	home_with_plan
	mkdir "$HOME/sdk"
	refused "$HOME/sdk/x"
	atoll config set fence.private "~/sdk:$HOME/dev/tools"
	private "$HOME/sdk/x"
	private "$HOME/dev/tools/sub/x"
	refused "$HOME/dev/x"
}

@test "home resources, --rw, --ro and --hide below such a directory are as they are given" {
	home_with_plan
	see --rw "$HOME/work/other" -- sh -c 'echo real >~/work/other/real'
	[ "$(cat "$HOME/work/other/real")" = real ]
	see --rw "$HOME/work" -- sh -c 'echo real >~/work/real'
	[ "$(cat "$HOME/work/real")" = real ]
	refused "$HOME/work/real2" --rw "$HOME/work/other"
	run see --hide "$HOME/Documents/letter" -- cat "$HOME/Documents/letter"
	[ -z "$output" ]
	run ! see --hide "$HOME/Documents" -- cat "$HOME/Documents/letter"
	refused "$HOME/Documents/letter" --ro "$HOME/Documents"
	see --home real -- sh -c 'echo real >~/Documents/real'
	[ "$(cat "$HOME/Documents/real")" = real ]
	mkdir "$HOME/work/second"
	atoll start q --dir "$HOME/work/app" --dir "$HOME/work/second" >/dev/null 2>&1
	atoll exec q -- sh -c 'echo x >~/work/second/new'
	[ ! -e "$HOME/work/second/new" ]
	run ! atoll exec q -- sh -c 'echo x >~/work/new'
}

@test "home --at shows a resource also where a directory is only read" {
	home_with_plan
	run -0 see --at "$HOME/Documents/deep/app" -- sh -c 'cd ~/Documents/deep/app && echo x >new && cat ~/Documents/letter'
	says old
	refused "$HOME/work/x" --at "$HOME/Documents/deep/app"
	[ ! -e "$HOME/Documents/deep" ]
	run -0 see --at "$HOME/dev/tools" -- sh -c 'echo y >~/dev/tools/new2; cat ~/dev/file'
	[ "$(atoll diff p --name-status 2>/dev/null | wc -l)" -eq 2 ]
}

@test "home links, odd names, and what comes and goes meanwhile" {
	home_with_plan
	ln -s "$HOME/Documents" "$HOME/link"
	mkdir "$HOME/a b"$'\n'c "$HOME/"$'\377' "$HOME/-x"
	refused "$HOME/link/letter"
	refused "$HOME/-x/file"
	refused "$HOME/"$'\377'/file
	# Made privately, and then for real, as a file and as a directory.
	see -- sh -c 'echo mine >~/later; mkdir ~/later2; echo mine >~/later2/file'
	mkdir "$HOME/later" "$HOME/later2"
	[ "$(see -- cat "$HOME/later")" = mine ]
	see -- true
	rmdir "$HOME/later" "$HOME/later2"
	[ "$(see -- cat "$HOME/later2/file")" = mine ]
}

@test "home what is mounted on a directory of the home, or in one, is seen and only read" {
	is_root || skip 'only root mounts'
	home_with_plan
	run -0 unshare --mount sh -ec '
		mkdir ~/mnt
		mount -t tmpfs none ~/mnt && echo mounted >~/mnt/file
		mount -t tmpfs none ~/dev/tools && echo mounted >~/dev/tools/file
		"$ATOLL" exec p -- sh -c "cat ~/mnt/file ~/dev/tools/file; echo x >~/mnt/x; echo x >~/dev/tools/x; echo x >~/dev/x; true" 2>&1
		ls ~/mnt ~/dev/tools'
	[ "$(grep -c mounted <<<"$output")" -eq 2 ]
	[ "$(grep -c 'Read-only file system' <<<"$output")" -eq 3 ]
	[[ $output != *$'\nx'* ]]
}

# reported PLAN COMMAND...: what is said of private files after that, without the rest of the line.
reported() {
	"$ATOLL" exec "$1" -- sh -c "$2" 2>&1 >/dev/null | sed -n 's/^atoll: private to the plan, not committed: \(.*\) (atoll diff p --home)$/\1/p'
}

@test "home_private_files_are_reported_once when they are new or changed" {
	home_with_plan
	[ "$(reported p 'echo x >~/.config/foo/a.conf')" = '~/.config/foo/a.conf' ]
	[ -z "$(reported p true)" ]
	[ -z "$(reported p 'cat ~/.config/foo/a.conf; echo x >~/work/app/new')" ]
	[ "$(reported p 'echo y >~/out; echo y >~/.b')" = '~/.b, ~/out' ]
	[ "$(reported p 'echo z >>~/.config/foo/a.conf')" = '~/.config/foo/a.conf' ]
	[ "$(reported p 'mkdir -p ~/d/e; for i in 1 2 3 4 5; do echo $i >~/d/e/$i; done')" = '~/d/e/1, ~/d/e/2, ~/d/e/3 and 2 more' ]
	[ "$(reported p 'rm ~/notes.txt')" = '~/notes.txt' ]
	[ "$(reported p 'rm ~/d/e/1; ln -s nowhere ~/link')" = '~/link' ]
	# Only opened for writing, or only empty directories: nothing of the user's is private.
	echo same >"$HOME/same"
	[ -z "$(reported p ': >>~/same; mkdir ~/empty')" ]
	[ "$(atoll diff p --name-status 2>/dev/null | wc -l)" -eq 1 ]
	atoll commit p --yes >/dev/null 2>&1
	[ -z "$(reported p true)" ]
	run -0 atoll exec p --json -- sh -c 'echo 2 >~/out'
	tail -n 1 <<<"$output" | jq -e '.notes[] | select(startswith("private to the plan, not committed: ~/out "))'
}

@test "home every row of the table of caches is left out of the report" {
	home_with_plan
	local row path
	for row in .bun .cache .cargo/git .cargo/registry .gradle/caches .m2/repository .npm .pnpm-store .rustup .yarn go/pkg; do
		rows known_caches private-files | grep -qxF "/$row"
	done
	for row in $(rows known_caches private-files); do
		path=${row//\*/x}
		path=${path#/}
		[ -z "$(reported p "mkdir -p ~/'$path' && echo 1 >~/'$path'/file")" ] || { echo "$row, as a directory"; return 1; }
		[ -z "$(reported p "rm -r ~/'$path' && echo 1 >~/'$path'")" ] || { echo "$row, as a file"; return 1; }
		[ "$(reported p "mkdir -p ~/.other && echo 1 >~/.other/z-$(tr -c 'a-z' - <<<"$path")")" != '' ]
	done
}

@test "home diff --home lists what is private, and the scan ends" {
	home_with_plan
	run -0 atoll diff p --home
	says 'no private files'
	atoll exec p -- sh -c 'echo x >~/.config/foo/a.conf; echo x >~/out; rm ~/notes.txt; mkdir ~/.npm; echo x >~/.npm/x' 2>/dev/null
	run -0 --separate-stderr atoll diff p --home
	[ "$output" = $'M ~/.config/foo/a.conf\nD ~/notes.txt\nA ~/out' ]
	run -1 atoll diff p --home --exit-code
	run -0 --separate-stderr atoll diff p --home --json
	[ "$(jq -c '[.home, .complete, [.files[] | [.kind, .path]]]' <<<"$output")" = "[\"$HOME\",true,[[\"changed\",\".config/foo/a.conf\"],[\"deleted\",\"notes.txt\"],[\"added\",\"out\"]]]" ]
	run -2 atoll diff p --home --patch
	run -2 atoll diff p new --home
	run ! atoll diff p --exit-code --home extra
	atoll exec p -- sh -c 'mkdir ~/.many; cd ~/.many; seq 12000 | xargs touch' 2>/dev/null
	[ "$(atoll diff p --home --json | jq -c '[.complete, (.files | length) < 10001]')" = '[false,true]' ]
	[ -n "$(reported p 'echo x >~/.a')" ]
}

@test "home private files with odd names, and what cannot be read, are no trouble" {
	home_with_plan
	run -0 atoll exec p -- sh -c "printf x >~/.\$(printf 'new\\nline\\033[31m'); mkdir ~/.closed; echo x >~/.closed/x; chmod 0 ~/.closed; mkfifo ~/.fifo"
	says '~/.new\x0aline'
	[[ $output != *$'\033'* ]]
	run -0 atoll diff p --home
	[[ $output != *$'\033'* ]]
	atoll exec p -- chmod 700 "$HOME/.closed" 2>/dev/null
}

@test "home exec says before it runs that its directory is in no resource" {
	home_with_plan
	local said="'$HOME/work/other' is in no resource of plan p: what is written there is not committed"
	cd "$HOME/work/other"
	run -0 atoll exec p -- true
	[ -z "$output" ]
	run -0 atoll exec p --json -- true
	[ "$(tail -n 1 <<<"$output" | jq -r '.notes[0]')" = "$said" ]
	run -0 script -qec "'$ATOLL' exec p -- echo ran" /dev/null
	[[ $output == *"$said"*ran* ]]
	run -0 script -qec "'$ATOLL' exec p --cwd '$HOME/work/app' -- echo ran" /dev/null
	[[ $output != *'in no resource'* ]]
	cd "$HOME/work/app"
	run -0 script -qec "'$ATOLL' exec p -- echo ran" /dev/null
	[[ $output != *'in no resource'* ]]
	cd /usr
	run -0 script -qec "'$ATOLL' exec p -- echo ran" /dev/null
	[[ $output != *'in no resource'* ]]
}

# with_private_work: home_with_plan with overlays, or skipped; ~/.config/foo has a.conf, b.conf and c.conf.
with_private_work() {
	home_with_plan
	atoll stop p --force >/dev/null 2>&1
	"$ATOLL" start p --dir "$HOME/work/app" >/dev/null 2>&1
	[ "$(atoll show p --json | jq -r '.sandboxes[0].strategy')" = overlay ] || skip 'no overlay here'
	echo old | tee "$HOME"/.config/foo/{b,c}.conf >/dev/null
	mkdir "$HOME/.config/foo/sub"
	echo old >"$HOME/.config/foo/sub/d.conf"
	see -- sh -c 'cd ~/.config/foo; echo mine >>a.conf; rm b.conf; echo mine >new; echo mine >>sub/d.conf; ln -s a.conf link'
}

@test "home run keeps the plan of a command that wrote private files alone" {
	home_with_plan
	atoll stop p >/dev/null 2>&1
	# options|script|decision
	local row option script decision name
	for row in '--here|:|no changes' '--here|mkdir -p ~/.cache/x; echo x >~/.cache/x/y|no changes' \
		'--here|echo x >~/out|kept' '--commit|echo x >~/out|kept' '--here|echo x >~/out; touch .|kept' \
		'--rollback|echo x >~/out|no changes'; do
		IFS='|' read -r option script decision <<<"$row"
		run -0 --separate-stderr "$ATOLL" run "$option" --json -- sh -c "$script"
		[ "$(tail -n 1 <<<"$output" | jq -r .decision)" = "$decision" ] || { echo "$row: $output"; return 1; }
		name=$(atoll list --json | jq -r '.plans[].name')
		[ -n "$name" ] || [ "$decision" = 'no changes' ]
		[ -z "$name" ] || [ "$(atoll diff "$name" --home 2>/dev/null)" = "A ~/out" ] || { echo "$row"; atoll diff "$name" --home; return 1; }
		[ -z "$name" ] || atoll stop "$name"
	done
	run -0 --separate-stderr "$ATOLL" run -- sh -c 'echo x >~/out'
	[[ $stderr == *'kept plan '*' for what is private to it; nothing real has changed'* ]]
}

@test "home add takes what commands wrote in the directory along, and a commit makes it real" {
	with_private_work
	run -0 atoll add p --dir "$HOME/.config/foo"
	[ "$(atoll diff p --json | jq -c '[.changes[] | [.kind, .path, (.what | index("conflict"))]]')" = \
		'[["changed","a.conf",null],["deleted","b.conf",null],["added","link",null],["added","new",null],["changed","sub/d.conf",null]]' ]
	[ "$(see -- sh -c 'cd ~/.config/foo; cat a.conf new sub/d.conf; ls')" = $'old\nmine\nmine\nold\nmine\na.conf\nc.conf\nlink\nnew\nsub' ]
	run -0 --separate-stderr atoll diff p --home
	[ -z "$output" ]
	[ "$(cat "$HOME/.config/foo/a.conf")" = old ]
	see -- sh -c 'echo later >~/.config/foo/c.conf'
	atoll commit p --yes >/dev/null 2>&1
	[ "$(cat "$HOME"/.config/foo/{a.conf,c.conf,new,sub/d.conf})" = $'old\nmine\nlater\nmine\nold\nmine' ]
	[ ! -e "$HOME/.config/foo/b.conf" ]
	atoll rollback p --yes >/dev/null 2>&1
	[ "$(cat "$HOME"/.config/foo/{a,b,c}.conf)" = $'old\nold\nold' ]
	[ ! -e "$HOME/.config/foo/new" ]
}

@test "home add finds a conflict where an original changed after its private version was made" {
	with_private_work
	echo theirs >"$HOME/.config/foo/a.conf"
	echo theirs >"$HOME/.config/foo/b.conf"
	echo theirs >"$HOME/.config/foo/new"
	echo theirs >"$HOME/.config/foo/c.conf"
	rm "$HOME/.config/foo/sub/d.conf"
	run -0 atoll add p --dir "$HOME/.config/foo"
	[ "$(atoll diff p --json | jq -c '[.changes[] | select(.what | index("conflict")) | .path]')" = '["a.conf","b.conf","new","sub/d.conf"]' ]
	run atoll commit p --yes
	status_is 3
	[ "$(cat "$HOME"/.config/foo/{a,b,c}.conf)" = $'theirs\ntheirs\ntheirs' ]
	atoll commit p --ours "$HOME/.config/foo" --yes >/dev/null 2>&1
	[ "$(cat "$HOME"/.config/foo/{a.conf,c.conf,new})" = $'old\nmine\ntheirs\nmine' ]
}

@test "home add finds a conflict with what a command deleted or replaced before, and wrote again since" {
	with_private_work
	see -- sh -c 'cd ~/.config/foo; rm -r sub; mkdir sub; rm -f a.conf link new; echo mine >b.conf'
	echo theirs | tee "$HOME"/.config/foo/{a.conf,b.conf,sub/d.conf} >/dev/null
	see -- sh -c 'cd ~/.config/foo; rm b.conf; echo mine >a.conf; echo mine >b.conf; echo mine >new'
	run -0 atoll add p --dir "$HOME/.config/foo"
	run atoll commit p --yes
	status_is 3
	local name
	for name in a.conf b.conf sub; do
		says "conflict: $HOME/.config/foo/$name: "
	done
	[ "$(cat "$HOME"/.config/foo/{a.conf,b.conf,sub/d.conf})" = $'theirs\ntheirs\ntheirs' ]
}

@test "home add that cannot take private work along adds nothing" {
	with_private_work
	local strategy
	for strategy in copy none; do
		run atoll add p --dir "$HOME/.config/foo" --strategy "$strategy"
		status_is 6
		says 'private to the plan'
	done
	run atoll add p --dir "$HOME/work/app"
	[ "$status" -ne 0 ]
	run -2 atoll add p
	run -2 atoll add p --dir a --dir b
	[ "$(atoll show p --json | jq '.sandboxes | length')" -eq 1 ]
	run -0 --separate-stderr atoll diff p --home
	[ "$(wc -l <<<"$output")" -eq 5 ]
	# Where nothing is private any strategy will do, also for other kinds.
	run -0 atoll add p --dir "$HOME/Documents" --strategy copy
	sqlite3 "$HOME/dev/base.db" 'CREATE TABLE t(x)'
	run -0 atoll add p --sqlite "$HOME/dev/base.db"
	git init -q "$HOME/work/repo"
	git -C "$HOME/work/repo" -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
	run -0 atoll add p --git "$HOME/work/repo"
	see -- sh -c 'echo x >~/Documents/new; sqlite3 ~/dev/base.db "INSERT INTO t VALUES(1)"; echo x >~/work/repo/x'
	atoll commit p --yes >/dev/null 2>&1
	[ -e "$HOME/Documents/new" ]
	[ -e "$HOME/work/repo/x" ]
	[ "$(sqlite3 "$HOME/dev/base.db" 'SELECT x FROM t')" = 1 ]
}
