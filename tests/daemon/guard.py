# SPDX-License-Identifier: Apache-2.0
"""Requests that are not as the standard has them, or abuse it: each is refused with the right status, its
connection ends, what was sent behind it is not taken for a request, and the daemon lives on."""

import os
import sys

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, Daemon, main, request  # noqa: E402
from expect import Broken, need, same  # noqa: E402

GOOD = b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'


def head(*lines, first='GET /healthz HTTP/1.1'):
    """Text as bytes: latin-1, so that any byte can be written."""
    return '\r\n'.join([first, 'Host: localhost', *lines, '', '']).encode('latin-1')


def line(first):
    return head(first=first)


def post(*lines, body=b''):
    return head(*lines, first='POST /healthz HTTP/1.1') + body


def lf(data):
    return data.replace(b'\r\n', b'\n')


CHUNKED = 'Transfer-Encoding: chunked'

# name: bytes, status (0: closed without a word), or one for each version of libmicrohttpd
SHAPES = {
    # line ends and lines
    'bare line feeds': (lf(GOOD), 400),
    'one bare line feed': (GOOD.replace(b'localhost\r\n', b'localhost\nA: b\r\n'), 400),
    'a bare line feed ends the request line': (GOOD.replace(b'1.1\r\n', b'1.1\n'), 400),
    'a bare line feed ends the head': (GOOD[:-2] + b'\n', 400),
    'a bare carriage return': (head('A: b\rHost: evil'), 400),
    'two carriage returns': (head('A: b\r'), 400),
    'a folded line': (head('A: b', ' c'), 400),
    'a folded line, by tab': (head('A: b', '\tc'), 400),
    'a folded length': (post('Content-Length: 1', ' 0', body=b'x'), 400),
    'the first line is folded': (b'GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n', 400),
    'a line without a colon': (head('nothing'), 400),
    # names and values
    'a blank before the colon': (head('A : b'), 400),
    'a blank before the colon of a length': (post('Content-Length : 5', body=b'hello'), 400),
    'a tab before the colon': (head('A\t: b'), 400),
    'a name that is no token': (head('A(b): c'), 400),
    'a name with a byte above 127': (head('A\xe9: c'), 400),
    'no name': (head(': b'), 400),
    'no name, and more after it': (head(': b', 'C: d'), 400),
    'a NUL in a name': (head('A\0B: c'), 400),
    'a NUL in a value': (head('A: b\0c'), 400),
    'a NUL in Host': (b'GET /healthz HTTP/1.1\r\nHost: localhost\0.evil\r\n\r\n', 400),
    'a NUL ends the head': (head('A: b\0'), 400),
    'an escape in a value': (head('A: \x1b[31m'), 400),
    'a DEL in a value': (head('A: \x7f'), 400),
    'a byte above 127 in a value': (head('A: \xff'), 400),
    # the request line
    'HTTP/0.9': (b'GET /healthz\r\n\r\n', 400),
    'HTTP/1.0': (b'GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n', 505),
    'HTTP/1.0 that would be kept': (head('Connection: keep-alive', first='GET /healthz HTTP/1.0'), 505),
    'HTTP/1.2': (line('GET /healthz HTTP/1.2'), 505),
    'HTTP/2': (b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505),
    'http/1.1': (line('GET /healthz http/1.1'), 400),
    'HTTP/1.1x': (line('GET /healthz HTTP/1.1x'), 400),
    'two blanks after the method': (line('GET  /healthz HTTP/1.1'), 400),
    'two blanks before the version': (line('GET /healthz  HTTP/1.1'), 400),
    'a blank after the version': (line('GET /healthz HTTP/1.1 '), 400),
    'tabs for blanks': (line('GET\t/healthz\tHTTP/1.1'), 0),
    'a blank in the target': (line('GET /heal thz HTTP/1.1'), 400),
    'a method that is no token': (line('GE(T /healthz HTTP/1.1'), 400),
    'a NUL in the method': (line('GE\0T /healthz HTTP/1.1'), (400, 0)),
    'nothing but a method': (b'GET\r\n\r\n', 0),
    # targets
    'the absolute form': (line('GET http://localhost/healthz HTTP/1.1'), 400),
    'the absolute form of another': (line('GET http://evil/healthz HTTP/1.1'), 400),
    'the authority form': (line('CONNECT localhost:80 HTTP/1.1'), 400),
    'the asterisk form': (line('OPTIONS * HTTP/1.1'), 400),
    'no slash': (line('GET healthz HTTP/1.1'), 400),
    'a NUL in the target': (line('GET /healthz\0x HTTP/1.1'), (400, 0)),
    'a NUL, encoded': (line('GET /healthz%00 HTTP/1.1'), 400),
    'dots': (line('GET /v1/../healthz HTTP/1.1'), 400),
    'dots, encoded': (line('GET /v1/%2e%2E/healthz HTTP/1.1'), 400),
    'dots, half encoded': (line('GET /v1/.%2e/healthz HTTP/1.1'), 400),
    'one dot': (line('GET /./healthz HTTP/1.1'), 400),
    'dots at the end': (line('GET /healthz/.. HTTP/1.1'), 400),
    'a slash, encoded': (line('GET /v1/plans%2fx HTTP/1.1'), 400),
    'a backslash': (line('GET /v1\\healthz HTTP/1.1'), 400),
    'a backslash, encoded': (line('GET /v1%5chealthz HTTP/1.1'), 400),
    'two slashes': (line('GET //healthz HTTP/1.1'), 400),
    'a slash at the end': (line('GET /healthz/ HTTP/1.1'), 400),
    'a fragment': (line('GET /healthz#x HTTP/1.1'), 400),
    'a byte above 127 in the target': (line('GET /healthz\xe9 HTTP/1.1'), 400),
    'an escape in the target': (line('GET /healthz\x1b HTTP/1.1'), 400),
    # Host and Origin
    'no Host': (b'GET /healthz HTTP/1.1\r\n\r\n', 400),
    'two Hosts': (head('Host: localhost'), 400),
    'two Hosts of which one is another': (head('Host: evil'), 400),
    'Host with a name in it': (b'GET /healthz HTTP/1.1\r\nHost: a@localhost\r\n\r\n', 421),
    'another Host': (b'GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n', 421),
    'another Host that begins well': (b'GET /healthz HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n', 421),
    'a Host whose port is none': (b'GET /healthz HTTP/1.1\r\nHost: localhost:80x\r\n\r\n', 421),
    'an empty Host': (b'GET /healthz HTTP/1.1\r\nHost: \r\n\r\n', 421),
    'an Origin': (head('Origin: https://evil.example'), 403),
    'an Origin of null': (head('Origin: null'), 403),
    'two Origins': (head('Origin: https://good.example', 'Origin: https://evil.example'), 403),
    # lengths
    'a length and chunks': (post('Content-Length: 4', CHUNKED, body=b'0\r\n\r\n'), 400),
    'chunks and a length': (post(CHUNKED, 'Content-Length: 4', body=b'0\r\n\r\n'), 400),
    'two lengths': (post('Content-Length: 5', 'Content-Length: 6', body=b'hello!'), 400),
    'two equal lengths': (post('Content-Length: 5', 'Content-Length: 5', body=b'hello'), 400),
    'a list of lengths': (post('Content-Length: 5, 5', body=b'hello'), 400),
    'a length with a sign': (post('Content-Length: +5', body=b'hello'), 400),
    'a negative length': (post('Content-Length: -5', body=b'hello'), 400),
    'a length in hex': (post('Content-Length: 0x5', body=b'hello'), 400),
    'a length with a point': (post('Content-Length: 5.0', body=b'hello'), 400),
    'a length with a blank': (post('Content-Length: 5 ', body=b'hello'), (400, 401)),
    'a length of nothing': (post('Content-Length: '), 400),
    'a length beyond all numbers': (post('Content-Length: 99999999999999999999999'), 413),
    'a length of eighteen digits': (post('Content-Length: 999999999999999999'), 401),
    # transfer codings
    'chunks': (post(CHUNKED, body=b'1\r\nZ\r\n0\r\n\r\n'), 411),
    'chunks that end in line feeds': (post(CHUNKED, body=b'1\nZ\n0\n\n'), 411),
    'a coding that is none': (post('Transfer-Encoding: identity', body=b'hello'), (411, 400)),
    'codings': (post('Transfer-Encoding: gzip, chunked', body=b'0\r\n\r\n'), (411, 400)),
    'two codings': (post(CHUNKED, 'Transfer-Encoding: identity', body=b'0\r\n\r\n'), 411),
    'a coding behind a vertical tab': (post('Transfer-Encoding: \x0bchunked', body=b'0\r\n\r\n'), 400),
    'a coding in quotes': (post('Transfer-Encoding: "chunked"', body=b'0\r\n\r\n'), (411, 400)),
    # more than there is room for
    'sixty-five fields': (head(*[f'A{i}: b' for i in range(64)]), 431),
    'a head of 17 KiB': (head('A: ' + 'b' * (17 << 10)), 431),
    'a head of 1 MiB': (head('A: ' + 'b' * (1 << 20)), 431),
    'a target of 9 KiB': (line('GET /' + 'a' * (9 << 10) + ' HTTP/1.1'), 414),
    'a target of 1 MiB': (line('GET /' + 'a' * (1 << 20) + ' HTTP/1.1'), 414),
    # expectations
    'an expectation': (post('Content-Length: 5', 'Expect: the worst'), 417),
}


