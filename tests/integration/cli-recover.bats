#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Killed in the middle: the next command finishes or withdraws, and says so.

load cli

plan_with_changes() {
	two_dirs
	old=$(tree a b)
	atoll start p --dir a --dir b >/dev/null 2>&1
	make_changes
}

make_changes() {
	atoll exec p -- sh -c '
		cd "$ATOLL_RESOURCE_1" && echo changed >one && rm two &&
		cd "$ATOLL_RESOURCE_2" && echo four >four'
}

killed_at() {
	ATOLL_CRASHPOINT=$1 run atoll "${@:2}"
	status_is 137
}

committed_now() {
	[ "$(cat a/one)" = changed ]
	[ ! -e a/two ]
	[ "$(cat b/four)" = four ]
}

@test "der_01 cli a commit killed before the decision never happened" {
	plan_with_changes
	killed_at txn.after-barrier-1 commit p
	[ "$(atoll list --json | jq '.plans[0].in_doubt')" = true ]
	[ "$(tree a b)" = "$old" ]
	run atoll recover
	status_is 0
	says 'recovered plan p'
	[ "$(tree a b)" = "$old" ]
	atoll commit p
	committed_now
}

@test "der_01 cli a commit killed after the decision is finished by the next command" {
	plan_with_changes
	killed_at dir.apply.op commit p
	mkdir c
	# Any command that changes something will do, also one about another plan.
	run atoll start q --dir c
	status_is 0
	says 'recovered plan p'
	committed_now
	atoll rollback p
	[ "$(tree a b)" = "$old" ]
}

@test "der_01 cli an undo killed in the middle is finished by the next command" {
	plan_with_changes
	atoll commit p
	killed_at dir.undo.op rollback p
	run atoll rollback p
	status_is 0
	[ "$(tree a b)" = "$old" ]
}

@test "der_01 cli a killed recovery is recovered" {
	plan_with_changes
	killed_at txn.after-decision commit p
	killed_at dir.apply.op recover
	killed_at recover.applied recover p
	run atoll recover p --json
	status_is 0
	[ "$(jq -r '[.format, .recovered[0], (.left | length)] | join(" ")' <<<"$output")" = 'atoll.recover/1 p 0' ]
	committed_now
	run atoll recover
	status_is 0
	says 'nothing to recover'
}

@test "cch_08 cli a start killed half-way leaves nothing after the next command" {
	two_dirs
	before=$(untouched a)
	killed_at plan.add.after-area start p --dir a
	run atoll recover
	status_is 0
	no_plans
	run atoll stop p
	status_is 1
	[ "$(untouched a)" = "$before" ]
}

@test "cli looking at a plan in doubt neither waits nor repairs" {
	plan_with_changes
	killed_at txn.after-decision commit p
	run atoll list
	status_is 0
	says 'interrupted: atoll recover'
	run atoll show p
	status_is 0
	says 'in doubt'
	run atoll doctor a
	status_is 0
	[ "$(atoll list --json | jq '.plans[0].in_doubt')" = true ]
	atoll recover
	committed_now
}

@test "cli recovery waits for what a killed command left to die" {
	plan_with_changes
	killed_at txn.after-decision commit p
	hold "$(atoll list --json | jq -r '.plans[0].id').plan"
	run atoll recover --wait 0
	status_is 0
	says 'plan p is being worked on'
	(sleep 1; kill "$background") 3>&- 4>&- &
	run atoll recover
	status_is 0
	says 'recovered plan p'
	committed_now
}

# with_damage MANIFEST COMMAND...: damaged while the commands run, then as it was.
with_damage() {
	cp -p "$1" saved
	printf 'X' | dd of="$1" bs=1 seek=20 conv=notrunc status=none
	for command in "${@:2}"; do
		# shellcheck disable=SC2086 # words
		run atoll $command
		[ "$status" -eq 7 ] || [ "$status" -eq 125 ]
		[ "$(untouched a b)" = "$before" ] || {
			printf 'touched by %s with %s damaged:\n%s\n' "$command" "$1" "$output"
			return 1
		}
	done
	run atoll commit p --json
	status_is 7
	jq -e '.format == "atoll.error/1" and .exit == 7' <<<"$output"
	cat saved >"$1"
}

