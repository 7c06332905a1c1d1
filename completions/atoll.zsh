#compdef atoll
# SPDX-License-Identifier: Apache-2.0
# Completion of atoll for zsh. What can be completed `atoll __complete` knows.

_atoll() {
	local how line value
	local -a lines ends goes_on

	lines=("${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete -- "${(@Q)words[2,CURRENT-1]}" \
		"${(Q)PREFIX}" 2>/dev/null)}")
	how=$lines[1]
	for line in "${(@)lines[2,-1]}"; do
		value=${line%%$'\t'*}
		if [[ $value == */ ]]; then
			goes_on+=("${value//:/\\:}:${line#*$'\t'}")
		else
			ends+=("${value//:/\\:}:${line#*$'\t'}")
		fi
	done

	if [[ $how == command\ * ]]; then
		# Another program's command line, completed as that program's is.
		words=("${(@)words[${how#* }+2,-1]}")
		((CURRENT -= ${how#* } + 1))
		_normal
		return
	fi
	((${#ends})) && _describe -V atoll ends
	((${#goes_on})) && _describe -V atoll goes_on -S ''
	if [[ $how == files || $how == dirs ]]; then
		compset -P '--[^=]#='
		[[ $how == files ]] && _files || _files -/
	fi
}

# Found in $fpath it is the function's body; evaluated it makes itself known.
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_atoll "$@"
else
	compdef _atoll atoll
fi
