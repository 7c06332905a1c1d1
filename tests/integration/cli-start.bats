#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# start with several resources: from a file, in relations, killed half-way, in places that are not
# easy.

load cli

# plan_file: standard input as plan.conf.
plan_file() {
	cat >plan.conf
}

# roots PLAN: of its resources, sorted, relative to the working directory.
roots() {
	atoll show "$1" --json | jq -r '.sandboxes[].root' | sed "s|^$work/||" | sort
}

# refused LINE STATUS TEXT: the file is refused with this line and text, and nothing was made.
refused() {
	run atoll start p --file plan.conf
	status_is "$2"
	says "plan.conf:$1:"
	says "$3"
	no_plans
}

@test "doc the plan file of the manual can be started" {
	export HOME=$work/home
	mkdir -p home/app/cache assets conf
	sed -n '/plan-file-begin/,/plan-file-end/p' "$ATOLL_SOURCE_ROOT"/man/* | grep -v '^\.' >conf/plan.conf
	[ -s conf/plan.conf ]
	run atoll start --file conf/plan.conf --json
	status_is 0
	[ "$(jq -r .plan.name <<<"$output")" = fix-42 ]
	[ "$(roots fix-42)" = $'assets\nhome/app\nhome/app/cache' ]
	[ "$(jq -r --arg r "$work/home/app/cache" '.sandboxes[] | select(.root == $r).strategy' <<<"$output")" = none ]
	app=$(jq -r --arg r "$work/home/app" '.sandboxes[] | select(.root == $r).id' <<<"$output")
	[ "$(jq -r --arg r "$work/assets" '.sandboxes[] | select(.root == $r).parent' <<<"$output")" = "$app" ]
}

@test "cli start --file and options add up, the name of the command line wins" {
	two_dirs
	mkdir c
	printf '[plan]\nname = other\n[resource "a"]\npath = a\nwork-in-store\n' | plan_file
	run atoll start p --file plan.conf --dir b --none c
	status_is 0
	[ "$(roots p)" = $'a\nb\nc' ]
	[[ $(atoll path p a) == "$ATOLL_HOME"/* ]]
	run atoll start p --or-open --file plan.conf
	status_is 0
	says 'opened p'
	# run takes the resources, but its plan has a name of its own.
	run atoll run --keep --file plan.conf -- sh -c 'echo new >a/one'
	status_is 0
	[ "$(cat a/one)" = one ]
	[ "$(atoll list --json | jq -r '[.plans[].name] | index("other")')" = null ]
}

@test "cli start --file names what is wrong by line, and makes nothing" {
	two_dirs
	before=$(untouched a b)
	printf '[resource "a"]\n\tpath = a\n\tpth = b\n' | plan_file
	refused 3 2 "did you mean 'path'?"
	printf '[resource "a"]\n\tpath = a\n[resourse "b"]\n\tpath = b\n' | plan_file
	refused 3 2 "did you mean 'resource'?"
	printf 'path = a\n[resource "a"]\n\tpath = a\n' | plan_file
	refused 1 2 'a key stands below'
	printf '[resource]\n\tpath = a\n' | plan_file
	refused 1 2 'a resource has a name'
	printf '[plan]\n\tnam = x\n[resource "a"]\n\tpath = a\n' | plan_file
	refused 2 2 "did you mean 'name'?"
	printf '[resource "a"]\n\tpath = a\n\tpath = b\n' | plan_file
	refused 3 2 'a second time'
	printf '[resource "a"]\n\tpath = a\n[resource "b"]\n\tpath =\n' | plan_file
	refused 4 2 'a value is missing'
	printf '[resource "a"]\n\tpath = a\n[resource "b"]\n\tpath = missing\n' | plan_file
	refused 4 1 'No such file'
	printf '[resource "a"]\n\tstrategy = copy\n' | plan_file
	refused 1 2 "resource 'a' has no path"
	printf '[resource "a"]\n\tpath = a\n[resource "b"]\n\t# path = b\n' | plan_file
	refused 3 2 "resource 'b' has no path"
	printf '[resource "a"]\n\tpath = a\n[resource "bee"]\n\tpath = b\n\tparent = aa\n' | plan_file
	refused 5 2 "did you mean 'a'?"
	printf '[resource "a"]\n\tpath = ~nobody/x\n' | plan_file
	refused 2 2 "only '~/...'"
	printf '[resource "a"]\n\tpath = "a\n' | plan_file
	refused 2 2 'git-config'
	printf '[resource "a"]\n\tpath = a\n\tkind = dri\n' | plan_file
	refused 3 2 "did you mean 'dir'?"
	printf '# nothing\n' | plan_file
	run atoll start p --file plan.conf
	status_is 2
	run atoll start p --file absent.conf --json
	status_is 1
	[ "$(jq -r .code <<<"$output")" = ENOENT ]
	[ "$(untouched a b)" = "$before" ]
	no_plans
}

@test "der_13 cli a start killed at any step is whole or gone after the next command" {
	two_dirs
	before=$(untouched a b)
	for point in start.before-record start.after-record add.after-area:1 add.after-area:2 add.after-create:2 start.after-make start.after-complete; do
		run env ATOLL_CRASHPOINT="plan.$point" "$ATOLL" start p --strategy copy --dir a --dir b
		[ "$status" -eq 137 ]
		# Whatever comes next: the same, another plan, or keeping house.
		case $point in
		*record) run atoll start q --dir a && atoll stop q ;;
		*) run atoll clean ;;
		esac
		status_is 0
		if [ "$point" = start.after-complete ]; then
			[ "$(roots p)" = $'a\nb' ]
			atoll stop p
		fi
		no_plans
		run atoll doctor
		[[ $output != *'in doubt'* && $output != *abandoned* ]]
		[ "$(untouched a b)" = "$before" ]
	done
}

@test "der_13 cli a start killed where areas lie beside the resources leaves nothing there" {
	is_root || skip 'needs root to mount'
	mkdir mnt
	mount -t tmpfs none mnt
	mounted=$work/mnt
	mkdir mnt/x mnt/y
	for point in add.after-area:1 add.after-create:2 start.after-make; do
		run env ATOLL_CRASHPOINT="plan.$point" "$ATOLL" start p --strategy copy --dir mnt/x --dir mnt/y
		[ "$status" -eq 137 ]
		[ -e mnt/.atoll-0 ]
		run atoll list --json
		[ "$(jq -r '.plans[0].in_doubt' <<<"$output")" = true ]
		atoll recover
		no_plans
		[ ! -e mnt/.atoll-0 ]
	done
	# A root that is a mount point has its area inside.
	run atoll start p --dir mnt --dir mnt/x
	status_is 0
	[ -e mnt/.atoll-0 ]
	atoll stop p
	[ ! -e mnt/.atoll-0 ]
}

@test "der_13 cli thirty starts with two directories make one whole plan" {
	two_dirs
	for i in $(seq 30); do
		"$ATOLL" start same --strategy copy --or-open --dir a --dir b >"out.$i" 2>&1 3>&- &
	done
	wait
	[ "$(cat out.* | grep -cx same)" -eq 30 ] || { cat out.*; return 1; }
	[ "$(atoll list --json | jq '.plans | length')" -eq 1 ]
	[ "$(roots same)" = $'a\nb' ]
	[ "$(find "$ATOLL_HOME/plans" -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ]
}

@test "cli start in a directory that only others may write to says so" {
	is_root && skip 'root may write everywhere'
	mkdir -p locked/inner
	chmod 555 locked
	run atoll start p --dir locked/inner
	chmod 755 locked
	status_is 0
}

@test "err_07 a start that failed says that there is no plan and leaves no lock files" {
	mkdir dir
	echo text >dir/file
	run atoll start p --dir dir --sqlite dir/file
	status_is 2
	says 'no plan was made'
	no_plans
	[ -z "$(find "$ATOLL_HOME/locks" -name '*.res')" ]
	atoll start p --dir dir
	run atoll start p --or-open --sqlite dir/file
	status_is 2
	[ "$(find "$ATOLL_HOME/locks" -name '*.res' | wc -l)" = 1 ]
}

@test "err_07 a store that would move with the working directory is refused" {
	ATOLL_HOME=store run atoll list
	status_is 2
	says "ATOLL_HOME is 'store', no absolute path"
	[ ! -e store ]
}

@test "cli start says so when all names that it could make up are taken" {
	mkdir d
	atoll start first --dir d
	# Each of them: the words of plan-name.c, and 10 to 99.
	words() {
		sed -n "/$1\[\]/,/};/s/\t*\"\(.*\)\",\$/\1/p" "$ATOLL_SOURCE_ROOT/src/plan/plan-name.c" | tr -d '" \t' | tr ',' '\n' | grep .
	}
	{
		echo 'CREATE TEMP TABLE temper(w); CREATE TEMP TABLE place(w);'
		words tempers | sed "s/.*/INSERT INTO temper VALUES('&');/"
		words places | sed "s/.*/INSERT INTO place VALUES('&');/"
		echo "WITH RECURSIVE n(i) AS (VALUES(10) UNION ALL SELECT i + 1 FROM n WHERE i < 99)
			INSERT INTO plan(id, name, state, owned, abandoned, epoch, batch, created_ms, retry_at_ms, attempts)
			SELECT printf('%016x', row_number() OVER ()), t.w || '-' || p.w || '-' || i, 0, 0, 0, 0, 0, 0, 0, 0
			FROM temper t, place p, n;"
	} >fill.sql
	sqlite3 "$ATOLL_HOME/atoll.db" <fill.sql
	[ "$(sqlite3 "$ATOLL_HOME/atoll.db" 'SELECT count(*) FROM plan')" -eq $((32 * 32 * 90 + 1)) ]
	run -1 atoll start --dir d
	says 'no name could be made up; give one'
	atoll start second --dir d
	sqlite3 "$ATOLL_HOME/atoll.db" "DELETE FROM plan WHERE name LIKE '%-%-%'"
	atoll start --dir d
}