@test "cli a damaged manifest of any resource stops recovery before it touches anything" {
	plan_with_changes
	killed_at txn.after-decision commit p
	before=$(untouched a b)
	mapfile -t manifests < <(find "$ATOLL_HOME/plans" -type f -name '*manifest*' | sort)
	[ "${#manifests[@]}" -eq 2 ]
	for manifest in "${manifests[@]}"; do
		with_damage "$manifest" 'recover p' 'commit p' 'rollback p' 'exec p -- true' 'stop p'
	done
	# With the manifests back it is finished.
	run atoll recover p
	status_is 0
	committed_now
}

@test "cli a plan that cannot be recovered does not hold up others" {
	plan_with_changes
	killed_at txn.after-decision commit p
	manifest=$(find "$ATOLL_HOME/plans" -type f -name '*manifest*' | sort | head -n 1)
	cp -p "$manifest" saved
	printf 'X' | dd of="$manifest" bs=1 seek=20 conv=notrunc status=none
	mkdir c
	run atoll start q --dir c
	status_is 0
	run atoll exec q -- sh -c 'echo x >"$ATOLL_RESOURCE_1/x"'
	status_is 0
	run atoll commit q
	status_is 0
	[ "$(cat c/x)" = x ]
	cat saved >"$manifest"
	run atoll recover p
	status_is 0
	committed_now
}

@test "cln_04 cli a commit finished by recovery can be undone as long as it asked for" {
	plan_with_changes
	# Changes that are not committed keep the plan, also when the same command sees that its commit expired.
	atoll exec p -- sh -c 'echo more >"$ATOLL_RESOURCE_1/more"'
	killed_at txn.after-decision commit p --retain 0 a/one a/two b/four
	atoll recover
	committed_now
	atoll recover # no longer than asked for
	run atoll rollback p
	status_is 1
	says 'was released'
	killed_at txn.after-decision commit p --no-undo
	atoll recover
	sleep 0.01
	atoll recover
	[ "$(atoll show p --json | jq .undoable_commits)" -eq 0 ]
	atoll start q --dir b
	atoll exec q -- sh -c 'echo five >"$ATOLL_RESOURCE_1/five"'
	killed_at txn.after-decision commit q --retain 1h
	# The clock runs from when it was done, not from when it began.
	python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE batch SET created_ms = created_ms - 7200000, retain_until_ms = retain_until_ms - 7200000 WHERE state = 1")
db.commit()' "$ATOLL_HOME/atoll.db"
	atoll recover
	atoll recover
	[ "$(atoll show q --json | jq .undoable_commits)" -eq 1 ]
	atoll rollback q
	[ ! -e b/five ]
}

@test "cli recover --accept tells of nothing that was not in doubt" {
	mkdir dir
	atoll start p --dir dir
	run atoll recover --accept
	status_is 0
	says 'nothing to recover'
	! says 'is taken as it is'
}

# Whoever clears away what is not his finds that nothing else was made up for it.
@test "atm_04 cli records that somebody removed are missed by name, and nothing is guessed" {
	plan_with_changes
	killed_at txn.after-decision commit p
	mkdir aside
	mv "$(find "$ATOLL_HOME" -path '*-1/b1/manifest')" aside/
	run atoll recover
	status_is 7
	says "cannot open 'manifest'"
	mv aside/manifest "$(find "$ATOLL_HOME" -path '*-1/b1')/"
	run -0 atoll recover
	committed_now
	mv "$(find "$ATOLL_HOME" -path '*-1/b1/manifest')" aside/
	run atoll rollback p
	[ "$status" -ne 0 ]
	says 'the undo data of'
	committed_now
}

