# SPDX-License-Identifier: Apache-2.0
# Completion of atoll for fish. What can be completed `atoll __complete` knows.

function __atoll_complete
	set -l typed (commandline -opc)
	set -l cur (commandline -ct)
	set -l lines (command $typed[1] __complete -- $typed[2..-1] "$cur" 2>/dev/null)
	set -l how (string split ' ' -- $lines[1])
	set -l prefix (string match -r -- '^--[^=]*=' "$cur")

	switch "$how[1]"
		case command
			# Another program's command line, completed as that program's is.
			set -l own (string escape -- $typed[(math $how[2] + 2)..-1])
			complete -C "$own $cur"
		case files
			for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$cur"))
				echo -- "$prefix$path"
			end
		case dirs
			for path in (__fish_complete_directories (string replace -r -- '^--[^=]*=' '' "$cur") '')
				echo -- "$prefix$path"
			end
	end
	for line in $lines[2..-1]
		echo -- $line
	end
end

complete -c atoll -f -a '(__atoll_complete)'