def ask(d, place, data):
    """The refusal, and whether anything came after it. A request that is too large is answered while it is
    still being sent."""
    with d.connect(place) as wire:
        try:
            wire.send(data + GOOD)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = wire.answer(see_end=True)
        return answer, wire.rest


def refuses(d, place, shapes):
    """How many of them the daemon answered, and not the library by itself."""
    wrong = []
    own = 0
    for name, (data, status) in shapes.items():
        answer, rest = ask(d, place, data)
        # Of a bad length libmicrohttpd 0.9.75 complains with its own head sent twice.
        expected = status if isinstance(status, tuple) else (status,)
        if answer.status not in expected or not answer.closed or b' 200 ' in rest or b'"ok"' in rest:
            wrong.append(f'{name}: {answer.status}, not {status}; closed: {answer.closed}; then {rest[:60]}')
        if answer.headers.get('content-type') == 'application/problem+json':
            said = answer.json()
            own += 1
            if said['status'] != answer.status or not said['detail'] or said['instance'] != answer.headers['x-request-id']:
                wrong.append(f'{name}: {said}')
    need(not wrong, '\n'.join(wrong))
    need(d.is_alive(), 'the daemon lives on')
    return own


def refuses_what_is_not_standard(top):
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        own = refuses(d, d.places()[0], SHAPES)
        refused = sum(line['level'] == 'request' and line['status'] >= 400 for line in d.log())
        need(own > len(SHAPES) // 2 and refused >= own, 'each that the daemon refused is in the log')


def refuses_it_on_the_unix_socket(top):
    """There any name will do for Host: who can open it needs none. All else is the same."""
    shapes = dict(SHAPES)
    for name in ('another Host', 'another Host that begins well', 'Host with a name in it'):
        del shapes[name]
    shapes['a length of eighteen digits'] = (SHAPES['a length of eighteen digits'][0], 405)
    shapes['a length with a blank'] = (SHAPES['a length with a blank'][0], (400, 405))
    with Daemon(top) as d:
        refuses(d, d.places()[0], shapes)


def takes_what_is_standard(top):
    good = {
        'plain': GOOD,
        'no blank after the colon': head('A:b'),
        'blanks around a value': head('A:  \t b \t '),
        'an empty value': head('A:'),
        'a port': b'GET /healthz HTTP/1.1\r\nHost: localhost:8080\r\n\r\n',
        'a Host in capitals': b'GET /healthz HTTP/1.1\r\nHOST: LOCALHOST\r\n\r\n',
        'an address': b'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
        'an address in brackets': b'GET /healthz HTTP/1.1\r\nHost: [::1]:1\r\n\r\n',
        'an empty line before': b'\r\n' + GOOD,
        'sixty-four fields': head(*[f'A{i}: b' for i in range(63)]),
        'a head of 15 KiB': head('A: ' + 'b' * (15 << 10)),
        'a query': line('GET /healthz?a=%2e%2e&b=/../ HTTP/1.1'),
        'a target of 8000 bytes': line('GET /healthz?' + 'a' * 7980 + ' HTTP/1.1'),
        'a listed Origin': head('Origin: https://good.example'),
        'a listed Host': b'GET /healthz HTTP/1.1\r\nHost: build.example\r\n\r\n',
        'a length of none': head('Content-Length: 0'),
        'cookies': head('Cookie: a=b; c="d"'),
    }
    with Daemon(top, '--listen=127.0.0.1:0', '--host=build.example', '--origin=https://good.example') as d:
        for name, data in good.items():
            with d.connect() as wire:
                for _ in range(3):  # and the connection lives on
                    wire.send(data)
                    answer = wire.answer()
                    same(answer.status, 200, name)


def one_byte_at_a_time(top):
    """However the bytes arrive, it is the same request."""
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        for data, status in ((GOOD, 200), (lf(GOOD), 400), (head('A: b\0c'), 400), (head('A: b', ' c'), 400)):
            with d.connect() as wire:
                for i in range(len(data)):
                    wire.send(data[i:i + 1])
                same(wire.answer().status, status, str(data))


def pipelined_requests_are_each_looked_at(top):
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        with d.connect() as wire:
            wire.send(GOOD + GOOD + head('A : b') + GOOD)
            same([wire.answer().status for _ in range(3)], [200, 200, 400], 'the third is bad')
            need(wire.is_closed(PATIENCE), 'closed after the refusal')
        with d.connect() as wire:  # the second head arrives in two pieces, one with the first
            wire.send(GOOD + head('A: b\0c')[:-20])
            same(wire.answer().status, 200, 'the first')
            wire.send(head('A: b\0c')[-20:])
            same(wire.answer().status, 400, 'the second')


def any_byte_anywhere(top):
    """Each byte of a head, replaced by those that parsers differ about: it is answered, or its end is waited
    for, and never as another request."""
    with Daemon(top, '--head-timeout=1') as d:
        data = request('GET /healthz', headers=['Accept: x', 'Content-Length: 0'])
        for byte in (0, 9, 10, 13, 32, 58, 127, 255):
            for at in range(len(data)):
                changed = data[:at] + bytes([byte]) + data[at + 1:]
                if changed[-4:] != b'\r\n\r\n':
                    continue
                with d.connect() as wire:
                    wire.send(changed)
                    answer = wire.answer()
                    if answer.status == 200 and not is_fine(changed):
                        raise Broken(f'{changed} was taken')
        need(d.is_alive(), 'the daemon lives on')


def is_fine(data):
    """As the standard has it, by another reader; but a NUL before a line feed looks as a carriage return does."""
    data = data.replace(b'\0\n', b'\r\n')
    first, *fields = data[:-4].split(b'\r\n')
    words = first.split(b' ')
    if len(words) != 3 or words[1].split(b'?')[0] != b'/healthz' or any(b in data for b in b'\0\x7f\xff'):
        return False
    for field in fields:
        name, colon, value = field.partition(b':')
        if not colon or not name or any(b in name for b in b' \t') or any(b in value for b in b'\r\n'):
            return False
    return sum(f.lower().startswith(b'host:') for f in fields) == 1 and b'\n' not in first and b'\r' not in first


if __name__ == '__main__':
    main([refuses_what_is_not_standard, refuses_it_on_the_unix_socket, takes_what_is_standard, one_byte_at_a_time,
          pipelined_requests_are_each_looked_at, any_byte_anywhere])