@test "sql_06 cli a transaction over several databases that was killed is not committed" {
	python3 -c 'import sqlite3; d = sqlite3.connect("x.db"); d.execute("create table t(v)"); d.commit()'
	atoll start p --sqlite x.db
	work=$(atoll path p x.db)
	touch "$work-mj01234567"
	run atoll commit p
	[ "$status" -ne 0 ]
	says 'killed in a transaction'
	rm "$work-mj01234567"
	mkdir "$work-journal"
	run -4 atoll commit p
	says 'no regular file any more'
	rmdir "$work-journal"
	run -0 atoll commit p
}

@test "der_02 cli records of a view that a power cut tore are no dead end, and make everything suspect" {
	two_dirs
	old=$(tree a b)
	atoll start p --dir a --dir b --strategy overlay >/dev/null 2>&1
	make_changes
	records=$(find "$ATOLL_HOME" "$work" -path '*-1/*' -name 'records[0-9]*')
	[ -s "$records" ]
	size=$(stat -c %s "$records")
	for left in 0 40 $((size - 1)); do
		truncate -s "$left" "$records"
		truncate -s "$size" "$records" # as ext4 and XFS leave it: the length, and zeros
		run -0 atoll diff p
		says one
		run -3 atoll commit p --dry-run
	done
	truncate -s 40 "$records"
	run -3 atoll commit p
	says "$work/a/one"
	says "$work/a/two"
	[ "$(tree a b)" = "$old" ]
	run -0 atoll commit p --ours a
	committed_now
	atoll rollback p
	[ "$(tree a b)" = "$old" ]
}

# Two files of a `copy` are changed, one is new. killed_in_copy POINT: in the middle of their commit.
killed_in_copy() {
	two_dirs
	old=$(tree a b)
	atoll start p --dir a --strategy copy >/dev/null 2>&1
	place=$(atoll path p)
	echo mine >"$place/one"
	echo mine >"$place/two"
	mkdir "$place/deep"
	echo mine >"$place/deep/new"
	killed_at "$1" commit p
}

@test "der_01 cli work that somebody takes away after the decision is a conflict, and all go back" {
	killed_in_copy txn.after-decision
	rm "$place/two"
	run -0 atoll recover
	run -0 atoll log p
	says "the new version of 'two' was taken out of the workspace by somebody else"
	[ "$(tree a b)" = "$old" ]
	[ "$(cat "$place/one" "$place/deep/new")" = "$(printf 'mine\nmine')" ]
	run -0 atoll commit p
	[ ! -e a/two ]
	[ "$(cat a/one)" = mine ]
}

@test "der_01 cli a new entry that somebody takes out of the workspace after the decision is not left out" {
	killed_in_copy txn.after-decision
	rm -r "$place/deep"
	run -0 atoll recover
	[ "$(tree a b)" = "$old" ]
	echo newer >"$place/deep"
	run -0 atoll commit p
	[ "$(cat a/one a/two a/deep)" = "$(printf 'mine\nmine\nnewer')" ]
}

@test "der_01 cli a new entry that was installed and then removed by somebody stays removed" {
	killed_in_copy txn.after-apply
	rm -r a/deep
	run -0 atoll recover
	[ ! -e a/deep ]
	[ "$(cat a/one a/two)" = "$(printf 'mine\nmine')" ]
}

