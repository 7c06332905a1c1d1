#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Another process touches an entry that the plan changed, or that a commit put there, and it holds what it
# held: no conflict. Where it does not, one as ever.

load cli

# A work tree with two branches, given as a plain directory. `other` has another `one`.
make_tree() {
	rm -rf tree backup
	git init -q -b main tree
	cd tree || return 1
	git config user.name t
	git config user.email t@example.org
	git config core.checkStat default
	mkdir sub
	echo one >one
	echo deep >sub/deep
	echo more >sub/more
	echo two >two
	ln -s one link
	git add -A
	git commit -qm first
	git checkout -qb other
	echo another >one
	echo another >sub/deep
	ln -sfn two link
	git commit -qam second
	git checkout -q main
	cd ..
}

# What another process may do to the tree, and that leaves everything in it as it was.
touched() { touch -d 2005-05-05 one sub/deep && touch -h -d 2005-05-05 link; }
made_immutable() { chattr +i one sub/deep && chattr -i one sub/deep; }
backed_up() { cp -al ../tree ../backup; }
checked_out() { git checkout -q other && git checkout -q main; }
index_written() { touch -d 2005-05-05 two && git status --short >/dev/null; }
written_and_back() { cp one .kept && echo else >one && cat .kept >one && rm .kept; }
SITUATIONS=(touched made_immutable backed_up checked_out index_written written_and_back)

# can NAME: on this filesystem, as this user.
can() {
	[ "$1" != made_immutable ] || { chattr +i one && chattr -i one; } 2>/dev/null
}

# The plan's change, which has something of everything that can be the same.
CHANGE='echo ours >one; rm sub/deep; ln -sfn sub link; mkdir new; echo n >new/n; echo two >>two; git add two'

began() {
	make_tree
	git -C tree ls-files -s >index.before
	atoll start p --dir tree --strategy "$1"
	(cd tree && atoll exec p -- sh -ec "$CHANGE")
}

ours_is_there() {
	[ "$(cat one)" = ours ] && [ ! -e sub/deep ] && [ "$(readlink link)" = sub ] &&
		[ "$(cat new/n)" = n ] && [ "$(git show :two)" = "$(printf 'two\ntwo')" ]
}

originals_are_there() {
	[ "$(cat one)" = one ] && [ "$(cat sub/deep)" = deep ] && [ "$(readlink link)" = one ] &&
		[ ! -e new ] && [ "$(cat two)" = two ] && git ls-files -s | cmp - ../index.before
}

committed_after() {
	local strategy=$1 what
	for what in "${SITUATIONS[@]}"; do
		echo "commit with $strategy: $what"
		began "$strategy"
		cd tree
		if can "$what"; then
			"$what"
			run -0 atoll diff p --json
			[ "$(jq .conflicts <<<"$output")" -eq 0 ]
			atoll commit p
			ours_is_there
			atoll rollback p
			originals_are_there
		fi
		cd ..
		atoll stop --force p
	done
}

undone_after() {
	local strategy=$1 what
	for what in "${SITUATIONS[@]}"; do
		echo "undo with $strategy: $what"
		began "$strategy"
		cd tree
		if can "$what"; then
			atoll commit p
			if [ "$what" = checked_out ]; then
				# So that git has it, and takes it there and back.
				git add one sub link two
				git commit -qm third
				git checkout -q other
				git checkout -q main
				git reset -q --soft HEAD~1
				git restore -q --staged one sub/deep link
			elif [ "$what" = touched ]; then
				touch -d 2005-05-05 one new/n && touch -h -d 2005-05-05 link
			elif [ "$what" = made_immutable ]; then
				chattr +i one new/n && chattr -i one new/n
			else
				"$what"
			fi
			atoll rollback p
			originals_are_there
		fi
		cd ..
		atoll stop --force p
	done
}

@test "der_03 cli overlay: what holds the same is no conflict of a commit" {
	outside_tmp
	committed_after overlay
}

@test "der_03 cli copy: what holds the same is no conflict of a commit" {
	outside_tmp
	committed_after copy
}

@test "der_03 cli overlay: what holds the same is no conflict of an undo" {
	outside_tmp
	undone_after overlay
}

@test "der_03 cli copy: what holds the same is no conflict of an undo" {
	outside_tmp
	undone_after copy
}

# The same size, and the times it had.
forged() {
	local time
	time=$(stat -c %y one)
	printf '%s' "$(tr a-z A-Z <one)" >.forged
	echo >>.forged
	cat .forged >one
	rm .forged
	touch -d "$time" one
}
remoded() { chmod g+w one; }
attributed() { setfattr -n user.theirs -v 1 one; }
swapped() { cp -p one .swapped && echo theirs >>.swapped && mv .swapped one; }
CONTROLS=(forged remoded attributed swapped)

@test "der_03 cli what holds something else is a conflict, whatever its times" {
	outside_tmp
	for strategy in overlay copy; do
		for what in "${CONTROLS[@]}"; do
			echo "$what with $strategy"
			began "$strategy"
			cd tree
			"$what"
			run atoll commit p
			status_is 3
			says one
			cd ..
			atoll stop --force p
			began "$strategy"
			cd tree
			atoll commit p
			"$what"
			before=$(stat -c '%i %Y %a' one; cat one)
			run atoll rollback p
			status_is 3
			says one
			[ "$(stat -c '%i %Y %a' one; cat one)" = "$before" ]
			cd ..
			atoll stop --force p
		done
	done
}

@test "der_03 cli an index in which other things are staged is a conflict" {
	outside_tmp
	for strategy in overlay copy; do
		began "$strategy"
		cd tree
		echo staged >three
		git add three
		run atoll commit p
		status_is 3
		says .git/index
		cd ..
		atoll stop --force p
	done
}

@test "der_03 cli refresh leaves no conflict for what holds the same" {
	outside_tmp
	for strategy in overlay copy; do
		began "$strategy"
		cd tree
		touched
		checked_out
		atoll refresh p
		run -0 atoll diff p --json
		[ "$(jq .conflicts <<<"$output")" -eq 0 ]
		touch -d 2006-06-06 one
		atoll commit p
		ours_is_there
		cd ..
		atoll stop --force p
	done
}

# What an undo took for the batch's is on disk before its decision, and recovery looks for that.
@test "der_01 cli an undo that is killed is finished with what it found" {
	outside_tmp
	for strategy in overlay copy; do
		for point in txn.undo.prepared txn.undo.after-decision dir.undo.op dir.undo.attrs txn.undo.undone; do
			echo "$strategy $point"
			began "$strategy"
			cd tree
			atoll commit p
			for file in one new/n; do
				cp -p "$file" .anew
				touch -d 2005-05-05 .anew
				mv .anew "$file"
			done
			run env ATOLL_CRASHPOINT="$point" "$ATOLL" rollback p
			[ "$status" -eq 137 ]
			atoll recover
			[ "$point" != txn.undo.prepared ] || { ours_is_there && atoll rollback p; }
			originals_are_there
			cd ..
			atoll stop --force p
		done
	done
}
