#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A git repository as a resource: what was done with git inside arrives as if it had been done outside,
# and nothing else does.

load cli
load git

@test "commits, branches, tags, index and files go together, and back" {
	repository
	echo mine >mine
	old=$(all)
	started
	inside 'echo more >>one; git commit -qam second; git tag light; git tag -a -m heavy heavy
		git checkout -q -b topic; git rm -q two; mkdir -p new/deep; echo n >new/deep/n; git add new
		git commit -qm third; echo staged >staged; git add staged; echo loose >>dir/deep; echo un >untracked'
	[ "$(all)" = "$old" ]
	view=$("$ATOLL" exec p -- sh -c 'git for-each-ref; cat .git/HEAD; git ls-files -s; git status --porcelain')
	committed
	[ "$(git for-each-ref; cat .git/HEAD; git ls-files -s; git status --porcelain)" = "$view" ]
	[ "$(cat mine)" = mine ]
	sound
	undone
	[ "$(all)" = "$old" ]
	sound
}

@test "a plan that only reads changes nothing, down to the last time" {
	repository
	old=$(untouched .)
	started
	inside 'git status; git log; git diff; git grep one' >/dev/null
	"$ATOLL" diff p --exit-code
	committed
	[ "$(untouched .)" = "$old" ]
}

@test "a ref alone is a change" {
	repository
	started
	inside 'git tag only; git branch other'
	run "$ATOLL" diff p --name-status
	says 'refs/tags/only'
	run "$ATOLL" stop p
	status_is 1
	says 'uncommitted change'
	committed
	[ "$(git rev-parse only)" = "$first" ]
	[ "$(git rev-parse other)" = "$first" ]
	sound
}

@test "what was only staged is a change, and shown" {
	repository
	started
	inside 'git rm -q --cached one; git update-index --chmod=+x two'
	run "$ATOLL" diff p --name-status
	says '/.git/index  (staged: 0 added, 1 changed, 1 removed)'
	run "$ATOLL" diff p --patch
	says "-100644 $(git rev-parse :two) two"
	says "+100755 $(git rev-parse :two) two"
	run "$ATOLL" stop p
	status_is 1
	says 'uncommitted change'
	run "$ATOLL" commit p
	says 'committed p: 1 change in 1 resource'
	[ "$(git diff --cached --name-status)" = $'D\tone\nM\ttwo' ]
	undone
	[ -z "$(git diff --cached --name-status)" ]
	sound
}

@test "an index that is gone is one with nothing staged, and shown" {
	repository
	started
	inside 'rm .git/index'
	run "$ATOLL" diff p
	says "/.git/index  (staged: 0 added, 0 changed, $(git ls-files | wc -l) removed)"
	committed
	[ -z "$(git ls-files)" ]
	undone
	[ -z "$(git status --porcelain)" ]
}

@test "diff shows refs, and what is never installed" {
	repository
	started
	inside 'echo x >>one; git commit -qam x; echo y >>one; git commit -qam y; git config my.key v
		printf "#!/bin/sh\n" >.git/hooks/post-commit; echo "*.o" >>.git/info/exclude'
	run "$ATOLL" diff p --name-status
	says 'refs/heads/main'
	says ', 2 commits'
	says '.git/config  (stays in the plan'
	says '.git/hooks/post-commit  (stays in the plan'
	says '.git/info/exclude  (stays in the plan'
	run "$ATOLL" diff p --patch
	printf '%s\n' "$output" | grep -q '^+[0-9a-f]* x$'
	printf '%s\n' "$output" | grep -q '^+[0-9a-f]* y$'
	config=$(sha256sum .git/config .git/info/exclude)
	committed
	[ "$(sha256sum .git/config .git/info/exclude)" = "$config" ]
	[ ! -e .git/hooks/post-commit ]
}

@test "amend, rebase, reset, cherry-pick, stash and gc inside, as outside" {
	repository
	for n in 1 2 3 4; do
		echo "$n" >"file$n"
		git add .
		git commit -qm "n$n"
	done
	old=$(all)
	started
	inside 'git checkout -q -b side HEAD~2; echo s >s; git add s; git commit -qm side
		git rebase -q main; git commit -q --amend -m "side, again"; git checkout -q main
		git cherry-pick side >/dev/null; git reset -q --hard HEAD~2; git branch copy side
		git gc -q --prune=now; git repack -adq; git pack-refs --all'
	view=$("$ATOLL" exec p -- sh -c 'git for-each-ref; cat .git/HEAD; git ls-files -s; git status --porcelain; git log --format=%H%s --all')
	committed
	[ "$(git for-each-ref; cat .git/HEAD; git ls-files -s; git status --porcelain; git log --format=%H%s --all)" = "$view" ]
	sound
	undone
	[ "$(all)" = "$old" ]
}

