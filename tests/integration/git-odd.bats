#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A git repository as a resource, in states that few get into: begun operations, rewritten branches, locks
# that a dead git left, a git that fails, records that somebody changed.

load cli
load git

# refuses STATUS WORDS...: so does commit, and nothing is changed by it.
refuses() {
	local want=$1 before
	shift
	before=$(all)
	run "$ATOLL" commit p
	status_is "$want"
	for words; do
		says "$words"
	done
	[ "$(all)" = "$before" ]
	sound
}

@test "settings and places of a repository that are refused at the start" {
	repository
	refused() { # words
		run "$ATOLL" start q --git ../odd --strategy "$strategy"
		status_is 6
		says "$1"
		says 'hint: '
		no_plans
	}
	mkdir ../odd
	ln -s "$repo/.git" ../odd/.git
	refused 'has its repository elsewhere'
	rm -r ../odd
	git clone -q . ../odd
	git -C ../odd config core.worktree "$repo"
	refused 'has its working tree elsewhere'
	git -C ../odd config --unset core.worktree
	git -C ../odd config core.repositoryFormatVersion 1
	git -C ../odd config extensions.partialClone origin
	refused 'is a partial clone'
	git -C ../odd config --unset extensions.partialClone
	# Git would follow it, and what is behind it would count as deleted.
	ln -s main ../odd/.git/refs/heads/link
	refused "has '.git/refs/heads/link' among its refs, which is no file"
	rm ../odd/.git/refs/heads/link
	mv ../odd/.git/refs ../refs
	ln -s ../../refs ../odd/.git/refs
	refused "has '.git/refs' among its refs"
	rm ../odd/.git/refs
	mv ../refs ../odd/.git/refs
	git -C ../odd pack-refs --all
	for name in HEAD:refs/heads/main index:far packed-refs:far; do
		mv "../odd/.git/${name%:*}" ../odd/.git/far
		ln -s "${name#*:}" "../odd/.git/${name%:*}"
		refused "has a '.git/${name%:*}' that is no file"
		mv ../odd/.git/far "../odd/.git/${name%:*}"
	done
	"$ATOLL" start q --git ../odd --strategy "$strategy"
}

@test "what would have to come along of the workspace's .git is refused, and can be taken back" {
	repository
	started
	inside 'echo x >>one; git commit -qam x'
	# path in .git, words
	while read -r path words; do
		inside "mkdir -p .git/$(dirname "$path"); echo x >.git/$path"
		refuses 4 "$words" 'which cannot be committed'
		inside "rm -r .git/${path%%/*}"
	done <<-E
		modules/sub/HEAD a submodule's repository was made or changed
		lfs/objects/0123 files of Git LFS were added
		shallow the depth of the clone was changed
	E
	inside 'cp -a .git/refs refs; rm -r .git/refs; mv refs .git/refs'
	refuses 4 'the directory of all refs was removed or replaced'
}

@test "git_01 refs that are gone or no files any more are refused, and not taken for none" {
	local removed='the directory of all refs was removed or replaced' how words

	repository
	git branch other
	for strategy in git worktree; do
		# what is done to them, words
		while IFS='|' read -r how words; do
			started
			inside 'echo x >>one; git commit -qam x; cp -a .git/refs kept'
			inside "$how"
			run "$ATOLL" diff p
			status_is 0
			says "M  $repo/.git  ($words"
			says "M  $repo/one"
			refuses 4 "$words" 'which cannot be committed' 'hint: take it back there'
			inside 'rm -rf .git/refs; mv kept .git/refs'
			# In an overlay it is another directory now.
			[ "$strategy" = git ] || { committed; undone; }
			"$ATOLL" stop p --force >/dev/null
		done <<-E
			rm -r .git/refs|$removed
			rm -r .git/refs; echo x >.git/refs|$removed
			rm -r .git/refs; ln -s ../kept .git/refs|$removed
			mv .git/refs/heads .git/far; ln -s ../far .git/refs/heads|'.git/refs/heads', which is no file, was put among the refs
			ln -s main .git/refs/heads/link|'.git/refs/heads/link', which is no file, was put among the refs
			mkfifo .git/refs/heads/fifo|'.git/refs/heads/fifo', which is no file, was put among the refs
		E
	done
	# One of the repository's own, since: neither is it followed, nor does it go.
	strategy=git
	started
	inside 'echo x >>one; git commit -qam x'
	ln -s main .git/refs/heads/link
	refuses 6 "has '.git/refs/heads/link' among its refs, which is no file"
	rm .git/refs/heads/link
	committed
	[ "$(git rev-list --count main)" = 2 ]
	[ "$(git rev-parse other)" = "$first" ]
	"$ATOLL" stop p >/dev/null
	# And where a checkout is made anew of it.
	strategy=worktree
	started
	"$ATOLL" reset p >/dev/null
	ln -s main .git/refs/heads/link
	run "$ATOLL" exec p -- true
	[ "$status" -ne 0 ]
	says "has '.git/refs/heads/link' among its refs, which is no file"
	rm .git/refs/heads/link
	inside 'git show-ref -q --verify refs/heads/other'
}

