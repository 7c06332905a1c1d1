#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a command sees of the home directory and of secrets, and the options that say so.

load cli

# A home with secrets, and a plan p of a directory in it. Not below /tmp, which a command has to itself.
home_with_plan() {
	outside_tmp
	export HOME=$elsewhere/me
	unset XDG_STATE_HOME
	export ATOLL_HOME=$HOME/.local/state/atoll
	mkdir -p "$HOME"/{.ssh,.config/gh,app} "$elsewhere/other"
	echo key >"$HOME/.ssh/id"
	echo host >"$HOME/.ssh/known_hosts"
	echo token >"$HOME/.netrc"
	echo token >"$HOME/.config/gh/hosts.yml"
	echo setting >"$HOME/.config/gh/config.yml"
	cd "$HOME/app"
	atoll start p --dir "$HOME/app" >/dev/null 2>&1
}

see() {
	atoll exec p "$@"
}

@test "fence the home has a private layer, kept with the plan and never committed" {
	home_with_plan
	see -- sh -c 'echo 1 >~/new; echo 2 >>~/.config/gh/config.yml; echo 3 >~/app/work'
	[ ! -e "$HOME/new" ]
	[ "$(cat "$HOME/.config/gh/config.yml")" = setting ]
	[ "$(see -- cat "$HOME/new")" = 1 ]
	[ "$(atoll diff p --name-status 2>/dev/null | wc -l)" -eq 1 ]
	atoll commit p --yes >/dev/null 2>&1
	[ -e "$HOME/app/work" ]
	[ ! -e "$HOME/new" ]
	atoll stop p --force >/dev/null 2>&1
	[ -z "$(ls -A "$ATOLL_HOME/plans")" ]
}

@test "fence secrets and the store are hidden, and nothing else" {
	home_with_plan
	run -0 see -- sh -c 'cat ~/.netrc ~/.config/gh/hosts.yml; ls -A ~/.ssh ~/.local/state/atoll; cat ~/.config/gh/config.yml'
	[[ "$output" != *token* ]]
	[[ "$output" != *$'\n'id* ]]
	[[ "$output" != *atoll.db* ]]
	[[ "$output" == *setting* ]]
	run ! see -- sh -c 'echo x >~/.ssh/authorized_keys'
	[ ! -e "$HOME/.ssh/authorized_keys" ]
	[ "$(cat "$HOME/.ssh/id")" = key ]
}

@test "fence a secret that is a link is hidden where it leads to" {
	home_with_plan
	mv "$HOME/.ssh" "$elsewhere/other/keys"
	ln -s "$elsewhere/other/keys" "$HOME/.ssh"
	run see -- sh -c "cat ~/.ssh/id $elsewhere/other/keys/id"
	[[ "$output" != *key$'\n'* ]]
	[[ "$output" == *'No such file'* ]]
}

@test "fence --ro shows what is hidden, --rw lets write, --hide hides" {
	home_with_plan
	[ "$(see --ro "$HOME/.ssh/known_hosts" -- sh -c 'cat ~/.ssh/*')" = host ]
	run ! see --ro "$HOME/.netrc" -- sh -c 'cat ~/.netrc; echo x >~/.netrc'
	says token
	[ "$(cat "$HOME/.netrc")" = token ]
	see --rw "$elsewhere/other" -- sh -c "echo real >$elsewhere/other/file"
	[ "$(cat "$elsewhere/other/file")" = real ]
	see -- sh -c "echo x >$elsewhere/other/file"
	run ! see --hide "$elsewhere/other" -- cat "$elsewhere/other/file"
	[ "$(cat "$elsewhere/other/file")" = real ]
}

@test "fence paths that cannot be given are refused, and nothing is run" {
	home_with_plan
	local path
	for path in / "$HOME/app" "$ATOLL_HOME/locks" /nonexistent/path; do
		run see --rw "$path" -- touch ran
		status_is 125
		says "$path"
	done
	[ ! -e ran ]
	see --hide /nonexistent/path -- true
}

@test "fence --home real is the home itself, --home none an empty one" {
	home_with_plan
	see --home real -- sh -c 'echo real >~/real'
	[ "$(cat "$HOME/real")" = real ]
	run -0 see --home real -- sh -c 'cat ~/.netrc; ls ~/.ssh'
	[ -z "$output" ]
	run -0 see --home none -- sh -c 'ls -A ~; touch ~/gone; cat ~/.netrc || true'
	[[ "$output" == app* ]]
	[ ! -e "$HOME/gone" ]
	run ! see --home none -- ls "$HOME/gone"
}

@test "fence the home as the resource keeps working, without its secrets" {
	home_with_plan
	atoll stop p --force >/dev/null 2>&1
	export ATOLL_HOME=$elsewhere/store
	atoll start p --dir "$HOME" >/dev/null 2>&1
	run see -- sh -c 'echo 1 >~/new; cat ~/.netrc ~/.ssh/id; true'
	status_is 0
	is_root || [[ "$output" == *'Permission denied'* ]]
	[[ "$output" != *token* ]]
	[ ! -e "$HOME/new" ]
	run -0 atoll diff p --name-status
	[[ "$output" == *new* ]]
	[[ "$output" != *netrc* ]]
	atoll commit p --yes >/dev/null 2>&1
	[ "$(cat "$HOME/new")" = 1 ]
	[ "$(cat "$HOME/.netrc")" = token ]
	[ "$(cat "$HOME/.ssh/id")" = key ]
}

