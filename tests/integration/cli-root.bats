#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where run and start begin when no resource is named: the root of the project, by git and by what package
# managers call a workspace.

load cli
load git

# root_is DIR KIND [BELOW]: of a plan that run makes here; and what it says of it.
root_is() {
	run --separate-stderr "$ATOLL" run "${options[@]}" --keep -- sh -c 'pwd; echo x >made'
	status_is 0
	[ "${lines[0]}" = "$(pwd -P)" ] || { echo "$PWD: $output"; echo "$stderr"; false; }
	plan=$("$ATOLL" list --json | jq -r '.plans[-1].name')
	"$ATOLL" show "$plan" --json >"$BATS_TEST_TMPDIR/shown"
	[ "$(jq -r '.sandboxes[0].root' "$BATS_TEST_TMPDIR/shown")" = "$1" ] || {
		jq -r '.sandboxes[].root' "$BATS_TEST_TMPDIR/shown"
		false
	}
	if [ -n "${3:-}" ]; then
		[ "${stderr%%$'\n'*}" = "project ${1/#"$HOME"/\~} ($2), in $3" ] || { echo "$stderr"; false; }
	else
		[[ $stderr != *project* ]]
	fi
	"$ATOLL" stop --force --yes "$plan" 2>/dev/null
	[ ! -e made ]
}

@test "run in a repository works on its working tree, from wherever below" {
	repository
	options=()
	mkdir -p dir/a empty/.git "$elsewhere/links"
	printf '{"workspaces": ["a"]}' >dir/package.json
	ln -s "$repo/dir" "$elsewhere/links/there"
	root_is "$repo" git
	# A workspace inside is a part of it; a directory of that name is no repository yet.
	while read -r below; do
		cd "$repo/$below"
		root_is "$repo" git "$below"
	done <<-'E'
		dir
		dir/a
		empty
		.git/info
	E
	cd "$elsewhere/links/there"
	root_is "$repo" git dir
	# The nearest one counts.
	git init -q "$repo/dir/inner"
	mkdir "$repo/dir/inner/below"
	cd "$repo/dir/inner/below"
	root_is "$repo/dir/inner" git below
}

@test "a git commit in a subdirectory of a plan of run arrives" {
	repository
	cd dir
	run --separate-stderr "$ATOLL" run --commit -- sh -ec 'git status --porcelain; echo x >>deep; git commit -qam inside'
	status_is 0
	[ "$(git log -1 --format=%s)" = inside ]
	[ "$(git status --porcelain)" = '' ]
	[ "$(cat deep)" = $'deep\nx' ]
	[[ $stderr == 'project ~/work/repo (git), in dir'* ]]
	run --separate-stderr "$ATOLL" start p
	status_is 0
	[[ $stderr == 'project ~/work/repo (git), in dir'* ]]
	[ "$("$ATOLL" show p --json | jq -r '.sandboxes[] | .root, .strategy')" = "$repo"$'\ngit' ]
	run --separate-stderr "$ATOLL" start q --json
	[ -z "$stderr" ]
	sound
}

