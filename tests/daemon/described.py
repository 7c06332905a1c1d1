# SPDX-License-Identifier: Apache-2.0
"""Answers held against the description that the daemon itself serves."""

import json
import re

import jsonschema

from expect import Broken, need


class Described:
    def __init__(self, document):
        self.document = document
        self.patterns = [(re.compile(re.sub(r'\\{\w+\\}', '[^/]+', re.escape(path)) + '$'), item)
                         for path, item in document['paths'].items()]
        self.seen = set()

    def _operation(self, method, path):
        for pattern, item in self.patterns:
            if pattern.match(path) and method.lower() in item:
                return item[method.lower()]
        return None

    def _response(self, operation, status):
        if operation is None:  # no such path, or not with this method: a problem all the same
            return self.document['components']['responses']['problem']
        found = operation['responses'].get(str(status), operation['responses']['default'])
        if '$ref' in found:
            return self.document['components']['responses'][found['$ref'].rpartition('/')[2]]
        return found

    def check(self, method, target, answer):
        """ANSWER has status, headers and body (text)."""
        operation = self._operation(method, target.partition('?')[0])
        response = self._response(operation, answer.status)
        need(operation is None or answer.status >= 400 or str(answer.status) in operation['responses'],
             f'{method} {target}: {answer.status} is not described')
        if operation:
            self.seen.add((operation['operationId'], answer.status))
        kind = (answer.headers.get('Content-Type') or '').partition(';')[0]
        content = response.get('content', {})
        if not content:
            need(not answer.body, f'{method} {target}: a body that is not described')
            return
        need(kind in content, f'{method} {target}: {answer.status} {kind!r} is not described: {answer.body}')
        if not kind.endswith('json'):
            return
        schema = dict(content[kind]['schema'], components=self.document['components'])
        try:
            jsonschema.Draft202012Validator(schema).validate(json.loads(answer.body))
        except jsonschema.ValidationError as why:
            raise Broken(f'{method} {target}: {answer.status}: {why.json_path}: {why.message}\n{answer.body}') from None
