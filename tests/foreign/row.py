# SPDX-License-Identifier: Apache-2.0
"""A row of the table: a program that the project did not write, and what it is made to do."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """SCRIPT is read by sh -eu in a directory that BEGIN filled, and ends with STATUS."""

    name: str
    packages: str                   # all that provide what the scripts call, but for what Debian always has
    script: str
    begin: str = ''
    short: bool = False             # in ./setup test already, not in ./setup check alone
    status: int = 0
    users: str = 'root user'
    splits: bool = False            # changes or links files that were there: docs/caveats.md, "Hard links"
    allow: str = ''                 # what its commit has to be allowed: special, setuid, git-programs
    varying: str = ''               # patterns of files whose content differs from run to run
    hidden: str = ''                # a regular expression: what of its output differs from run to run
