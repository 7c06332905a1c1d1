#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/schema/: every command has a schema, each is a strict one, and their words are those of the
source. What the program prints is held against them by cli-json.bats. Prints TAP."""

import json
import re
import sys

import jsonschema

from tap import find, read, run, strip_c

# Words of common.schema.json -> the table they come from.
TABLES = {
    'code': ('src/util/error.c', r'\{ (?:ATOLL_E_\w+|0), "([a-z-]+)"'),
    'plan-state': ('src/registry/state.c', r'\[ATOLL_PLAN_\w+\] = "(\w+)"'),
    'sandbox-state': ('src/registry/state.c', r'\[ATOLL_SANDBOX_\w+\] = "(\w+)"'),
    'outcome': ('src/strategy/result.c', r'\[ATOLL_OUTCOME_\w+\] = "([\w ]+)"'),
    'value-kind': ('src/cli/options.c', r'\[VALUE_\w+\] = "(\w+)"'),
    'note-kind': ('src/strategy/result.c', r'\[ATOLL_NOTE_\w+\] = "([\w -]+)"'),
}


def schemas():
    return {path: json.loads(read(path)) for path in find('docs/schema/*.schema.json')}


def objects(schema, where='#'):
    """Every part of a schema that describes an object; a condition describes none."""
    if isinstance(schema, dict):
        if isinstance(schema.get('properties'), dict):
            yield where, schema
        for key, value in schema.items():
            if key not in ('if', 'then', 'else', 'not'):
                yield from objects(value, f'{where}/{key}')
    elif isinstance(schema, list):
        for number, value in enumerate(schema):
            yield from objects(value, f'{where}/{number}')


def check_commands_have_schemas():
    """By its row: .object = "x", else .name = "x", but for those that are only for programs: "__x"."""
    rows = [m[0] for path in find('src/cli/cmd-*.c') for m in re.finditer(
        r'^const struct command \w+ = \{.*?^\};', strip_c(read(path), True), re.M | re.S)]
    found = [re.search(r'\.object = "(\w[\w-]*)"', row) or re.search(r'\.name = "([a-z][\w-]*)"', row)
             for row in rows]
    names = [m[1] for m in found if m]
    have = {path.name for path in schemas()}
    return [f'{name}: there is no docs/schema/{name}.schema.json'
            for name in [*names, 'error'] if f'{name}.schema.json' not in have]


def check_schemas_are_schemas():
    bad = []
    for path, schema in schemas().items():
        if schema.get('$schema') != 'https://json-schema.org/draft/2020-12/schema':
            bad.append(f'{path}: not of draft 2020-12')
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as why:
            bad.append(f'{path}: {why.message}')
    return bad


def check_schemas_are_strict():
    bad = []
    for path, schema in schemas().items():
        for where, part in objects(schema):
            if part.get('additionalProperties') is not False:
                bad.append(f'{path}: {where} lets other members in')
            for key in sorted(set(part.get('required', ())) - set(part['properties'])):
                bad.append(f'{path}: {where} wants {key} and does not describe it')
    return bad


def check_schema_words():
    defs = json.loads(read('docs/schema/common.schema.json'))['$defs']
    bad = []
    for name, (path, pattern) in TABLES.items():
        known = defs[name].get('enum') or defs[name]['anyOf'][0]['enum']
        said = re.findall(pattern, read(path))
        bad += [f'{name}: {word!r} of {path} is not in common.schema.json'
                for word in sorted(set(said) - set(known))]
        bad += [f'{name}: {word!r} of common.schema.json is not in {path}'
                for word in sorted(set(known) - set(said))]
    return bad


def check_schemas_documented():
    text = read('docs/schema/README.md')
    return [f'{path}: docs/schema/README.md does not name it' for path in schemas()
            if f'({path.name})' not in text]


sys.exit(run([check_commands_have_schemas, check_schemas_are_schemas, check_schemas_are_strict,
              check_schema_words, check_schemas_documented]))
