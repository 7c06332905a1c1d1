# SPDX-License-Identifier: Apache-2.0
# What the tests of repositories share, beside cli.bash.

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
	echo two >two
	echo deep >dir/deep
	printf '*.ignored\n' >.gitignore
	git add .
	git commit -qm first
	first=$(git rev-parse HEAD)
	repo=$PWD
}

# all: everything about a repository that a person could notice.
all() {
	(cd "$repo" && git for-each-ref && cat .git/HEAD && git ls-files -s && git status --porcelain=v2 &&
		git stash list --format=%H && find . -path ./.git -prune -o -printf '%p %y %m %s %T@ %l\n' | sort)
	(cd "$repo" && find . -path ./.git -prune -o -type f -exec sha256sum {} + | sort)
}

# sound: git finds nothing wrong, and nothing of ours is left in the repository.
sound() {
	[ -z "$(git -C "$repo" fsck --no-dangling 2>&1)" ]
	[ -z "$(find "$repo/.git" -name '*.lock' -o -name '*.keep' -o -name '*atoll*')" ]
	[ ! -e "$repo/.git/MERGE_HEAD" ]
}

# All of it holds for both strategies; ATOLL_TEST_STRATEGY says which, `git` unless it is set.
strategy=${ATOLL_TEST_STRATEGY:-git}

begun() {
	"$ATOLL" start "$@" --strategy "$strategy" >/dev/null
}

started() {
	begun p --git . "$@"
}

inside() {
	"$ATOLL" exec p -- sh -c "set -e; $1"
}

committed() {
	"$ATOLL" commit p >/dev/null
}

undone() {
	"$ATOLL" rollback p >/dev/null
}
