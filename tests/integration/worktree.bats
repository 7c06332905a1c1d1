#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A repository where no overlay can be, or where a tool needs a real path: a private checkout. What it
# shares with `git` is tested by git.bats, which runs with this strategy, too.

load cli

repository() {
	outside_tmp
	export HOME=$elsewhere GIT_CONFIG_NOSYSTEM=1
	git config --global user.name 'A Person'
	git config --global user.email person@example.org
	git config --global init.defaultBranch main
	git init -q repo
	cd repo || return 1
	mkdir dir
	echo one >one
	echo deep >dir/deep
	printf '*.ignored\n' >.gitignore
	git add .
	git commit -qm first
	git branch other
	repo=$PWD
}

# without_overlay ARGUMENT...: atoll where nothing can be tried out, so that nothing works.
without_overlay() {
	ATOLL_HELPER=/nonexistent "$ATOLL" "$@"
}

begin() {
	"$ATOLL" start p --git . --strategy worktree >/dev/null
}

strategies() {
	"$ATOLL" show p --json | jq -r '[.sandboxes[].strategy] | join(" ")'
}

@test "the checkout is what the working tree is: staged, changed, untracked and ignored files" {
	repository
	echo staged >staged
	git add staged
	echo changed >>one
	echo new >untracked
	echo old >x.ignored
	git config some.setting here
	git stash list
	begin
	outside=$(git status --porcelain=v2 --branch --ignored; git for-each-ref; git ls-files -s; git config some.setting)
	[ "$("$ATOLL" exec p -- sh -c 'git status --porcelain=v2 --branch --ignored; git for-each-ref
		git ls-files -s; git config some.setting')" = "$outside" ]
	cd "$("$ATOLL" path p)"
	[ "$(git status --porcelain=v2 --branch --ignored; git for-each-ref; git ls-files -s; git config some.setting)" = "$outside" ]
	# The index knows the copies: nothing has to be read again.
	[ -z "$(git diff-files --name-only | grep -vx one)" ]
}

@test "git_06 a tool outside works at its path, and until the commit the repository knows nothing of it" {
	repository
	old=$(untouched .)
	objects=$(find .git/objects | sort)
	begin
	[ "$(untouched .)" = "$old" ]
	path=$("$ATOLL" path p)
	(cd "$path" && echo more >>one && git commit -qam second && git checkout -q -b topic && echo t >t && git add t &&
		git commit -qm third && git gc -q && git fsck --no-dangling)
	"$ATOLL" exec p -- sh -c 'test "$(git log --format=%s | tr "\n" " ")" = "third second first " && echo un >untracked'
	# Git outside sets the times of objects that it would have written, and that are there: so it is
	# with every repository that borrows some.
	[ "$(untouched . | grep -v ' f 444 ')" = "$(grep -v ' f 444 ' <<<"$old")" ]
	[ "$(find .git/objects | sort)" = "$objects" ]
	head=$(git -C "$path" rev-parse HEAD)
	"$ATOLL" commit p >/dev/null
	[ "$(git rev-parse HEAD)" = "$head" ]
	[ "$(git symbolic-ref HEAD)" = refs/heads/topic ]
	[ "$(git status --porcelain)" = '?? untracked' ]
	[ -z "$(git fsck --no-dangling 2>&1)" ]
	[ -z "$(find .git -name '*atoll*' -o -name '*.lock' -o -name alternates)" ]
	# The next command has a checkout of what is there now.
	[ "$("$ATOLL" exec p -- git log --format=%s)" = "$(git log --format=%s)" ]
	"$ATOLL" rollback p >/dev/null
	[ "$(git log --format=%s)" = first ]
	[ "$(git symbolic-ref HEAD)" = refs/heads/main ]
	"$ATOLL" stop p >/dev/null
	no_plans
	[ -z "$(find .git -name '*atoll*')" ]
}

@test "stopped without a commit it leaves nothing, not even a time" {
	repository
	old=$(untouched .)
	begin
	"$ATOLL" exec p -- sh -c 'echo x >>one; git commit -qam x; git branch new; git config a.b c; echo >.git/hooks/pre-commit'
	"$ATOLL" diff p >/dev/null
	"$ATOLL" stop p --force >/dev/null
	[ "$(untouched .)" = "$old" ]
}

@test "git_06 a checkout that somebody removed does not keep the plan from being stopped" {
	repository
	old=$(git worktree list; git for-each-ref)
	begin
	rm -rf "$("$ATOLL" path p)"
	run "$ATOLL" commit p
	[ "$status" -ne 0 ]
	"$ATOLL" stop p --force >/dev/null
	no_plans
	[ "$(git worktree list; git for-each-ref)" = "$old" ]
}

# disturbed TIMES: a git that, asked what is staged, first has somebody else commit, so often.
disturbed() {
	mkdir -p "$elsewhere/bin"
	cat >"$elsewhere/bin/git" <<-END
		#!/bin/sh
		if [ "\$1" = ls-files ] && [ "\$(wc -l <$elsewhere/times)" -lt $1 ]; then
			echo >>$elsewhere/times
			(unset \$(env | sed -n 's/^\(GIT_[A-Z_0-9]*\)=.*/\1/p'); cd $repo; echo >>one; $(command -v git) commit -qam theirs)
		fi
		exec $(command -v git) "\$@"
	END
	chmod +x "$elsewhere/bin/git"
	: >"$elsewhere/times"
}

@test "a checkout is of one commit, whoever is at work while it is made" {
	repository
	disturbed 100
	PATH=$elsewhere/bin:$PATH run "$ATOLL" start p --git . --strategy worktree
	status_is 1
	[[ $output == *'each time it was copied'* ]]
	no_plans
	disturbed 2
	PATH=$elsewhere/bin:$PATH begin
	[ -z "$("$ATOLL" exec p -- git status --porcelain)" ]
	[ "$("$ATOLL" exec p -- git rev-parse HEAD)" = "$(git rev-parse HEAD)" ]
}

@test "where no overlay can be, --git takes a checkout, and says so once" {
	repository
	run --separate-stderr without_overlay start p --git .
	status_is 0
	[ "$(grep -c 'a private checkout is used, since an overlay cannot be' <<<"$stderr")" -eq 1 ]
	[[ $stderr == *'started p: '* ]]
	[ "$(strategies)" = worktree ]
	run --separate-stderr "$ATOLL" exec p -- sh -c 'echo more >>one; git commit -qam second'
	status_is 0
	[[ $stderr != *'private checkout'* ]]
	"$ATOLL" commit p >/dev/null
	[ "$(git log --format=%s | head -1)" = second ]
	"$ATOLL" stop p >/dev/null
	# What was not asked for by its kind is a directory there, as everywhere.
	without_overlay start p --dir . >/dev/null
	[ "$(strategies)" = copy ]
}

@test "a run in a repository takes a checkout where no overlay can be" {
	repository
	# The first call of the helper is the one that tries.
	cat >"$elsewhere/helper" <<-'END'
		#!/bin/sh
		mkdir "$0.tried" 2>/dev/null && exit 1
		exec "$REAL_HELPER" "$@"
	END
	chmod +x "$elsewhere/helper"
	run env REAL_HELPER="$ATOLL_TEST_HELPER" ATOLL_HELPER="$elsewhere/helper" "$ATOLL" run --commit -- \
		sh -c 'echo more >>one; git commit -qam second'
	status_is 0
	[[ $output == *'a private checkout is used'* ]]
	[ "$(git log --format=%s | head -1)" = second ]
}

@test "doctor says which way a repository would go" {
	repository
	run "$ATOLL" doctor .
	[[ $output == *'repository '*'strategy git'* ]]
	run without_overlay doctor .
	[[ $output == *'repository '*'strategy worktree'* ]]
	run "$ATOLL" doctor dir
	[[ $output != *'repository '* ]]
}

@test "which strategy: of --git, of --dir beside it, and in a file" {
	repository
	mkdir ../plain
	"$ATOLL" start p --git . --dir ../plain --strategy worktree >/dev/null
	[[ $(strategies) == worktree\ @(overlay|copy) ]]
	"$ATOLL" stop p >/dev/null
	"$ATOLL" start p --git . --dir ../plain --strategy copy >/dev/null
	[ "$(strategies)" = 'git copy' ]
	"$ATOLL" stop p >/dev/null
	printf '[resource "r"]\n\tpath = .\n\tkind = git\n\tstrategy = worktree\n' >plan.conf
	"$ATOLL" start p --file plan.conf >/dev/null
	[ "$(strategies)" = worktree ]
	"$ATOLL" stop p >/dev/null
	run "$ATOLL" start p --git dir --strategy worktree
	status_is 6
	[[ $output == *'is not the root of a git repository'* ]]
}

@test "commands see the repository's objects, and cannot change them" {
	repository
	git gc -q
	old=$(untouched .git)
	begin
	! "$ATOLL" exec p -- sh -c 'set -e; git cat-file -e HEAD; cd .git/atoll-objects; chmod -R u+w . || true
		for f in pack/*; do ! echo x >>"$f"; ! rm -f "$f"; done; touch new' 2>/dev/null
	"$ATOLL" exec p -- sh -c 'umount .git/atoll-objects 2>/dev/null; mv .git .gone; mv .gone .git; git log >/dev/null'
	# What stands where they are to be shown makes no difference.
	path=$("$ATOLL" path p)
	rmdir "$path/.git/atoll-objects"
	ln -s "$repo/.git" "$path/.git/atoll-objects"
	"$ATOLL" exec p -- git log >/dev/null
	[ "$(untouched .git)" = "$old" ]
}

@test "a repository that was made anew inside is refused, and what the first had is not lost" {
	repository
	begin
	path=$("$ATOLL" path p)
	mv "$path/.git" "$path/../was"
	git -C "$path" init -q
	git -C "$path" commit -q --allow-empty -m other
	"$ATOLL" exec p -- git log --format=%s | grep -qx other
	run "$ATOLL" commit p
	status_is 4
	[[ $output == *'was removed or replaced in the plan'* ]]
	rm -rf "$path/.git"
	mv "$path/../was" "$path/.git"
	"$ATOLL" exec p -- sh -c 'echo x >>one; git commit -qam second'
	"$ATOLL" commit p >/dev/null
	[ "$(git log --format=%s | head -1)" = second ]
}

@test "what others pack, prune and move meanwhile does not disturb the checkout" {
	repository
	begin
	"$ATOLL" exec p -- sh -c 'echo mine >mine; git add mine; git commit -qm mine'
	echo theirs >theirs
	git add theirs
	git commit -qm theirs
	git gc -q --prune=now
	"$ATOLL" exec p -- sh -c 'git fsck --no-dangling && test "$(git log --format=%s | tr "\n" " ")" = "mine first "'
	run "$ATOLL" refresh p
	status_is 6
	[[ $output == *'merge or rebase in the plan'* ]]
	"$ATOLL" commit p >/dev/null
	[ "$(git log --format=%s --no-merges | sort | tr '\n' ' ')" = 'first mine theirs ' ]
	[ -z "$(git status --porcelain)" ]
	[ -z "$(git fsck --no-dangling 2>&1)" ]
}

@test "objects that a repository has from elsewhere are found, by whatever path" {
	repository
	for path in "$repo/.git/objects" ../../../repo/.git/objects; do
		git clone -q --shared . ../borrower
		echo "$path" >../borrower/.git/objects/info/alternates
		(
			cd ../borrower
			git log >/dev/null
			begin
			"$ATOLL" exec p -- sh -c 'git fsck --no-dangling; echo x >>one; git commit -qam second'
			git -C "$("$ATOLL" path p)" log >/dev/null
			"$ATOLL" commit p >/dev/null
			[ "$(git log --format=%s | tr '\n' ' ')" = 'second first ' ]
			"$ATOLL" stop p >/dev/null
		)
		rm -rf ../borrower
	done
}

@test "a checkout without namespaces" {
	! is_root || skip 'root has them'
	repository
	begin
	unshare --map-current-user --keep-caps sh -ec 'echo 0 >/proc/sys/user/max_user_namespaces
		exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"' sh "$ATOLL" exec p --unfenced -- \
		sh -ec 'test "$PWD" != '"$repo"'; git log >/dev/null; echo x >>one; git commit -qam second'
	[ "$(git log --format=%s)" = first ]
	"$ATOLL" commit p >/dev/null
	[ "$(git log --format=%s | tr '\n' ' ')" = 'second first ' ]
}