@test "git_01 what is no file is not taken for one that was removed" {
	local bind='import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
socket.socket(socket.AF_UNIX).bind(os.path.basename(sys.argv[1]))' name how

	repository
	git branch other
	echo x >>two
	git stash -q
	git pack-refs --all
	for strategy in git worktree; do
		started
		inside 'echo x >>one; git commit -qam x'
		for name in packed-refs index logs/refs/stash; do
			inside "mv .git/$name kept"
			for how in "python3 -c '$bind' .git/$name" "mkfifo .git/$name" "ln -s $repo/kept .git/$name" "mkdir .git/$name"; do
				inside "$how"
				run "$ATOLL" diff p
				status_is 0
				says "M  $repo/.git  ('.git/$name' became something that is no file in the plan"
				[[ $output != *"D  $repo"* ]]
				refuses 4 "'.git/$name' became something that is no file" 'hint: take it back there'
				inside "rm -r .git/$name"
			done
			inside "mv kept .git/$name"
		done
		committed
		[ "$(git rev-list --count main) $(git rev-parse other) $(git stash list | wc -l)" = "2 $first 1" ]
		undone
		# What is removed is.
		inside 'git stash drop -q; git branch -qD other'
		committed
		run ! git rev-parse -q --verify other
		[ -z "$(git stash list)" ]
		undone
		[ "$(git rev-parse other) $(git stash list | wc -l)" = "$first 1" ]
		"$ATOLL" stop p >/dev/null
	done
	# In the repository itself, since it was begun.
	git pack-refs --all
	strategy=git
	started
	inside 'echo x >>one; git commit -qam x'
	mv .git/packed-refs .git/far
	ln -s far .git/packed-refs
	refuses 6 "has '.git/packed-refs' among its refs, which is no file"
	mv .git/far .git/packed-refs
	committed
	[ "$(git rev-list --count main)" = 2 ]
}

@test "git_01 a HEAD that is gone is named, and can be put back" {
	repository
	for strategy in git worktree; do
		started
		inside 'echo x >>one; git commit -qam x; mv .git/HEAD kept'
		run "$ATOLL" diff p
		status_is 0
		says "M  $repo/.git  (cannot read HEAD of '$repo': No such file or directory)"
		refuses 1 "cannot read HEAD of '$repo': No such file or directory"
		inside 'mv kept .git/HEAD'
		committed
		[ "$(git log -1 --format=%s)" = x ]
		undone
		"$ATOLL" stop p >/dev/null
	done
}

@test "the path of a workspace, and its index in two files" {
	repository
	started
	if is_root; then
		[ "$(cat "$("$ATOLL" path p)/one")" = one ]
	else
		run "$ATOLL" path p
		status_is 6
	fi
	inside 'git update-index --split-index; echo x >x; git add x; git commit -qm x; echo y >y; git add y'
	inside 'ls .git/sharedindex.* >/dev/null'
	committed
	[ "$(git log -1 --format=%s)" = x ]
	[ "$(git status --porcelain)" = 'A  y' ]
	sound
}

@test "another branch inside, and its commits outside: HEAD is a conflict" {
	repository
	started
	inside 'git checkout -q -b topic; echo x >x; git add x; git commit -qm x'
	run "$ATOLL" diff p
	says 'ref: refs/heads/main -> ref: refs/heads/topic'
	echo more >>one
	git commit -qam outside
	refuses 3 'HEAD' 'branch main, which is checked out, has other commits' 'in the plan branch topic is checked out'
	git reset -q --hard "$first"
	committed
	[ "$(cat .git/HEAD)" = 'ref: refs/heads/topic' ]
	sound
}