@test "run outside of repositories works on the nearest workspace" {
	outside_tmp
	export HOME=$elsewhere
	options=()
	mkdir -p outer/mono/packages/api
	cd outer/mono/packages/api
	root_is "$PWD" none
	# file, what is in it, kind or - for none
	while IFS='|' read -r file text kind; do
		printf '%b' "$text" >../../"$file"
		if [ "$kind" = - ]; then
			root_is "$PWD" none
		else
			root_is "$work/outer/mono" "$kind" packages/api
			cd ../..
			root_is "$PWD" "$kind"
			cd packages/api
		fi
		rm ../../"$file"
	done <<-'E'
		pnpm-workspace.yaml|packages: [packages/*]|pnpm workspace
		pnpm-workspace.yaml||pnpm workspace
		go.work|go 1.21\nuse ./packages/api\n|go workspace
		package.json|{"name": "m", "workspaces": ["packages/*"]}|npm workspace
		package.json|\xef\xbb\xbf{"workspaces": {"packages": ["packages/*"]}}|npm workspace
		package.json|{"name": "m", "config": {"workspaces": ["packages/*"]}}|-
		package.json|{"name": "workspaces", "workspaces": null}|-
		package.json|{"workspaces": ["packages/*"]|-
		package.json||-
		Cargo.toml|# members\n [workspace] # of all\nmembers = ["packages/api"]\n|cargo workspace
		Cargo.toml|[package]\nname = "x"\n[workspace.dependencies]\n|cargo workspace
		Cargo.toml|[package]\nname = "x"\nworkspace = "../.."\n# [workspace]\n[workspaces]\n|-
		go.mod|module x\n|-
	E
	# A directory of that name, and a FIFO, are none; nothing waits for them.
	mkdir ../../go.work
	mkfifo ../../package.json
	root_is "$PWD" none
	# The nearest one, of whatever kind.
	touch ../../pnpm-workspace.yaml ../../../go.work
	root_is "$work/outer/mono" 'pnpm workspace' packages/api
	rm ../../pnpm-workspace.yaml
	root_is "$work/outer" 'go workspace' mono/packages/api
	# But a repository, wherever it is.
	git init -q "$work"
	root_is "$work" git outer/mono/packages/api
}

@test "npm install in a member of a workspace keeps the lock file of the root" {
	command -v npm >/dev/null || skip 'no npm'
	outside_tmp
	export HOME=$elsewhere
	mkdir -p mono/packages/api mono/packages/lib left
	echo '{"name": "mono", "private": true, "workspaces": ["packages/*"]}' >mono/package.json
	for name in api lib; do
		echo "{\"name\": \"$name\", \"version\": \"1.0.0\"}" >"mono/packages/$name/package.json"
	done
	echo '{"name": "left", "version": "1.2.3"}' >left/package.json
	(cd left && npm pack --silent --offline >/dev/null)
	cd mono/packages/api
	run "$ATOLL" run --commit -- npm install --offline --no-audit --no-fund --loglevel=error "$work/left/left-1.2.3.tgz"
	status_is 0
	says 'project ~/work/mono (npm workspace), in packages/api'
	[ "$(jq -r '.dependencies.left' package.json)" != null ]
	[ "$(jq -r '.packages["node_modules/left"].version' ../../package-lock.json)" = 1.2.3 ]
	[ "$(jq -r .version ../../node_modules/left/package.json)" = 1.2.3 ]
	[ ! -e package-lock.json ]
}

@test "the search for a project never takes the home, or what is above it" {
	outside_tmp
	export HOME=$work/users/me
	options=()
	mkdir -p users/me/notes users/other
	git init -q users/me
	touch users/me/go.work
	cd users/me/notes
	root_is "$PWD" none
	rm ../go.work
	git init -q "$work/users"
	touch "$work/go.work"
	root_is "$PWD" none
	cd "$work/users/other"
	root_is "$PWD" none
	# The home by another name is that home.
	ln -s "$work/users/me" "$work/name"
	export HOME=$work/name
	cd "$work/users/me/notes"
	root_is "$PWD" none
	# Who stands in it means it.
	cd ..
	root_is "$work/users/me" none
	# It is the home that stops, not what a project is called.
	export HOME=$work/users/other
	cd notes
	rm -r "$work/users/.git"
	run "$ATOLL" run --keep -- true
	says "project $work/users/me (git), in notes"
}

@test "the search for a project stays on its filesystem" {
	is_root || skip 'only root can mount'
	repository
	options=()
	mkdir -p dir/mounted
	mount -t tmpfs none dir/mounted
	mounted=$PWD/dir/mounted
	mkdir dir/mounted/below
	cd dir/mounted/below
	[ "$(git rev-parse --show-toplevel 2>/dev/null)" = '' ]
	root_is "$PWD" none
	cd "$work"
	unmount "$mounted"
	mounted=
}

@test "--here, run.root and options that name a directory say where run begins" {
	repository
	mkdir -p "$work/mono/a"
	touch "$work/mono/go.work"
	# setting, options; then the root and its kind in the repository, and in the workspace
	while IFS='|' read -r setting given in_git in_workspace; do
		"$ATOLL" config set run.root "$setting" 2>/dev/null
		read -ra options <<<"$given"
		cd "$repo/dir"
		case $in_git in
		root) root_is "$repo" git dir ;;
		here) root_is "$repo/dir" none ;;
		esac
		cd "$work/mono/a"
		case $in_workspace in
		root) root_is "$work/mono" 'go workspace' a ;;
		here) root_is "$PWD" none ;;
		esac
	done <<-'E'
		auto||root|root
		git||root|here
		here||here|here
		auto|--here|here|here
		here|--dir .|here|here
		auto|--dir .|here|here
	E
	run -2 "$ATOLL" config set run.root above
	says "'above' is not auto, git or here"
	"$ATOLL" config set run.root here 2>/dev/null
	cd "$repo"
	run "$ATOLL" run --keep --json -- true
	run "$ATOLL" start p
	[ "$("$ATOLL" show p --json | jq -r '.sandboxes[].strategy')" = git ]
	cd dir
	for option in --dir --git --none; do
		run -125 "$ATOLL" run --here "$option" . -- true
		says '--here is for when no other directory is named'
	done
}

@test "a database of run comes beside the project, a directory takes its place" {
	repository
	sqlite3 dir/dev.db 'CREATE TABLE t (x)'
	sqlite3 "$work/other.db" 'CREATE TABLE t (x)'
	cd dir
	# options, then the roots
	while IFS='|' read -r given roots; do
		read -ra options <<<"$given"
		run "$ATOLL" run "${options[@]}" --keep -- sh -c 'echo x >"$ATOLL_RESOURCE_1/made"; echo x >"$ATOLL_RESOURCE_1/../made"'
		plan=$("$ATOLL" list --json | jq -r '.plans[-1].name')
		[ "$("$ATOLL" show "$plan" --json | jq -r '[.sandboxes[].root] | join(" ")')" = "${roots//@/$work}" ] || {
			"$ATOLL" show "$plan" --json | jq -r '[.sandboxes[].root] | join(" ")'
			false
		}
		"$ATOLL" stop --force --yes "$plan" 2>/dev/null
	done <<-'E'
		|@/repo
		--sqlite dev.db|@/repo @/repo/dir/dev.db
		--sqlite dev.db --sqlite ../../other.db|@/repo @/repo/dir/dev.db @/other.db
		--here --sqlite dev.db|@/repo/dir @/repo/dir/dev.db
		--sqlite dev.db --dir .|@/repo/dir @/repo/dir/dev.db
		--git ..|@/repo
	E
	run "$ATOLL" run --commit --sqlite dev.db -- sh -ec 'sqlite3 dev.db "INSERT INTO t VALUES (7)"; echo x >>deep; git commit -qam both'
	status_is 0
	[ "$(sqlite3 dev.db 'SELECT x FROM t')" = 7 ]
	[ "$(git log -1 --format=%s)" = both ]
	# start takes the resources it is given.
	"$ATOLL" start p --sqlite dev.db
	[ "$("$ATOLL" show p --json | jq -r '.sandboxes[].root')" = "$PWD/dev.db" ]
}

# refuses_all WORDS...: run and start refuse it here, with these words, and nothing ran.
refuses_all() {
	local before row words
	before=$(find . -path ./.git -prune -o -printf '%p %y %m %s %T@ %i\n' | sort)
	for row in 125:run 125:run,--strategy,copy 125:run,--commit 6:start 6:start,--strategy,copy 6:start,p; do
		IFS=, read -ra words <<<"${row#*:}"
		[ "${words[0]}" != run ] || words+=(-- sh -c 'echo it ran; echo x >>file')
		run "-${row%%:*}" "$ATOLL" "${words[@]}"
		[[ $output != *'it ran'* ]]
		for text; do
			says "$text"
		done
		no_plans
	done
	[ "$(find . -path ./.git -prune -o -printf '%p %y %m %s %T@ %i\n' | sort)" = "$before" ]
}

@test "a repository that is elsewhere, or has others in it, is refused by name before anything runs" {
	repository
	allow=(-c protocol.file.allow=always)
	git worktree add -q ../linked
	git clone -q . ../super
	git -C ../super "${allow[@]}" submodule --quiet add "$repo" sub
	git -C ../super commit -qm sub
	git clone -q --separate-git-dir="$work/apart.git" . ../separate
	mkdir ../link
	ln -s ../repo/.git ../link/.git
	cd ../linked
	refuses_all "'$work/linked' is a linked worktree: its repository is in '$repo'" \
		"hint: work in the main working tree, '$repo'; or on the files alone with --dir $work/linked, where what git commits"
	cd dir
	refuses_all "'$work/linked' is a linked worktree"
	cd ../../super
	refuses_all "'$work/super' has submodules with repositories of their own" \
		"hint: work on it as a directory with --dir $work/super: then .git arrives as files"
	cd sub
	refuses_all "'$work/super/sub' is a submodule: its repository is in '$work/super'" \
		"hint: work on all of it as a directory with --dir $work/super; or on the files alone with --dir $work/super/sub,"
	cd ../../separate
	refuses_all "'$work/separate' has its repository elsewhere, in '$work/apart.git'"
	cd ../link
	refuses_all "'$work/link' has its repository elsewhere, in '$repo/.git'"
	# A repository that others are linked to is whole, and so is a clone whose submodules were not fetched.
	cd "$repo"
	"$ATOLL" start main
	git clone -q ../super ../not-fetched
	cd ../not-fetched
	"$ATOLL" start not-fetched
}

# refused_for_submodules, taken: of the repository at hand, the resource is; in the end there is no plan.
refused_for_submodules() {
	run -6 "$ATOLL" start p
	says "'$PWD' has submodules with repositories of their own"
}

taken() {
	run -0 "$ATOLL" start p
	"$ATOLL" rm p --force >/dev/null 2>&1
}

@test "a repository with submodules is refused as long as a directory of it leads to another repository" {
	repository
	local add=(-c protocol.file.allow=always submodule --quiet add --force "$repo" lib/sub) how
	git clone -q . ../super
	cd ../super
	for how in 'update-index --index-version 4' 'update-index --index-version 2' 'update-index --split-index' \
		'update-index --no-split-index'; do
		git $how
		git "${add[@]}"
		echo x >"$RANDOM"
		git add .
		git commit -qm sub
		refused_for_submodules
		# It is gone from the index, and what git commits in it would still go to .git/modules.
		git rm -q --cached lib/sub
		refused_for_submodules
		git reset -q --hard
		git submodule --quiet deinit lib/sub
		taken
		git rm -q lib/sub
		taken
		git commit -qm removed
		taken
		[ -d .git/modules/lib/sub ]
	done
	# One that was added as it is, with its repository in it.
	git clone -q "$repo" inner
	taken
	git -c advice.addEmbeddedRepo=false add inner
	refused_for_submodules
	git commit -qm inner
	refused_for_submodules
	mv inner ../inner
	taken
	mkdir inner
	taken
}

@test "a resource that is a linked worktree or has submodules can be named as a directory" {
	repository
	git worktree add -q ../linked
	git clone -q . ../super
	git -C ../super -c protocol.file.allow=always submodule --quiet add "$repo" sub
	git -C ../super commit -qm sub
	cd ../linked
	run -6 "$ATOLL" start --git .
	says 'is a linked worktree'
	run -0 "$ATOLL" run --commit --dir . -- sh -c 'echo x >>one'
	[ "$(git diff --stat | tail -1)" = ' 1 file changed, 1 insertion(+)' ]
	# What the advice for a submodule says brings what git commits in it, and in what holds it.
	cd ../super/sub
	run -0 "$ATOLL" run --commit --dir "$work/super" -- sh -ec 'echo x >>one; git commit -qam below; cd ..; git commit -qam above'
	[ "$(git log -1 --format=%s)" = below ]
	[ "$(git -C .. log -1 --format=%s)" = above ]
	[ -z "$(git -C .. status --porcelain)" ]
}

@test "a worktree that is made in a plan is named as one that does not arrive working" {
	repository
	git worktree add -q ../there -b there
	started
	inside 'git worktree add -q inner -b inner; git -C ../there status >/dev/null 2>&1 || :'
	run -0 "$ATOLL" diff p
	[ "$(grep -c 'worktree made in the plan' <<<"$output")" -eq 1 ]
	says "A  $repo/.git/worktrees/inner/  (a worktree made in the plan: it will not arrive working)"
	"$ATOLL" diff p --json | jq -e '[.changes[] | select(.path == ".git/worktrees/inner").detail] == ["a worktree made in the plan: it will not arrive working"]'
	committed
	[ ! -e .git/worktrees/inner ]
	! git -C inner status
}