@test "fence /tmp and /var/tmp are the plan's own, kept with it and never committed" {
	home_with_plan
	local tmp name
	for tmp in /tmp /var/tmp; do
		name=$(mktemp -u -p "$tmp")
		mkdir "$name-there"
		see -- sh -ec "mktemp -p $tmp; mkdir $name; echo 1 >$name/f; [ ! -e $name-there ]"
		rmdir "$name-there"
		[ "$(see -- cat "$name/f")" = 1 ]
		[ "$(see -- stat -c %a "$tmp")" = "$(stat -c %a "$tmp")" ]
		[ ! -e "$name" ]
	done
	[ -z "$(atoll diff p --name-status 2>/dev/null)" ]
	echo outside >"$elsewhere/other/file"
	run ! see -- cat "$elsewhere/other/file"
	[ "$(see --ro "$elsewhere/other" -- cat "$elsewhere/other/file")" = outside ]
	see --rw "$elsewhere/other" -- sh -c "echo real >$elsewhere/other/file"
	[ "$(cat "$elsewhere/other/file")" = real ]
	atoll stop p --force >/dev/null 2>&1
	[ -z "$(ls -A "$ATOLL_HOME/plans")" ]
}

@test "fence a parent of the home as the resource, and a home that is not there, work" {
	home_with_plan
	atoll stop p --force >/dev/null 2>&1
	export ATOLL_HOME=/var/tmp/atoll-bats-store.$$
	atoll start p --dir "$elsewhere" >/dev/null 2>&1
	see -- sh -c 'echo 1 >~/new'
	[ ! -e "$HOME/new" ]
	HOME=/nonexistent see -- true
	HOME=/ see -- true
	atoll stop p --force >/dev/null 2>&1
	rm -rf "$ATOLL_HOME"
	export ATOLL_HOME=$elsewhere/store
}

@test "fence --strict runs where all is there" {
	home_with_plan
	run see --strict -- true
	# What is missing elsewhere is named, and nothing was run.
	[ "$status" -eq 0 ] || { status_is 125 && says 'be strict'; }
	atoll config set exec.strict true
	run see -- true
	[ "$status" -eq 0 ] || { status_is 125 && says 'be strict'; }
}

@test "fence a profile leaves a tool's state real, and nothing else" {
	home_with_plan
	export ATOLL_PROFILES=$ATOLL_SOURCE_ROOT/profiles
	mkdir -p "$HOME/.claude" "$HOME/.npm"
	echo registry >"$HOME/.npmrc"
	see --profile claude -- sh -c 'echo 1 >~/.claude/session; echo 2 >~/.npm/private'
	[ "$(cat "$HOME/.claude/session")" = 1 ]
	[ ! -e "$HOME/.npm/private" ]
	run ! see --profile claude -- grep registry "$HOME/.npmrc"
	see --profile claude --profile npm -- grep registry "$HOME/.npmrc"
	# Of one's own, before those that come along; none that others may write to.
	mkdir -p "$XDG_CONFIG_HOME/atoll/profiles"
	printf '[profile]\n\trw = ~/.npm\n' >"$XDG_CONFIG_HOME/atoll/profiles/claude"
	see --profile claude -- sh -c 'echo 3 >~/.npm/real; echo 4 >~/.claude/private'
	[ "$(cat "$HOME/.npm/real")" = 3 ]
	[ ! -e "$HOME/.claude/private" ]
	chmod 666 "$XDG_CONFIG_HOME/atoll/profiles/claude"
	see --profile claude -- sh -c 'echo 5 >~/.claude/session'
	[ "$(cat "$HOME/.claude/session")" = 5 ]
}

@test "fence a profile hides what it names, and names nothing in a home that is not there" {
	home_with_plan
	mkdir -p "$XDG_CONFIG_HOME/atoll/profiles" "$HOME/own"
	echo secret >"$HOME/own/key"
	echo shown >"$HOME/own/rest"
	printf '[profile]\n\tro = ~/own\n\thide = ~/own/key\n\trw = ~/.not-there\n' >"$XDG_CONFIG_HOME/atoll/profiles/mine"
	run -0 see --profile mine -- sh -c 'cat ~/own/rest; cat ~/own/key || true'
	says shown
	[[ $output != *secret* ]]
	HOME=/nonexistent run -0 see --profile mine -- sh -c 'echo ran'
	says ran
}

@test "fence profiles that cannot be read are refused, and nothing is run" {
	home_with_plan
	mkdir -p "$XDG_CONFIG_HOME/atoll/profiles"
	printf '[profile]\n\trw = here\n' >"$XDG_CONFIG_HOME/atoll/profiles/relative"
	printf '[profile]\n\twrite = ~/x\n' >"$XDG_CONFIG_HOME/atoll/profiles/unknown"
	printf '[profile\n' >"$XDG_CONFIG_HOME/atoll/profiles/broken"
	local name
	for name in relative unknown broken nowhere ../config; do
		run see --profile "$name" -- touch ran
		status_is 125
		says "$name"
	done
	[ ! -e ran ]
}