@test "git_07 a branch that has the plan's commits already, has some of them, or was written anew" {
	repository
	for branch in has some anew; do
		git branch "$branch"
	done
	started
	inside 'for n in has some anew; do git checkout -q $n; for i in 1 2; do echo $n$i >$n$i; git add $n$i
		git commit -qm $n$i; done; done; git checkout -q main'
	"$ATOLL" exec p -- git bundle create -q - has some >../bundle
	git fetch -q ../bundle has:from-has some:from-some
	git worktree add -q ../tree has
	(cd ../tree && git merge -q --ff-only from-has && echo on >on && git add on && git commit -qm on)
	git worktree remove ../tree
	git update-ref refs/heads/some from-some~
	git branch -q -D from-has from-some
	git update-ref refs/heads/anew "$(git commit-tree -m anew "$first^{tree}")"
	has=$(git rev-parse has)
	refuses 3 'refs/heads/anew'
	git update-ref refs/heads/anew "$first"
	committed
	[ "$(git rev-parse has)" = "$has" ]
	[ "$(git log -1 --format=%s some)" = some2 ]
	[ "$(git log -1 --format=%s anew)" = anew2 ]
	[ -z "$(git rev-list --merges --all)" ]
	sound
}

@test "git_07 a link that the one moved and the other changed is not made by us" {
	repository
	ln -s one link
	git add link
	git commit -qm link
	started
	inside 'ln -sfn two link; git commit -qam "to two"'
	git mv link moved
	git commit -qm moved
	refuses 3 'moved'
}

@test "an operation that somebody began outside is a conflict until it is ended" {
	repository
	git checkout -q -b x
	echo x >one
	git commit -qam x
	git checkout -q main
	started
	inside 'echo y >>two; git commit -qam y'
	git merge -q --no-ff --no-commit x
	run "$ATOLL" commit p
	status_is 3
	says 'a merge is under way in'
	git merge --abort
	committed
	[ "$(git log -1 --format=%s)" = y ]
	sound
}

@test "an index that is not merged keeps an undo waiting, and no longer" {
	repository
	old=$(all)
	started
	inside 'echo x >x; git add x'
	committed
	id=$(git hash-object -w one)
	index=$(sha256sum .git/index)
	cp -p .git/index ../index
	printf '100644 %s 1\tfought\n100644 %s 2\tfought\n' "$id" "$id" | git update-index --index-info
	run "$ATOLL" rollback p
	status_is 3
	says "'fought' is not merged yet in the index"
	says 'nothing was undone'
	[ "$(cat x)" = x ]
	cp -p ../index .git/index
	[ "$(sha256sum .git/index)" = "$index" ]
	undone
	[ "$(all)" = "$old" ]
}

# fake SCRIPT: a git that is the real one but for what the script does first.
fake() {
	rm -rf "$elsewhere/bin"
	mkdir "$elsewhere/bin"
	printf '#!/bin/sh\n%s\nexec %s "$@"\n' "$1" "$(command -v git)" >"$elsewhere/bin/git"
	chmod +x "$elsewhere/bin/git"
}

@test "git_01 a git that dies, cannot be run or talks nonsense changes nothing" {
	repository
	started
	inside 'echo x >>one; git commit -qam x; echo y >y; git add y'
	old=$(all)
	fails() { # words
		run env PATH="$elsewhere/bin:$PATH" "$ATOLL" commit p
		status_is "${2:-4}"
		says "$1"
		says 'nothing was changed'
		[ "$(all)" = "$old" ]
		sound
	}
	for command in ls-files for-each-ref pack-objects index-pack cat-file update-index; do
		fake "[ \$1 != $command ] || kill -KILL \$\$"
		fails "git $command was killed by signal 9"
	done
	fake '[ $1 != ls-files ] || { echo nonsense; exit 0; }'
	fails 'git ls-files said what cannot be understood'
	# A script whose interpreter is missing is found, and cannot be run.
	fake ''
	sed -i '1s,.*,#!/nonexistent,' "$elsewhere/bin/git"
	fails 'run git' 1
	# Without a git there is none, and that is said.
	rm "$elsewhere/bin/git"
	run env PATH="$elsewhere/bin" "$ATOLL" commit p
	status_is 6
	says 'there is no git on this machine'
	[ "$(all)" = "$old" ]
	committed
	[ "$(git log -1 --format=%s)" = x ]
	sound
}

