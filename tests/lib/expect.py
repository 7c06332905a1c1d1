# SPDX-License-Identifier: Apache-2.0
"""What a test wants, and the complaint when it is otherwise."""

import functools


class Broken(Exception):
    pass


def need(ok, text):
    if not ok:
        raise Broken(text)


def same(got, want, text):
    need(got == want, f'{text}:\n  got  {got!r}\n  want {want!r}')


def complaining(check):
    """CHECK as tap.run() wants it: what is otherwise becomes its complaints."""
    @functools.wraps(check)
    def checked():
        try:
            check()
        except Broken as why:
            return str(why).splitlines()
        return []
    return checked