@test "fence what the host mounts later is not seen in a command" {
	is_root || skip 'only root mounts'
	home_with_plan
	run -0 unshare --mount --propagation shared "$ATOLL" exec p -- cat /proc/self/mountinfo
	run ! grep -E ' (shared|master|propagate_from):' <<<"$output"
}

# nothing_ran: nothing ran in p, and it goes on.
nothing_ran() {
	[ -z "$(atoll diff p --name-status 2>/dev/null)" ]
	[ ! -e "$HOME/app/ran" ]
}

@test "fence_without_namespaces_nothing_is_run unless that is accepted" {
	home_with_plan
	run -0 see --json -- true
	[ "$(tail -n 1 <<<"$output" | jq .isolated)" = true ]
	run without_namespaces "$ATOLL" exec p -- touch ran
	status_is 125
	says 'user.max_user_namespaces'
	says 'nothing was run'
	says 'atoll doctor'
	says '--unfenced'
	run without_namespaces "$ATOLL" exec p --json -- touch ran
	status_is 125
	[ "$(tail -n 1 <<<"$output" | jq -r .code)" = no-fence ]
	SHELL=/bin/sh run without_namespaces "$ATOLL" shell p <<<'touch ran'
	status_is 125
	says 'nothing was run'
	run without_namespaces "$ATOLL" exec p --strict --unfenced -- touch ran
	status_is 125
	nothing_ran
	run -0 without_namespaces "$ATOLL" exec p --json --unfenced -- touch ran
	[ "$(tail -n 1 <<<"$output" | jq .isolated)" = false ]
	run -0 without_namespaces "$ATOLL" diff p --name-status
	says ran
	without_namespaces "$ATOLL" commit p --yes
	[ -e "$HOME/app/ran" ]
}

@test "fence fence.required = false accepts it, unless the machine's settings require one" {
	home_with_plan
	atoll config set fence.required false
	run -0 without_namespaces "$ATOLL" exec p --json -- true
	[ "$(tail -n 1 <<<"$output" | jq .isolated)" = false ]
	printf '[fence]\n\trequired = true\n' >"$ATOLL_CONFIG_SYSTEM"
	run without_namespaces "$ATOLL" exec p -- touch ran
	status_is 125
	says 'nothing was run'
	nothing_ran
}

@test "fence run without namespaces leaves no plan behind, and start goes on" {
	home_with_plan
	atoll stop p --force >/dev/null 2>&1
	run without_namespaces "$ATOLL" run --keep --dir "$HOME/app" -- touch ran
	status_is 125
	says 'nothing was run'
	no_plans
	[ ! -e "$HOME/app/ran" ]
	run -0 without_namespaces "$ATOLL" start p --dir "$HOME/app"
	says 'a complete copy is used'
}

@test "fence what is remembered of the host is not believed in another user namespace" {
	home_with_plan
	mkdir ../first ../second
	run -0 "$ATOLL" start q --dir ../first
	[ "$(atoll show q --json | jq -r '.sandboxes[0].strategy')" = overlay ] || skip 'no overlay here'
	run -0 without_namespaces "$ATOLL" start r --dir ../second
	says 'namespaces'
	[ "$(atoll show r --json | jq -r '.sandboxes[0].strategy')" = copy ]
	run without_namespaces "$ATOLL" exec q -- touch ran
	status_is 125
	says 'user.max_user_namespaces'
	says 'nothing was run'
	run without_namespaces "$ATOLL" exec q --unfenced -- touch ran
	status_is 125
	run -0 without_namespaces "$ATOLL" diff q
	see -- true
}

@test "fence a host that changed is asked again before anything is said of it" {
	home_with_plan
	mkdir ../first ../second
	run unshare --map-current-user --keep-caps sh -c '
		"$1" start q --dir ../first
		echo 0 >/proc/sys/user/max_mnt_namespaces
		echo 0 >/proc/sys/user/max_user_namespaces
		setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$1" exec q -- touch ran
		echo "status $?"
		setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$1" start r --dir ../second' sh "$ATOLL"
	status_is 0
	[ "$(atoll show q --json | jq -r '.sandboxes[0].strategy')" = overlay ] || skip 'no overlay here'
	says 'user.max_user_namespaces'
	says 'nothing was run'
	says 'status 125'
	[ "$(atoll show r --json | jq -r '.sandboxes[0].strategy')" = copy ]
}

@test "fence what a command puts in the place of a secret does not show it" {
	home_with_plan
	see -- sh -c 'ln -s /etc ~/.docker; mkdir ~/.azure'
	mkdir -p "$HOME/.docker" "$HOME/.azure"
	echo token >"$HOME/.docker/config.json"
	echo token >"$HOME/.azure/credentials"
	run see -- sh -c 'ls ~/.docker >&2; cat ~/.docker/config.json ~/.azure/*; true'
	status_is 0
	[[ "$output" != *token* ]]
}
