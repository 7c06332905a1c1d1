# SPDX-License-Identifier: Apache-2.0
"""A test that runs once as root and once as an ordinary user says so in its arguments: `root` or `user`."""

import os
import sys

NOBODY = 65534


def begin():
    """As the ordinary user, if that is what is asked for, and root can become one."""
    if sys.argv[1:] == ['user'] and os.geteuid() == 0:
        os.execvp('setpriv', ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', '--',
                              'env', 'HOME=/nonexistent', sys.executable, *sys.argv])
