#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Whatever is decided, no version that exists nowhere else goes unasked; and a resource inside
# another stays that of its own sandbox, also when workspaces are made anew.

load cli

# Where the kept versions lie, all of them together.
kept() {
	find "$ATOLL_HOME/plans" -path '*/conflicts/*' -type f -exec cat {} + | sort
}

@test "der_04_keep_theirs_keeps_the_originals_too" {
	outside_tmp
	for strategy in copy overlay; do
		rm -rf app && mkdir -p app/d && echo original >app/f && echo inside >app/d/x
		atoll start fix --strategy "$strategy" --dir app
		atoll exec fix -- sh -c 'cd app; echo ours >f; rm -r d; mkdir d; echo ours >d/y; echo ours >d/z'
		atoll commit fix
		echo theirs >app/f
		echo theirs >app/d/y
		run -3 atoll rollback fix
		run -0 atoll rollback --keep-theirs fix
		[ "$(cat app/f)" = theirs ]
		[ "$(cat app/d/y)" = theirs ]
		[[ $(kept) == *original* ]]
		run -1 atoll stop fix
		[[ $output == *conflicts* ]]
		[[ $(kept) == *original* ]]
		run -0 atoll stop --force fix
	done
}

@test "der_04_keep_theirs_after_two_commits" {
	outside_tmp
	mkdir app
	atoll start fix --strategy overlay --dir app
	atoll exec fix -- sh -c 'mkdir app/new; echo one >app/new/a'
	atoll commit fix
	atoll exec fix -- sh -c 'echo two >app/new/a'
	atoll commit fix
	echo theirs >>app/new/a
	run -0 atoll rollback --keep-theirs fix
	[ "$(tail -n 1 app/new/a)" = theirs ]
	run -0 atoll stop --force fix
}

@test "der_04_stop_asks_before_a_late_write_goes" {
	outside_tmp
	mkdir app && echo original >app/log
	atoll start fix --strategy overlay --dir app
	atoll exec fix -- sh -c 'echo ours >app/log'
	exec 7>>app/log
	atoll commit fix
	echo late >&7
	exec 7>&-
	run -1 atoll stop fix
	[[ $(kept) == *late* ]]
	run -0 atoll stop --force fix
	[ "$(cat app/log)" = ours ]
}

@test "der_18_a_child_stays_when_workspaces_are_made_anew" {
	outside_tmp
	for strategy in overlay copy; do
		rm -rf app && mkdir -p app/d/child && echo old >app/f && echo old >app/d/child/x
		atoll start fix --strategy "$strategy" --dir app --dir app/d/child
		atoll exec fix -- true
		atoll reset fix
		run -0 atoll exec fix -- sh -c 'echo new >app/f; echo new >app/d/child/x'
		[ "$(cat app/f app/d/child/x)" = "$(printf 'old\nold')" ]
		run -0 atoll commit fix
		[ "$(cat app/f app/d/child/x)" = "$(printf 'new\nnew')" ]
		run -0 atoll rollback fix
		run -0 atoll exec fix -- true
		run -0 atoll commit fix
		[ "$(cat app/f app/d/child/x)" = "$(printf 'old\nold')" ]
		run -0 atoll stop fix
	done
}

@test "der_18_a_parent_cannot_take_its_child_along" {
	outside_tmp
	mkdir -p app/d/child && echo old >app/d/child/x
	atoll start fix --strategy copy --dir app --dir app/d/child
	atoll exec fix -- mv app/d app/e
	run -4 atoll commit fix
	[ "$(cat app/d/child/x)" = old ]
	run -0 atoll stop --force fix
}

@test "der_13_a_plan_whose_start_was_killed_runs_nothing_unprotected" {
	outside_tmp
	mkdir app && echo old >app/f
	run env ATOLL_CRASHPOINT=plan.start.after-record "$ATOLL" start fix --strategy copy --dir app
	[ "$status" -eq 137 ]
	run -125 atoll exec fix -- sh -c 'echo new >app/f'
	[ "$(cat app/f)" = old ]
	no_plans
}
