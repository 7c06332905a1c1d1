#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the description that atolld serves: make-openapi.py OUT DESCRIPTION SCHEMA... puts the schemas
of docs/schema, which are also those of `atoll --json`, beside the description's own."""

import json
import pathlib
import re
import sys


def moved(value, name):
    """References of the schema NAME, as they are in one document with all others."""
    if isinstance(value, dict):
        return {key: moved(inner, name) for key, inner in value.items() if key != '$schema'}
    if isinstance(value, list):
        return [moved(inner, name) for inner in value]
    if isinstance(value, str):
        value = re.sub(r'^(\w+)\.schema\.json#/', r'#/components/schemas/\1/', value)
        return re.sub(r'^#/\$defs/', rf'#/components/schemas/{name}/$defs/', value)
    return value


def main():
    out, description, *files = map(pathlib.Path, sys.argv[1:])
    document = json.loads(description.read_text())
    schemas = document['components']['schemas']
    for file in files:
        name = file.name.split('.')[0]
        if name in schemas:
            sys.exit(f'{description} has a schema {name}, and so has {file}')
        schemas[name] = moved(json.loads(file.read_text()), name)
    out.write_text(json.dumps(document, ensure_ascii=False, separators=(',', ':')) + '\n')


main()