@test "der_01 cli a directory of the workspace that became a link after the decision takes nobody outside" {
	mkdir outside
	echo secret >outside/one
	killed_in_copy txn.after-decision
	mv "$place" "$place.aside"
	mkdir "$place"
	ln -s "$work/outside" "$place/deep"
	cp "$place.aside/two" "$place/"
	run -0 atoll recover
	[ "$(tree a b)" = "$old" ]
	[ "$(cat outside/*)" = secret ]
	rm "$place/deep" "$place/two"
	mv "$place.aside"/* "$place/"
	run -0 atoll commit p
	[ "$(cat a/one a/two a/deep/new)" = "$(printf 'mine\nmine\nmine')" ]
}

# As the empty directory below a filesystem that is not mounted yet. Half of it would be in each.
@test "der_01 cli what was begun in a directory is not finished in another that stands in its place" {
	for point in dir.apply.op:1 dir.undo.op:2; do
		rm -rf a b
		plan_with_changes
		if [ "$point" = dir.undo.op:2 ]; then
			atoll commit p >/dev/null 2>&1
			killed_at "$point" rollback --yes p
		else
			killed_at "$point" commit p
		fi
		half=$(tree a b)
		mv a away
		mkdir a
		run -7 atoll recover
		says "'$work/a' is another than the one in which it was begun, and which must be put back"
		run -0 atoll list
		[ -z "$(ls -A a)" ]
		rmdir a
		mv away a
		[ "$(tree a b)" = "$half" ]
		run -0 atoll recover
		says 'recovered plan p'
		if [ "$point" = dir.undo.op:2 ]; then
			[ "$(tree a b)" = "$old" ]
		else
			committed_now
		fi
		atoll stop --force --yes p >/dev/null 2>&1
	done
}

# another_in_place: of a, which is moved away.
another_in_place() {
	mv a away
	mkdir a
	echo theirs >a/one
	theirs=$(untouched a)
}

@test "der_01 cli what was not decided is withdrawn, whatever directory stands there, and that stays as it is" {
	plan_with_changes
	killed_at txn.after-barrier-1 commit p
	another_in_place
	run -0 atoll recover
	says 'recovered plan p'
	[ "$(atoll list --json | jq -r '.plans[0] | "\(.state) \(.in_doubt)"')" = 'OPEN false' ]
	run atoll commit p
	status_is 3
	says "'$work/a' was replaced by another since the plan was made"
	[ "$(untouched a)" = "$theirs" ]
	rm -r a
	mv away a
	[ "$(tree a b)" = "$old" ]
	atoll commit p
	committed_now
}

@test "der_01 cli a plan whose directory does not come back can be given up" {
	plan_with_changes
	killed_at dir.apply.op:1 commit p
	another_in_place
	half=$(tree away b)
	run atoll stop p
	status_is 7
	says 'needs recovery'
	run -0 atoll stop --force p
	no_plans
	[ "$(untouched a)" = "$theirs" ]
	[ "$(tree away b)" = "$half" ]
}

@test "cli a reset or rollback that is refused for another directory leaves all as it was" {
	plan_with_changes
	for word in reset rollback 'rollback --keep-theirs'; do
		another_in_place
		run atoll $word p
		status_is 3
		says "'$work/a' was replaced by another since the plan was made; nothing was changed"
		[ "$(untouched a)" = "$theirs" ]
		rm -r a
		run atoll $word p
		status_is 1
		says 'put it back'
		mv away a
		[ "$(atoll show p --json | jq -r '[.sandboxes[].state] | join(" ")')" = 'ACTIVE ACTIVE' ]
		run -0 atoll exec p -- sh -c 'cat "$ATOLL_RESOURCE_1/one" "$ATOLL_RESOURCE_2/four"'
		says $'changed\nfour'
	done
	[ "$(tree a b)" = "$old" ]
	atoll commit p
	committed_now
	# Undone is all of it or nothing.
	another_in_place
	run atoll rollback p
	status_is 3
	rm -r a
	mv away a
	committed_now
	atoll rollback p
	[ "$(tree a b)" = "$old" ]
}

@test "der_01 cli the history names what was kept as the recovery did" {
	mkdir a
	odd=$'one\n\\n\e[1m'
	echo old >"a/$odd"
	atoll start p --dir a --strategy copy >/dev/null 2>&1
	place=$(atoll path p)
	echo mine | tee "$place/$odd" >"$place/two"
	killed_at dir.apply.op:1 commit p
	[ ! -e "$place/$odd" ]
	echo newer >"$place/$odd"
	rm "$place/two"
	run -0 atoll recover
	kept=$(grep '^  kept: ' <<<"$output")
	[ "$(grep -c . <<<"$kept")" = 1 ]
	run -0 atoll log p
	says "done: ${kept#  kept: }"
	run -0 atoll log p --json
	[ "$(jq -r --arg path "$work/a/$odd" 'select(.message // "" | startswith($path + ": ")) | .what' <<<"$output")" = recover ]
}

@test "der_01 cli of very much that was kept the history names some and counts the rest" {
	mkdir a b
	for i in {101..150}; do
		echo old >"a/$i"
	done
	echo old | tee b/one >b/two
	atoll start p --dir a --dir b --strategy copy >/dev/null 2>&1
	place=$(atoll path p a)
	other=$(atoll path p b)
	echo mine | tee "$place"/* "$other"/* >/dev/null
	killed_at dir.apply.op:51 commit p
	echo newer | tee "$place"/{101..150} >/dev/null
	# One that is gone takes all back.
	rm "$other/two"
	run -0 atoll recover
	[ "$(grep -c "^  kept: $work/a/" <<<"$output")" = 50 ]
	run -0 atoll log p
	[ "$(grep -c "$work/a/1[0-9][0-9]: .* kept at " <<<"$output")" = 10 ]
	says "$work/a: 40 more, kept in the same place"
	[ "$(grep -c "  recover  " <<<"$output")" = 13 ]
	[ "$(cat a/* b/* | sort -u)" = old ]
}

# Whoever recovers, being asked or in passing, says where it lies, and so does the history.
@test "der_01 cli what somebody wrote in the place of work that returns stays, and the work is kept" {
	for how in recover 'start other --dir b'; do
		rm -rf a b
		killed_in_copy dir.apply.op:2
		[ ! -e "$place/one" ]
		[ ! -e "$place/deep" ]
		echo newer | tee "$place/one" >"$place/deep"
		rm "$place/two"
		# shellcheck disable=SC2086
		run -0 atoll $how
		says 'recovered plan p'
		says "kept: $work/a/one: "
		kept=("$ATOLL_HOME"/plans/*/conflicts)
		says "kept at ${kept[0]}/b1-"
		run -0 atoll log p
		says "$work/a/one: "
		says "kept at ${kept[0]}/b1-"
		[ "$how" = recover ] || break
		atoll stop --force p >/dev/null 2>&1
	done
	[ "$(tree a b)" = "$old" ]
	[ "$(cat "$place/one" "$place/deep")" = "$(printf 'newer\nnewer')" ]
	kept=("$ATOLL_HOME"/plans/*/conflicts)
	[ "$(find "${kept[0]}" -type f -exec cat {} +)" = "$(printf 'mine\nmine')" ]
	run -0 atoll recover
	run -0 atoll commit p
	[ "$(cat a/one a/deep)" = "$(printf 'newer\nnewer')" ]
}

@test "der_02 cli a workspace of which a part did not reach the disk is said to be lost" {
	two_dirs
	"$ATOLL" start --dir a q
	(cd a && "$ATOLL" exec q -- sh -c 'echo new >one')
	all_end
	# As after a power cut: the record is there, the area, too, but not what is in it.
	sqlite3 "$ATOLL_HOME/atoll.db" "UPDATE sandbox SET boot_id = 'another'"
	area=$("$ATOLL" show q --json | jq -r '.sandboxes[0].area')
	rm -rf "${area:?}"/u1 "${area:?}"/durable
	run "$ATOLL" diff q
	status_is 1
	says 'the machine went down before'
	says 'atoll discard q'
	run "$ATOLL" commit q
	[ "$status" -ne 0 ]
	run "$ATOLL" diff q
	status_is 1
	says 'the machine went down before'
	"$ATOLL" reset q
	"$ATOLL" exec q -- true
	"$ATOLL" diff q --exit-code
	"$ATOLL" stop q
}