@test "git_07 undo and redo take the stash along, and keep what was stashed outside meanwhile" {
	repository
	echo before >>one
	git stash -q
	stashed() { git stash list --format=%gs; }
	before=$(stashed)
	started
	inside 'echo a >>one; git stash -q -m inside; echo b >>two; git commit -qam second'
	committed
	[ "$(stashed)" = $'On main: inside\n'"$before" ]
	for _ in 1 2; do
		"$ATOLL" undo p
		[ "$(stashed)" = "$before" ]
		[ "$(git rev-parse HEAD)" = "$first" ]
		sound
		"$ATOLL" redo p
		[ "$(stashed)" = $'On main: inside\n'"$before" ]
		[ "$(git show 'stash@{0}:one')" = $'one\na' ]
		sound
	done
	echo theirs >>dir/deep
	git stash -q -m theirs
	"$ATOLL" undo p
	[ "$(stashed)" = $'On main: theirs\n'"$before" ]
	[ "$(git rev-parse HEAD)" = "$first" ]
	sound
	"$ATOLL" redo p
	[ "$(stashed | sort)" = "$(printf 'On main: inside\nOn main: theirs\n%s\n' "$before" | sort)" ]
	[ "$(git show "$(git stash list --format=%H --grep=theirs):dir/deep")" = $'deep\ntheirs' ]
	sound
	git stash drop -q "stash@{$(stashed | grep -n inside | cut -d : -f 1 | awk '{ print $1 - 1 }')}"
	"$ATOLL" undo p
	[ "$(stashed)" = $'On main: theirs\n'"$before" ]
	sound
	"$ATOLL" stop --force p
}

@test "git_07 undo brings dropped entries of the stash back in their order" {
	repository
	for n in 1 2 3 4; do
		echo "$n" >>one
		git stash -q -m "entry $n"
	done
	before=$(git stash list --format='%H %gs')
	for drops in 'git stash clear' 'git stash drop -q; git stash drop -q' 'git stash pop -q; git checkout -q one; git stash drop -q'; do
		"$ATOLL" start p --git .
		inside "$drops"
		"$ATOLL" commit p
		dropped=$(git stash list --format='%H %gs')
		[ "$dropped" != "$before" ]
		"$ATOLL" undo p
		[ "$(git stash list --format='%H %gs')" = "$before" ]
		"$ATOLL" redo p
		[ "$(git stash list --format='%H %gs')" = "$dropped" ]
		"$ATOLL" undo p
		[ "$(git stash list --format='%H %gs')" = "$before" ]
		"$ATOLL" rm p
	done
}

@test "every entry of the stash arrives, and goes when it was dropped" {
	repository
	echo before >>one
	git stash -q
	old=$(all)
	started
	inside 'echo a >>one; git stash -q -m "with a"; echo b >>two; echo u >u; git stash -q -u
		echo c >>two'
	view=$("$ATOLL" exec p -- git stash list --format='%H %gs')
	run "$ATOLL" diff p --name-status
	says '(On main: with a)'
	committed
	[ "$(git stash list --format='%H %gs')" = "$view" ]
	[ "$(git show 'stash@{1}:one')" = "$(printf 'one\na')" ]
	sound
	undone
	[ "$(all)" = "$old" ]
	sound
	inside 'git stash drop -q; git stash list'
	echo theirs >>one
	git stash -q -m theirs
	committed
	[ "$(git stash list --format=%gs)" = 'On main: theirs' ]
	git stash drop -q
	inside 'echo x >>one; git stash -q'
	committed
	inside 'git stash pop -q'
	committed
	[ -z "$(git stash list)" ]
	[ "$(tail -1 one)" = x ]
	sound
}

@test "two batches are undone as one" {
	repository
	old=$(all)
	started
	inside 'echo a >>one; git commit -qam a; git branch b1; echo s >s; git add s'
	committed
	inside 'echo b >>one; git commit -qam b; git branch -D -q b1; git rm -q --cached -f s; git branch b2'
	committed
	sound
	undone
	[ "$(all)" = "$old" ]
	sound
}