@test "git_01 a staged file under a false name does not come in" {
	repository
	started
	inside 'echo staged >staged; git add staged; echo other >other; git hash-object -w other >/dev/null'
	upper=$(find "$elsewhere" -path '*/[uw]1/.git/objects' -type d 2>/dev/null || true)
	id=$("$ATOLL" exec p -- git rev-parse :staged)
	other=$("$ATOLL" exec p -- git hash-object other)
	chmod u+w "$upper/${id:0:2}/${id:2}"
	cp "$upper/${other:0:2}/${other:2}" "$upper/${id:0:2}/${id:2}"
	refuses 4 'is not what its name says'
}

# died_at POINT: a commit of all there is to the repository that was killed there.
died_at() {
	started
	inside 'echo x >>one; git commit -qam x; git branch -q new; git checkout -q -b topic'
	old=$(all)
	ATOLL_CRASHPOINT=$1 run -137 "$ATOLL" commit p
}

@test "atm_14 locks that a git of ours left empty are removed in recovery, with what they keep out" {
	repository
	died_at txn.after-decision
	for lock in HEAD.lock packed-refs.lock packed-refs.new; do
		: >".git/$lock"
	done
	"$ATOLL" recover
	[ "$(cat .git/HEAD)" = 'ref: refs/heads/topic' ]
	[ "$(git log -1 --format=%s new)" = x ]
	[ ! -e .git/packed-refs.new ]
	sound
}

@test "atm_14 a HEAD that was moved by us stays, one that somebody else moved takes all back" {
	repository
	died_at git.commit.head
	"$ATOLL" recover
	[ "$(cat .git/HEAD)" = 'ref: refs/heads/topic' ]
	sound
	"$ATOLL" rollback p
	[ "$(all)" = "$old" ]
	"$ATOLL" stop p

	started
	inside 'echo x >>one; git commit -qam x; git checkout -q -b topic'
	ATOLL_CRASHPOINT=txn.after-decision run -137 "$ATOLL" commit p
	git update-ref --no-deref HEAD "$first"
	run "$ATOLL" recover
	[ "$(cat .git/HEAD)" = "$first" ]
	[ "$(git rev-parse main)" = "$first" ]
	[ "$(cat one)" = one ]
	git symbolic-ref HEAD refs/heads/main
	rm -f .git/index.lock
	committed
	[ "$(cat .git/HEAD)" = 'ref: refs/heads/topic' ]
	sound
}

@test "a checkout takes no lock along of whoever is at work in the repository" {
	repository
	: >.git/config.lock
	"$ATOLL" start p --git . --strategy worktree
	"$ATOLL" exec p -- sh -c '[ ! -e .git/config.lock ]; git config my.key v; echo x >>one; git commit -qam x'
	[ -e .git/config.lock ]
	rm .git/config.lock
	committed
	[ "$(git log -1 --format=%s)" = x ]
	sound
}

@test "atm_14 a record of a batch that was never decided may be anything" {
	repository
	for how in 'printf "odd\0a\0b\0c\0" >>' 'printf "half" >>' ': >'; do
		died_at txn.prepared
		record=$(find "$elsewhere" -path '*/b1/git' -type f 2>/dev/null || true)
		[ -s "$record" ]
		eval "$how \"\$record\""
		"$ATOLL" recover
		[ "$(all)" = "$old" ]
		sound
		committed
		[ "$(cat .git/HEAD)" = 'ref: refs/heads/topic' ]
		undone
		[ "$(all)" = "$old" ]
		"$ATOLL" stop p
	done
}

# moved NAME: another commit for NAME in the repository, without a checkout.
moved() {
	git update-ref "$1" "$(git commit-tree -p "$first" -m "$RANDOM$RANDOM" "$first^{tree}")"
}

