# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of atoll for bash. Works alone; with bash-completion also inside the command lines of
# exec and run. What can be completed `atoll __complete` knows.

_atoll() {
	local i word line how value prefix width=0
	local -a words=() from=() values=() texts=() lines=()

	# bash takes words apart at '='; what was one word is one again.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ ${#words[@]} -gt 0 && ${words[-1]} == --* ]] &&
			[[ $word == = || ${words[-1]} == *= ]]; then
			words[-1]+=$word
		else
			words+=("$word")
			from+=("$i")
		fi
	done
	word=${words[-1]}
	prefix=
	[[ $word == --*=* ]] && prefix=${word%%=*}=

	mapfile -t lines < <("${COMP_WORDS[0]/#\~/$HOME}" __complete -- "${words[@]}" 2>/dev/null)
	how=${lines[0]}
	for line in "${lines[@]:1}"; do
		value=${line%%$'\t'*}
		value=${value#"$prefix"}
		values+=("$value")
		texts+=("${line#*$'\t'}")
		((${#value} > width)) && width=${#value}
	done

	case $how in
	command\ *)
		if declare -F _command_offset >/dev/null; then
			_command_offset "${from[${how#* }]:-$COMP_CWORD}"
		elif [[ ${how#* } -eq $((${#words[@]} - 1)) ]]; then
			mapfile -t COMPREPLY < <(compgen -c -- "$word")
		else
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "$word")
		fi
		return
		;;
	files)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "${word#"$prefix"}")
		COMPREPLY+=("${values[@]}")
		;;
	dirs)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "${word#"$prefix"}")
		;;
	*)
		COMPREPLY=("${values[@]}")
		# Shown, not inserted, while there are several: what each is.
		if ((${#values[@]} > 1)) && [[ $COMP_TYPE == 63 || $COMP_TYPE == 9 ]]; then
			for i in "${!values[@]}"; do
				[[ -z ${texts[i]} ]] ||
					printf -v "COMPREPLY[$i]" '%-*s  (%s)' "$width" "${values[i]}" "${texts[i]}"
			done
		fi
		;;
	esac
	[[ ${#values[@]} -eq 1 && ${values[0]} == */ ]] && compopt -o nospace 2>/dev/null
	return 0
}

complete -F _atoll atoll
