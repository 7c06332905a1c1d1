# SPDX-License-Identifier: Apache-2.0
# Where a plan keeps its data when the resource is on another mount than the store: git, run outside the plan,
# neither adds nor removes it.

load cli
load git

# on_own_mount DIR SCRIPT: SCRIPT runs in DIR, which is the root of a mount of its own. An ordinary user makes
# the mount as root of a user namespace and is that user again for SCRIPT.
on_own_mount() {
	cat >"$work/script" <<<"$2"
	if is_root; then
		unshare --mount bash -ec 'mount --bind "$0" "$0"; cd "$0"; exec bash -eu "$1"' "$1" "$work/script"
	else
		unshare --user --map-root-user --mount bash -ec '
			mount --bind "$0" "$0"
			cd "$0"
			exec unshare --user --map-user="$2" --map-group="$2" bash -eu "$1"
		' "$1" "$work/script" "$(id -u)"
	fi
}

# There are areas, all below .git, and nothing of them is in the working tree.
in_git_dir='
area=.git/.atoll-$(id -u)
[ -n "$(ls "$area")" ]
[ -z "$(find . -path ./.git -prune -o -name ".atoll-*" -print)" ]
'

@test "area_in_the_git_directory: git add and git clean outside do no harm" {
	repository
	for how in --git '--strategy overlay --dir' '--strategy copy --dir' '--strategy worktree --git'; do
		on_own_mount "$repo" '
			"$ATOLL" start p '"$how"' .
			'"$in_git_dir"'
			"$ATOLL" exec p -- sh -c "echo changed >one; echo made >new"
			# Outside, by the user who does not think of the plan.
			git add -A
			[ -z "$(git status --porcelain)" ]
			git clean -fdxq
			git fsck --no-dangling
			"$ATOLL" commit p
			[ "$(cat one)$(cat new)" = changedmade ]
			git add -A
			[ "$(git status --porcelain)" = "A  new
M  one" ]
			git reset -q
			git clean -fdxq -e new
			"$ATOLL" rollback p
			[ -z "$(git status --porcelain)" ]
			"$ATOLL" stop p
			[ ! -e "$area" ]
		'
		[ "$(git rev-parse HEAD)" = "$first" ]
		sound
	done
}

@test "area_in_the_git_directory_is_hidden: neither seen nor changed by commands of the plan" {
	repository
	for how in --git '--strategy overlay --dir' '--strategy copy --dir' '--strategy worktree --git'; do
		on_own_mount "$repo" '
			"$ATOLL" start p '"$how"' .
			'"$in_git_dir"'
			[ -z "$("$ATOLL" exec p -- sh -c "ls -A $area 2>/dev/null; true")" ]
			[ -z "$("$ATOLL" exec p -- find . -path "./.git/.atoll-*/*")" ]
			[ -z "$("$ATOLL" diff p)" ]
			[ -z "$("$ATOLL" exec p -- sh -c "git add -A; git clean -fdxq; git status --porcelain")" ]
			"$ATOLL" exec p -- sh -c "touch $area/mine 2>/dev/null || true; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m inside"
			[ -n "$(ls "$area")" ]
			[ ! -e "$area/mine" ]
			! "$ATOLL" diff p | grep -F .atoll-
			"$ATOLL" stop --force p
		'
		[ ! -e .git/.atoll-* ]
		sound
	done
}

@test "area_of_a_part_of_a_repository: it lies in the git directory, too" {
	repository
	on_own_mount "$repo" '
		"$ATOLL" start p --strategy copy --dir dir
		'"$in_git_dir"'
		"$ATOLL" exec p -- sh -c "echo changed >dir/deep"
		git add -A
		git clean -fdxq
		[ -z "$(git status --porcelain)" ]
		"$ATOLL" commit p
		[ "$(cat dir/deep)" = changed ]
		"$ATOLL" stop p
		[ ! -e "$area" ]
	'
}

@test "area_in_a_plain_directory: a git that comes later ignores it" {
	repository
	mkdir "$work/plain"
	on_own_mount "$work/plain" '
		mkdir sub
		echo one >sub/one
		"$ATOLL" start p --strategy copy --dir .
		"$ATOLL" exec p -- sh -c "echo two >sub/one"
		area=.atoll-$(id -u)
		[ "$(cat "$area"/*/.gitignore)" = "*" ]
		git init -q
		git add -A
		[ "$(git ls-files)" = sub/one ]
		git clean -fdq
		[ -n "$(ls "$area")" ]
		rm -rf .git
		"$ATOLL" commit p
		[ "$(cat sub/one)" = two ]
		"$ATOLL" rollback p
		[ "$(cat sub/one)" = one ]
		"$ATOLL" stop p
		[ "$(ls -A)" = sub ]
	'
}

@test "area_made_before_the_git_directory: the plan keeps its place, the next one lies in .git" {
	repository
	mkdir "$work/plain"
	on_own_mount "$work/plain" '
		echo one >one
		"$ATOLL" start old --strategy copy --dir .
		git init -q
		"$ATOLL" start new --strategy copy --dir .
		[ -n "$(ls ".atoll-$(id -u)")" ]
		[ -n "$(ls ".git/.atoll-$(id -u)")" ]
		"$ATOLL" exec old -- sh -c "echo two >one"
		[ "$("$ATOLL" diff old)" = "M  $PWD/one" ]
		[ -z "$("$ATOLL" diff new)" ]
		"$ATOLL" commit old
		[ "$(cat one)" = two ]
		"$ATOLL" stop old
		"$ATOLL" stop new
		[ "$(find . -name ".atoll-*")" = "" ]
	'
}
