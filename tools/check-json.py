#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what atoll printed with --json, one object on each line, against docs/schema/. The object's
own "format" says which schema it is to follow. Prints one line for each: the format.

usage: check-json.py [--last] [FORMAT...] <OUTPUT

--last: of `exec`, `run` and `shell`, whose last line alone is ours. With FORMATs (commit, error),
the objects must be of these, in this order; `log...` stands for any number but none.
"""

import json
import re
import sys

import jsonschema

from tap import ROOT

SCHEMAS = ROOT / 'docs' / 'schema'


def validator(name):
    path = SCHEMAS / f'{name}.schema.json'
    schema = json.loads(path.read_text(encoding='utf-8'))
    resolver = jsonschema.RefResolver(path.as_uri(), schema)
    return jsonschema.Draft202012Validator(schema, resolver=resolver)


def only_once(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError(f'a member is there twice: {keys}')
    return dict(pairs)


def complaints(line):
    """(format, what is wrong with it)"""
    try:
        value = json.loads(line, object_pairs_hook=only_once)
    except ValueError as why:
        return None, [f'no JSON: {why}']
    found = re.fullmatch(r'atoll\.([a-z-]+)/1', str(value.get('format', '')))
    if not found or not (SCHEMAS / f'{found[1]}.schema.json').exists():
        return None, [f"no schema for format {value.get('format')!r}"]
    errors = validator(found[1]).iter_errors(value)
    return found[1], [f"{'/'.join(map(str, e.absolute_path)) or 'the object'}: {e.message}"
                      for e in sorted(errors, key=lambda e: list(map(str, e.absolute_path)))]


def main():
    wanted = sys.argv[1:]
    lines = sys.stdin.buffer.read().decode('utf-8').split('\n')
    if lines.pop() != '':
        print('the last line has no end')
        return 1
    if wanted[:1] == ['--last']:
        wanted = wanted[1:]
        lines = lines[-1:]

    formats, bad = [], []
    for line in lines:
        name, wrong = complaints(line)
        formats.append(name)
        bad += [f'{text}\n  in: {line}' for text in wrong]
    if wanted and wanted[-1].endswith('...'):
        wanted[-1:] = [wanted[-1][:-3]] * (len(formats) - len(wanted) + 1)
    if not formats or (wanted and formats != wanted):
        bad.append(f'wanted {wanted or "an object"}, found {formats}')
    print('\n'.join(bad or formats))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