@test "git_07 a ref that only another process moved is no change of the plan, wherever git keeps it inside" {
	for pack in 'git pack-refs --all' 'git gc -q' 'git branch -q -D spare'; do
		repository
		git branch spare
		for ref in heads/side heads/back heads/lost heads/again tags/light remotes/o/x notes/n pull/1/head; do
			git update-ref "refs/$ref" "$first"
		done
		git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/x
		git pack-refs --all
		git update-ref refs/heads/back "$first"
		started
		# Before the plan's git writes packed-refs ...
		for ref in heads/side heads/back heads/new heads/short tags/light tags/new remotes/o/x notes/n pull/1/head; do
			moved "refs/$ref"
		done
		git update-ref -d refs/heads/again
		git pack-refs --all
		inside "git branch mine; $pack; git update-ref refs/heads/spare2 HEAD"
		# ... and after it.
		for ref in heads/side heads/new heads/again tags/light tags/new remotes/o/x notes/n pull/1/head; do
			moved "refs/$ref"
		done
		git update-ref refs/heads/back "$first"
		git update-ref -d refs/heads/short
		git update-ref -d refs/heads/lost
		git pack-refs --all
		old=$(git for-each-ref --format='%(refname) %(objectname)' | grep -v -e spare)
		run "$ATOLL" diff p --name-status
		[ -z "$(grep refs/ <<<"$output" | grep -v -e heads/spare -e heads/mine)" ]
		committed
		[ "$(git for-each-ref --format='%(refname) %(objectname)' | grep -v -e spare -e heads/mine)" = "$old" ]
		[ "$(git rev-parse mine spare2)" = "$(printf '%s\n%s' "$first" "$first")" ]
		sound
		undone
		[ "$(git for-each-ref --format='%(refname) %(objectname)' | grep -v -e spare)" = "$old" ]
		"$ATOLL" stop p >/dev/null
		cd / && rm -rf "$elsewhere"
	done
}

@test "git_07 what the plan itself moved and packed arrives, and stands against what another process made of it" {
	repository
	git branch side
	git branch gone
	started
	moved refs/heads/side
	git branch theirs
	inside 'git pack-refs --all'
	inside 'git checkout -q side; echo x >x; git add x; git commit -qm inside; git checkout -q main; git branch -D -q gone theirs
		git pack-refs --all; git gc -q'
	mine=$("$ATOLL" exec p -- git rev-parse side)
	committed
	[ "$(git rev-parse side)" = "$mine" ]
	! git rev-parse -q --verify gone
	sound
	"$ATOLL" stop p >/dev/null
	started
	inside 'git update-ref refs/heads/side main; git pack-refs --all'
	moved refs/heads/side
	run "$ATOLL" commit p
	status_is 3
	says refs/heads/side
}