@test "what is only meant to be added arrives untracked, an empty file that is staged arrives staged" {
	repository
	started
	inside 'echo n >meant; : >void; : >empty; git add -N meant void; git add empty; git rm -q --cached two; git add -N two'
	committed
	[ "$(git status --porcelain)" = "A  empty
D  two
?? meant
?? two
?? void" ]
	sound
	undone
	[ -z "$(git status --porcelain)" ]
}

@test "detached HEAD, and a branch without a commit" {
	repository
	git checkout -q --detach
	started
	inside 'echo x >>one; git commit -qam x'
	old=$(all)
	committed
	[ "$(git log -1 --format=%s HEAD)" = x ]
	[ "$(git rev-parse main)" = "$first" ]
	undone
	[ "$(all)" = "$old" ]
	"$ATOLL" stop p >/dev/null
	git init -q ../unborn
	cd ../unborn
	repo=$PWD
	old=$(all)
	started
	inside 'echo x >x; git add x; git commit -qm x'
	committed
	[ "$(git log --format=%s main)" = x ]
	sound
	undone
	[ "$(all)" = "$old" ]
}

@test "a repository with SHA-256" {
	repository
	git init -q --object-format=sha256 ../long
	cd ../long
	repo=$PWD
	echo a >a
	git add a
	git commit -qm a
	old=$(all)
	started
	inside 'echo b >b; git rm -q a; git add b; git commit -qm b; git checkout -q -b x'
	committed
	[ "$(git log -1 --format=%s x)" = b ]
	sound
	undone
	[ "$(all)" = "$old" ]
}

@test "git knows the files as they are, without reading them again" {
	repository
	started
	inside 'echo x >>one; echo new >new; git rm -q two; git add -A; git commit -qm x'
	[ -z "$(git diff-files)" ]
	committed
	[ -z "$(git diff-files)" ]
	[ -z "$(git diff-index HEAD)" ]
	undone
	[ -z "$(git diff-files)" ]
	[ -z "$(git diff-index HEAD)" ]
}

@test "a branch takes the name of another's directory, and back" {
	repository
	git branch one
	git branch two/deep
	old=$(all)
	started
	inside 'git branch -m one one/deep; git branch -m two/deep two; git branch one/more'
	committed
	[ "$(git for-each-ref --format='%(refname:short)' refs/heads | tr '\n' ' ')" = 'main one/deep one/more two ' ]
	sound
	undone
	[ "$(all)" = "$old" ]
	sound
}

@test "what cannot be worked with is refused at the start" {
	repository
	refused() {
		run "$ATOLL" start q --git "$1" --strategy "$strategy"
		status_is 6
		says "$2"
		says 'hint: '
		no_plans
	}
	refused "$repo/dir" 'is not the root of a git repository'
	git clone -q --bare . ../bare.git
	refused ../bare.git 'is a bare repository'
	git worktree add -q ../linked -b linked
	refused ../linked 'is a linked worktree'
	git clone -q . ../sparse
	git -C ../sparse sparse-checkout set dir
	refused ../sparse 'has a sparse checkout'
	git clone -q . ../super
	git -C ../super -c protocol.file.allow=always submodule --quiet add "$repo" sub
	refused ../super 'has submodules'
	git clone -q . ../busy
	git -C ../busy checkout -q -b x
	echo x >../busy/one
	git -C ../busy commit -qam x
	git -C ../busy checkout -q main
	echo y >../busy/one
	git -C ../busy commit -qam y
	! git -C ../busy merge -q x
	refused ../busy 'has a merge under way'
}

@test "err_04 no repository, or none that may be worked in" {
	repository
	refused() { # exit status, path, words
		run "$ATOLL" start q --git "$2"
		status_is "$1"
		says "$3"
		says 'hint: '
		no_plans
		[ -z "$(find "$ATOLL_HOME/plans" -mindepth 1)" ]
	}
	refused 1 "$elsewhere/nowhere" "'$elsewhere/nowhere': No such file"
	refused 6 "$repo/one" 'is a file where a directory is due'
	mkdir ../plain
	refused 6 ../plain 'is not the root of a git repository'
	cp -a . ../other
	echo nonsense >../other/.git/HEAD
	refused 4 ../other 'git cannot work in'
	cp .git/HEAD ../other/.git/HEAD
	echo '[core' >../other/.git/config
	refused 4 ../other 'bad config'
	is_root && return
	cp .git/config ../other/.git/config
	chmod 0 ../other/.git
	refused 1 ../other "/.git': Permission denied"
	chmod 755 ../other/.git
	chmod 0 ../other/.git/objects
	refused 4 ../other 'git cannot work in'
	chmod 755 ../other/.git/objects
	chmod 0 ../other
	refused 1 ../other 'Permission denied'
	chmod 755 ../other
	# What may only be read is known before the decision.
	cd ../other || return 1
	started
	inside 'echo x >>one; git commit -qam x'
	chmod 555 .git/refs/heads .git
	run "$ATOLL" commit p
	[ "$status" -ne 0 ]
	says 'Permission denied'
	[ "$(git log --format=%s)" = first ]
	[ "$(cat one)" = one ]
	chmod 755 .git/refs/heads .git
	committed
	[ "$(git log -1 --format=%s)" = x ]
	repo=$PWD sound
}

@test "an operation that was not ended inside is refused, and can be ended" {
	repository
	git checkout -q -b x
	echo x >one
	git commit -qam x
	git checkout -q main
	echo y >one
	git commit -qam y
	old=$(all)
	started
	inside 'git merge -q x || true' >/dev/null
	run "$ATOLL" commit p
	status_is 4
	says 'a merge is under way in the plan'
	[ "$(all)" = "$old" ]
	inside 'echo both >one; git commit -qam merged'
	committed
	[ "$(git rev-list --count --merges main)" -eq 1 ]
	sound
}

@test "git_01 a damaged object stops the commit, and the work is there when it is mended" {
	repository
	started
	inside 'echo x >>one; git commit -qam x'
	old=$(all)
	upper=$(find "$elsewhere" -path '*/[uw]1/.git/objects' -type d 2>/dev/null || true)
	for kind in blob tree; do
		id=$("$ATOLL" exec p -- git rev-parse "$([ $kind = blob ] && echo main:one || echo 'main^{tree}')")
		file=$upper/${id:0:2}/${id:2}
		cp -pf "$file" "$elsewhere/saved"
		chmod u+w "$file"
		echo garbage >"$file"
		run "$ATOLL" commit p
		status_is 4
		says 'git '
		[ "$(all)" = "$old" ]
		sound
		cp -p "$elsewhere/saved" "$file"
	done
	committed
	[ "$(git log -1 --format=%s)" = x ]
	sound
}

@test "git_01 an object under a false name does not come in" {
	repository
	started
	inside 'echo secret >>one; git commit -qam x; echo other >other; git hash-object -w other >/dev/null'
	old=$(all)
	upper=$(find "$elsewhere" -path '*/[uw]1/.git/objects' -type d 2>/dev/null || true)
	id=$("$ATOLL" exec p -- git rev-parse main:one)
	false=$("$ATOLL" exec p -- git hash-object other)
	chmod u+w "$upper/${id:0:2}/${id:2}"
	cp "$upper/${false:0:2}/${false:2}" "$upper/${id:0:2}/${id:2}"
	run "$ATOLL" commit p
	status_is 4
	[ "$(all)" = "$old" ]
	sound
}

@test "git_02 a hook of the original never runs, and a git that hangs is ended" {
	repository
	for hook in pre-commit reference-transaction post-checkout post-index-change post-commit; do
		printf '#!/bin/sh\necho %s >>%s/ran\nsleep 1000\n' "$hook" "$elsewhere" >.git/hooks/$hook
		chmod +x .git/hooks/$hook
	done
	started
	"$ATOLL" exec p -- sh -c 'rm .git/hooks/*; echo x >>one; git commit -qam x; git checkout -q -b y'
	committed
	[ ! -e "$elsewhere/ran" ]
	sound
	rm .git/hooks/*
	inside 'echo z >>one; git commit -qam z'
	old=$(all)
	mkdir "$elsewhere/bin"
	printf '#!/bin/sh\n[ "$1" != update-ref ] || sleep 1000\nexec %s "$@"\n' "$(command -v git)" \
		>"$elsewhere/bin/git"
	chmod +x "$elsewhere/bin/git"
	begin=$SECONDS
	PATH=$elsewhere/bin:$PATH ATOLL_GIT_TIMEOUT=4 run "$ATOLL" commit p
	status_is 4
	says 'took too long'
	[ $((SECONDS - begin)) -le 100 ]
	[ "$(all)" = "$old" ]
	sound
	all_end
	committed
}

@test "git_03 undo leaves foreign commits alone" {
	repository
	started
	inside 'echo x >>one; git commit -qam x'
	committed
	ours=$(git rev-parse HEAD)
	echo theirs >theirs
	git add theirs
	git commit -qm theirs
	tip=$(git rev-parse HEAD)
	old=$(all)
	run "$ATOLL" rollback p
	status_is 3
	says "refs/heads/main: is at ${tip:0:17}, not at ${ours:0:17} any more"
	[ "$(all)" = "$old" ]
	git reset -q --soft "$ours"
	git rm -q --cached theirs
	echo dirty >>two
	undone
	[ "$(git rev-parse HEAD)" = "$first" ]
	[ "$(cat theirs)" = theirs ]
	[ "$(tail -1 two)" = dirty ]
	[ "$(git status --porcelain)" = "$(printf ' M two\n?? theirs')" ]
	sound
}

@test "git_04 undo gives back the exact tip and tree" {
	repository
	git checkout -q -b side
	echo s >s
	git add s
	git commit -qm s
	git checkout -q main
	for what in 'git merge -q --no-ff -m m side' 'git merge -q --ff-only side'; do
		old=$(all)
		started
		inside "$what"
		committed
		[ -e s ]
		undone
		[ "$(all)" = "$old" ]
		sound
		"$ATOLL" stop p >/dev/null
	done
}

@test "git_03 an undo whose commits were pruned says so, and can be done once they are back" {
	repository
	echo more >>one
	git commit -qam second
	old=$(git rev-parse HEAD)
	git clone -q . ../clone
	started
	inside 'git reset -q --hard HEAD~1; echo other >>one; git commit -qam other'
	committed
	git reflog expire --expire=now --all
	git gc -q --prune=now
	run "$ATOLL" rollback p
	status_is 4
	[[ $output == *"object ${old:0:10}, where 'refs/heads/main' was before the commit, is not in '$repo' any more"* ]]
	[[ $output == *'git fetch'* ]]
	[ "$(git log -1 --format=%s)" = other ]
	git fetch -q ../clone "$old"
	undone
	[ "$(git rev-parse HEAD)" = "$old" ]
	sound
}

@test "git_06 after stop nothing of the plan is left" {
	repository
	refs=$(git for-each-ref; git worktree list)
	started
	inside 'git branch x; echo x >>one; git commit -qam x'
	"$ATOLL" stop p --force >/dev/null
	[ "$(git for-each-ref; git worktree list)" = "$refs" ]
	sound
	no_plans
}

@test "git_07 a branch that somebody else moved, too, is merged outside any checkout" {
	repository
	seq 20 >both
	git add both
	git commit -qm both
	started
	inside 'sed -i "s/^2$/inside/" both; chmod +x both; git add both; git rm -q two; echo in >in; git add in
		git commit -qm inside; echo s >s; git add s; echo d >>dir/deep'
	ours=$("$ATOLL" exec p -- git rev-parse main)
	sed -i 's/^18$/outside/' both
	echo out >out
	echo more >>one
	git add both out one
	git commit -qm outside
	theirs=$(git rev-parse HEAD)
	echo staged >their-staged
	git add their-staged
	echo dirty >>.gitignore
	old=$(all)
	run "$ATOLL" commit p --ff-only
	status_is 3
	[ "$(all)" = "$old" ]
	run "$ATOLL" commit p --dry-run
	status_is 0
	[ "$(all)" = "$old" ]
	committed
	[ "$(git rev-parse HEAD^1 HEAD^2)" = "$(printf '%s\n%s' "$theirs" "$ours")" ]
	[ "$(git log -1 --format='%s %an')" = "Merge plan 'p' into main A Person" ]
	[ "$(git status --porcelain)" = "$(printf ' M .gitignore\n M dir/deep\nA  s\nA  their-staged')" ]
	[ "$(sed -n '2p;18p' both)" = "$(printf 'inside\noutside')" ]
	[ -x both ]
	[ "$(cat in out)" = "$(printf 'in\nout')" ]
	[ ! -e two ]
	sound
	undone
	[ "$(all)" = "$old" ]
	sound
}

@test "git_07 what somebody else commits again and again is no conflict where the plan staged nothing" {
	repository
	started
	echo again >>two
	git commit -qam outside
	inside 'echo in >in; git add in; git commit -qm inside'
	echo and again >>two
	git rm -q dir/deep
	git commit -qam outside
	inside 'echo more >>in; git commit -qm inside2 in'
	echo once more >>two
	git commit -qam outside
	committed
	[ "$(tail -n 1 two)" = 'once more' ]
	[ "$(cat in)" = "$(printf 'in\nmore')" ]
	[ -z "$(git status --porcelain)" ]
	sound
}

@test "git_07 what is not committed stands against a merge" {
	repository
	seq 20 >both
	git add both
	git commit -qm both
	started
	inside 'sed -i "s/^2$/inside/" both; git commit -qam inside'
	sed -i 's/^18$/outside/' both
	git commit -qam outside
	echo dirty >>both
	old=$(all)
	run "$ATOLL" commit p
	status_is 3
	says 'both: changed by somebody else'
	[ "$(all)" = "$old" ]
	git checkout -q both
	inside 'echo loose >>both'
	run "$ATOLL" commit p
	status_is 3
	inside 'git checkout -q both'
	committed
	[ "$(sed -n '2p;18p' both)" = "$(printf 'inside\noutside')" ]
	sound
}

@test "git_07 a branch that is not checked out is merged, contained, or moved on" {
	repository
	git branch a
	git branch b
	git branch c
	git branch d
	started
	inside 'for n in a b c; do git checkout -q $n; echo $n >in-$n; git add in-$n; git commit -qm $n; done
		git checkout -q main; git branch -D -q d'
	b=$("$ATOLL" exec p -- git rev-parse b)
	git worktree add -q ../tree a
	(cd ../tree && echo x >x && git add x && git commit -qm x)
	git worktree remove ../tree
	git fetch -q "$repo" 2>/dev/null || true
	old=$(all)
	committed
	[ "$(git rev-list --count --merges a)" -eq 1 ]
	[ "$(git rev-parse b)" = "$b" ]
	! git rev-parse -q --verify d
	[ -z "$(git status --porcelain)" ]
	sound
	undone
	[ "$(all)" = "$old" ]
}

@test "git_02 a merge driver that hangs is ended, and leaves nothing" {
	repository
	printf 'one merge=slow\n' >.gitattributes
	git add .gitattributes
	git commit -qm attributes
	git config merge.slow.driver 'sleep 1000'
	started
	inside 'sed -i "1i in" one; git commit -qam in'
	echo out >>one
	git commit -qam out
	old=$(all)
	begin=$SECONDS
	ATOLL_GIT_TIMEOUT=4 run "$ATOLL" commit p
	status_is 4
	says 'git merge-tree took too long'
	[ $((SECONDS - begin)) -le 100 ]
	[ "$(all)" = "$old" ]
	[ -z "$(find . -name '.merge_file*')" ]
	all_end
	sound
	git config merge.slow.driver 'cat %B >>%A'
	committed
	[ "$(cat one)" = "$(printf 'one\nout\nin\none')" ]
	sound
}

@test "git_07 a branch that somebody else moved, too, is never overwritten" {
	repository
	started
	inside 'echo inside >one; git commit -qam inside'
	ours=$("$ATOLL" exec p -- git rev-parse main)
	echo outside >one
	git commit -qam outside
	old=$(all)
	run "$ATOLL" commit p
	status_is 3
	says "refs/heads/main"
	says "${ours:0:10}"
	[ "$(all)" = "$old" ]
	[ "$("$ATOLL" exec p -- git rev-parse main)" = "$ours" ]
	sound
}

@test "git_07 what somebody else checked out or staged meanwhile is a conflict only where both did" {
	repository
	started
	inside 'echo x >x; git add x; echo more >>two; git branch from-plan'
	echo y >y
	git add y
	git branch from-outside
	echo dirty >>one
	committed
	[ "$(git status --porcelain)" = "$(printf ' M one\n M two\nA  x\nA  y')" ]
	[ "$(git rev-parse from-plan from-outside)" = "$(printf '%s\n%s' "$first" "$first")" ]
	sound
	inside 'echo z >z; git add z'
	git checkout -q -f -b elsewhere "$first"
	run "$ATOLL" commit p
	status_is 3
	says 'another branch or commit was checked out'
}

@test "a branch that another worktree has checked out is a conflict" {
	repository
	git worktree add -q ../linked -b linked
	started
	inside 'git update-ref refs/heads/linked "$(git commit-tree -p linked -m x "linked^{tree}")"'
	run "$ATOLL" commit p
	status_is 3
	says "checked out in the worktree 'linked'"
	sound
}

@test "a command of git that is at work outside is waited for, then named" {
	repository
	started
	inside 'echo x >>one; git commit -qam x'
	: >.git/index.lock
	run "$ATOLL" commit p
	status_is 5
	says 'a command of git is at work'
	[ -e .git/index.lock ]
	(sleep 1; rm .git/index.lock) &
	committed
	wait
	sound
}

@test "a recovery that finds the branch moved takes everything back" {
	repository
	mkdir ../dir
	echo old >../dir/file
	started --dir ../dir
	"$ATOLL" exec p -- sh -c 'echo x >>one; git commit -qam x; echo new >../dir/file'
	ATOLL_CRASHPOINT=txn.after-decision run "$ATOLL" commit p
	status_is 137
	rm .git/index.lock
	git commit -q --allow-empty -m foreign
	old=$(all)
	run "$ATOLL" recover
	[ "$(all)" = "$old" ]
	[ "$(cat ../dir/file)" = old ]
	sound
	committed
	[ "$(git rev-list --count --merges main)" -eq 1 ]
	[ "$(cat ../dir/file)" = new ]
	sound
}

@test "git_03 nobody commits on what may still go back, and what he commits then stays" {
	repository
	started
	inside 'echo inside >>one; git commit -qam inside'
	ATOLL_CRASHPOINT=txn.after-apply run -137 "$ATOLL" commit p
	echo mine >>two
	run git commit -qam mine
	[ "$status" -ne 0 ]
	"$ATOLL" recover
	git commit -qam mine
	"$ATOLL" stop p

	started
	inside 'echo more >>one; git commit -qam more'
	ATOLL_CRASHPOINT=txn.unlocked run -137 "$ATOLL" commit p
	echo again >>two
	git commit -qam again
	git commit -q --amend -m amended
	"$ATOLL" recover
	[ "$(git log --format=%s | paste -sd ' ')" = 'amended more mine inside first' ]
	[ "$(cat one)" = "$(printf 'one\ninside\nmore')" ]
	[ -z "$(git status --porcelain)" ]
	sound
	# Whoever commits while an undo is not recorded yet is spared likewise.
	"$ATOLL" stop p
	started
	inside 'echo undo >>one; git commit -qam undo'
	committed
	ATOLL_CRASHPOINT=txn.unlocked run -137 "$ATOLL" rollback p
	echo last >>two
	git commit -qam last
	"$ATOLL" recover
	[ "$(git log --format=%s | paste -sd ' ')" = 'last amended more mine inside first' ]
	[ -z "$(git status --porcelain)" ]
	sound
}

@test "a repository that was removed refuses the commit and leaves the plan usable" {
	repository
	started
	inside 'echo x >>one; git commit -qam x'
	mv .git ../taken
	run "$ATOLL" commit p
	[ "$status" -ne 0 ]
	[ "$status" -ne 7 ]
	mv ../taken .git
	committed
	[ "$(git log -1 --format=%s)" = x ]
	sound
}

@test "what root commits belongs to whom the repository belongs to" {
	is_root || skip 'needs root'
	repository
	chown -R 65534:65534 "$elsewhere"
	# Whose repository it is, git asks, and so do we.
	run atoll start other --git "$repo" --strategy git
	status_is 6
	says 'belongs to somebody else'
	says 'safe.directory'
	git config --global --add safe.directory "$repo"
	git config --global --add safe.directory '*'
	started
	inside 'echo x >>one; git commit -qam x; git checkout -q -b deep/er/branch; git stash list; echo s >s; git add s; git stash -q'
	committed
	find .git ! -uid 65534 >&2
	[ -z "$(find .git ! -uid 65534)" ]
	sound
}

@test "hostile things in the workspace's .git go nowhere" {
	repository
	echo 'not yours' >"$elsewhere/secret"
	started
	inside "echo x >>one; git commit -qam x
		ln -s $elsewhere/secret .git/refs/heads/link; mkfifo .git/refs/heads/fifo; mkfifo .git/objects/pack/pack-00.pack
		echo 'ref: ../../secret' >.git/refs/heads/odd; mkdir -p .git/refs/heads/deep/er
		echo $elsewhere >.git/objects/info/alternates; echo garbage >.git/packed-refs.bak
		git config core.fsmonitor 'touch $elsewhere/ran'; git config core.pager 'touch $elsewhere/ran'"
	"$ATOLL" diff p >/dev/null
	run timeout 120 "$ATOLL" commit p
	[ ! -e "$elsewhere/ran" ]
	[ ! -e .git/refs/heads/link ]
	[ ! -e .git/objects/info/alternates ]
	sound
}

@test "a database that git tracks is not committed as the link that stands for it" {
	repository
	sqlite3 app.db 'create table t(v); insert into t values (1)'
	git add app.db
	git commit -qm db
	started --sqlite app.db
	inside "sqlite3 app.db 'update t set v = 2'; echo x >>one; git add -A; git commit -qm link"
	run "$ATOLL" commit p
	status_is 4
	says "'app.db' is a database of the plan"
	says 'hint: in the plan'
	[ "$(git log -1 --format=%s) $(cat one) $(sqlite3 app.db 'select v from t')" = 'db one 1' ]
	[ -z "$(git status --porcelain)" ]
	sound
	inside 'git reset -q HEAD~ -- app.db; git commit -q --amend -m right'
	committed
	[ "$(git ls-tree --format='%(objectmode)' HEAD app.db)" = 100644 ]
	[ "$(sqlite3 app.db 'select v from t')" = 2 ]
	[ "$(git log -1 --format=%s)" = right ]
	sound
}

@test "a signature is not asked about, whatever git is set to show" {
	repository
	cat >"$elsewhere/gpg" <<-EOF
		#!/bin/sh
		case "\$*" in *--verify*) touch $elsewhere/ran; echo 'gpg: Signature made' >&2; exit 0 ;; esac
		cat >/dev/null
		printf '\n[GNUPG:] SIG_CREATED \n' >&2
		printf -- '-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----\n'
	EOF
	chmod +x "$elsewhere/gpg"
	git config --global gpg.program "$elsewhere/gpg"
	git config --global log.showSignature true
	started
	inside 'echo x >x; git add x; git commit -q -S -m x'
	echo y >y
	git add y
	git commit -qm y
	committed
	[ "$(git log -1 --no-show-signature --format='%s %an <%ae>')" = \
		"Merge plan 'p' into main A Person <person@example.org>" ]
	[ ! -e "$elsewhere/ran" ]
	sound
}

@test "an index of any size does not fill the memory" {
	no_sanitizer
	repository
	started
	inside 'truncate -s 40G .git/index'
	old=$(all)
	run bash -c "ulimit -v 4000000; exec '$ATOLL' commit p"
	[ "$status" -ne 0 ]
	says 'index in the workspace'
	[ "$(all)" = "$old" ]
	sound
	inside 'rm .git/index; git reset -q; echo x >>one; git commit -qam x'
	committed
	sound
}

# made_inside: repositories as a command would make them below a directory, all of them harmless.
made_inside() {
	git init -q "$elsewhere/source"
	git -C "$elsewhere/source" commit -q --allow-empty -m first
	mkdir "$elsewhere/dir"
	cd "$elsewhere/dir" || return 1
	"$ATOLL" start p --dir . --strategy "$1" >/dev/null
	inside "cd $elsewhere/dir; git init -q new; git clone -q $elsewhere/source clone; git init -q --bare bare
		git clone -q --mirror $elsewhere/source mirror.git; git -C clone checkout -q -b topic
		git -C clone config user.name X; git -C clone remote add other $elsewhere/source
		git -C clone worktree add -q ../linked; git -C clone commit -q --allow-empty -m more
		git -C clone -c protocol.file.allow=always submodule --quiet add $elsewhere/source sub; git -C clone commit -qm sub"
}

@test "repositories made below a directory arrive without a question" {
	for strategy in overlay copy; do
		repository
		made_inside $strategy
		run "$ATOLL" diff p
		[[ $output != *'would run a program'* ]]
		"$ATOLL" commit p >/dev/null
		[ "$(git -C linked log --format=%s)" = first ]
		[ "$(git -C clone/sub log --format=%s)" = first ]
		"$ATOLL" stop p --force --yes >/dev/null
		cd / && rm -rf "$elsewhere"
	done
}

@test "settings and hooks by which git would run a program do not arrive unless allowed" {
	for strategy in overlay copy; do
		repository
		made_inside $strategy
		"$ATOLL" commit p >/dev/null
		old=$(untouched .)
		mark=$elsewhere/mark
		inside "cd $elsewhere/dir; git -C new config core.fsmonitor 'touch $mark; false'; printf '#!/bin/sh\ntouch $mark\n' >clone/.git/hooks/pre-commit
			chmod +x clone/.git/hooks/pre-commit; git -C bare config core.pager x; git -C clone config user.name Y
			mkdir hidden; git init -q hidden/x; mv hidden/x/.git hidden/g; echo 'gitdir: ../g' >hidden/x/.git"
		"$ATOLL" diff p >out
		for path in new/.git/config clone/.git/hooks/pre-commit bare/config hidden/x/.git; do
			grep -q "$PWD/$path  (git would run a program: not committed without --allow git-programs" out
		done
		[ "$(grep -c 'would run a program' out)" -eq 4 ]
		"$ATOLL" diff p --json | jq -e '[.changes[] | select(.what | index("git-program"))] | length == 4'
		rm out
		touch -r new .
		run "$ATOLL" commit p
		status_is 4
		[[ $output == *"--allow git-programs"* ]]
		[[ $output == *"$PWD/clone/.git/hooks/pre-commit"* ]]
		[ "$(untouched new clone bare)" = "$(grep -E '^\./(new|clone|bare)' <<<"$old" | sed 's,^\./,,')" ]
		git -C new status >/dev/null
		[ ! -e "$mark" ]
		# The rest can be had without them.
		"$ATOLL" commit p --exclude config --exclude pre-commit --exclude hidden >/dev/null
		"$ATOLL" commit p --allow git-programs >/dev/null
		git -C new status >/dev/null
		[ -e "$mark" ]
		"$ATOLL" stop p --force --yes >/dev/null
		cd / && rm -rf "$elsewhere"
	done
}

@test "a repository's settings that were there stay no obstacle, and its own never arrive" {
	repository
	git config alias.x '!true'
	git config core.hooksPath nowhere
	"$ATOLL" start p --dir . >/dev/null
	inside 'git config user.name Z; git checkout -q -b topic'
	run "$ATOLL" commit p
	status_is 0
	[ "$(git config user.name)" = Z ]
	"$ATOLL" stop p >/dev/null
	started
	inside 'git config alias.y !true; git init -q below; git -C below config alias.z !true'
	run "$ATOLL" diff p
	[ "$(grep -c 'would run a program' <<<"$output")" -eq 1 ]
	run "$ATOLL" commit p
	status_is 4
	[[ $output == *"'below/.git/config' is a hook or setting"* ]]
	"$ATOLL" commit p --allow git-programs >/dev/null
	[ -z "$(git config alias.y)" ]
}

@test "an index made by hand cannot reach into .git" {
	repository
	started
	inside 'id=$(echo "#!/bin/sh" | git hash-object -w --stdin)
		printf "100755 %s 0\t.gix/hooks/post-checkout\n" "$id" | git update-index --index-info
		/usr/bin/python3 -c "
import hashlib
data = open(\".git/index\", \"rb\").read()[:-20].replace(b\".gix/\", b\".git/\")
open(\".git/index\", \"wb\").write(data + hashlib.sha1(data).digest())"'
	old=$(all)
	run "$ATOLL" commit p
	status_is 4
	says "'.git/hooks/post-checkout' in the plan's index"
	[ "$(all)" = "$old" ]
	sound
}