@test "git_07 a ref that another process moves while the command that packed it goes on is no change of the plan" {
	for pack in 'git pack-refs --all' 'git gc -q'; do
		repository
		git branch side
		git branch back
		started
		moved refs/heads/side
		moved refs/heads/back
		mkdir "$elsewhere/signs"
		touch "$elsewhere/signs/go"
		(inside "git checkout -q -b mine; echo x >x; git add x; git commit -qm x; $pack; echo packed
			for n in \$(seq 600); do [ -n \"\$(ls $elsewhere/signs)\" ] || exit 0; sleep 0.1; done; exit 1" >"$elsewhere/said" 2>&1) &
		for n in $(seq 600); do
			! grep -q packed "$elsewhere/said" || break
			sleep 0.1
		done
		for ref in side back new; do
			moved refs/heads/$ref
		done
		git update-ref refs/heads/back "$first"
		git pack-refs --all
		rm "$elsewhere/signs/go"
		wait $!
		old=$(git for-each-ref)
		committed
		diff <(git for-each-ref | grep -v heads/mine) <(echo "$old")
		[ "$(git log -1 --format=%s)" = x ]
		sound
		# What the plan moves back in the same breath is its own.
		inside "git update-ref refs/heads/side $first; git update-ref refs/heads/new HEAD; $pack"
		committed
		[ "$(git rev-parse side new)" = "$(git rev-parse "$first" HEAD)" ]
		"$ATOLL" stop p >/dev/null
		cd / && rm -rf "$elsewhere"
	done
}

@test "git_07 what the plan moves to where a ref has been before is its own, whatever its reflogs say" {
	for how in 'git update-ref refs/heads/side OLD; git reflog delete side@{0}' \
		'sed -i "s,^NEW refs/heads/side,OLD refs/heads/side," .git/packed-refs' \
		'git branch -q -D side; rm -f .git/logs/refs/heads/side; git -c core.logAllRefUpdates=false branch side OLD'; do
		repository
		git branch side
		second=$(git commit-tree -p "$first" -m second "$first^{tree}")
		git update-ref refs/heads/side "$second"
		git pack-refs --all
		started
		how=${how//OLD/$first}
		inside "${how//NEW/$second}; git pack-refs --all"
		committed
		[ "$(git rev-parse side)" = "$first" ]
		undone
		[ "$(git rev-parse side)" = "$second" ]
		"$ATOLL" stop p >/dev/null
		cd / && rm -rf "$elsewhere"
	done
}

@test "git_07 what a plan moves as another process moved it in the same second arrives" {
	repository
	second=$(git commit-tree -p "$first" -m second "$first^{tree}")
	# Reflogs count seconds.
	export GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
	git branch side
	git update-ref refs/heads/side "$second"
	git update-ref refs/heads/side "$first"
	started
	inside "export GIT_COMMITTER_DATE='$GIT_COMMITTER_DATE'; git update-ref refs/heads/side $second; git pack-refs --all"
	committed
	[ "$(git rev-parse side)" = "$second" ]
	undone
	[ "$(git rev-parse side)" = "$first" ]
	sound
}

@test "many commits of a plan leave no more packs than git itself would, and no garbage is collected inside" {
	repository
	git config gc.auto 20
	git config gc.autoPackLimit 5
	git config gc.autoDetach false
	started
	for n in $(seq 8); do
		inside "for n in 1 2 3 4 5; do echo $n\$n >n; git add n; git commit -qm $n\$n; done"
		committed
	done
	[ -z "$(find .git/objects -name '*.pack' -o -name '*.keep')" ]
	[ "$(git rev-list --count main)" -eq 41 ]
	[ -z "$(git for-each-ref --format='%(objectname)' | git cat-file --batch-check | grep missing)" ]
	sound
	# What is typed is done, and what the caller has set stays.
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=Somebody
	[ "$("$ATOLL" exec p -- git config user.name)" = Somebody ]
	unset GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0
	[ "$("$ATOLL" exec p -- git config --show-scope gc.auto)" = "$(printf 'command\t0')" ]
	[ "$(git config gc.auto)" = 20 ]
	inside 'git gc -q; [ "$(git count-objects)" = "0 objects, 0 kilobytes" ]'
	undone
	[ "$(git rev-parse main)" = "$first" ]
	sound
	# From git's own limit on it is a pack, as with git fetch.
	git config transfer.unpackLimit 3
	git config fetch.unpackLimit 4
	inside 'echo p >n; git add n; git commit -qm p'
	committed
	[ -z "$(find .git/objects -name '*.pack')" ]
	inside 'mkdir -p a/b; echo p >a/b/c; git add a; git commit -qm p'
	committed
	[ "$(find .git/objects -name '*.pack' | wc -l)" -eq 1 ]
	sound
}

@test "an entry of the stash that only another process made and dropped stays away" {
	repository
	echo mine >>two
	git stash -q -m mine
	started
	echo theirs >>one
	git stash -q -m theirs
	inside 'git gc -q; echo in >>one; git stash -q -m inside'
	inside true
	git stash drop -q 'stash@{0}'
	committed
	[ "$(git stash list --format=%gs | paste -sd ,)" = 'On main: inside,On main: mine' ]
	sound
	undone
	[ "$(git stash list --format=%gs)" = 'On main: mine' ]
	# One that both had, and the plan dropped, goes.
	echo theirs >>one
	git stash -q -m theirs
	inside 'echo in >>one; git stash -q -m inside'
	inside 'git stash drop -q stash@{1}'
	committed
	[ "$(git stash list --format=%gs | paste -sd ,)" = 'On main: inside,On main: mine' ]
	sound
}

@test "git_07 what only another process staged is no change of the plan, whatever it stages later" {
	repository
	echo gone >gone
	git add gone
	git commit -qm gone
	started
	for n in new back changed; do
		echo "$n" >"$n"
		git add "$n"
	done
	echo staged >>one
	git add one
	git rm -q --cached gone
	inside 'echo x >x; git add x'
	echo again >>new
	echo again >>one
	echo again >>gone
	git add new one gone
	git rm -q --cached -f back
	old=$(git ls-files -s)
	committed
	[ "$(git ls-files -s | grep -v "	x$")" = "$old" ] || [ "$(git ls-files -s | grep -vP '\tx$')" = "$old" ]
	[ -n "$(git ls-files x)" ]
	sound
	undone
	[ "$(git ls-files -s)" = "$old" ]
	# What both staged differently is one still.
	inside 'echo in >>new; git add new'
	echo out >>new
	git add new
	run "$ATOLL" commit p
	status_is 3
	says "new: staged"
}
