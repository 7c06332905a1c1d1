# SPDX-License-Identifier: Apache-2.0
"""A link between two network namespaces, as packets over a process: slow, lossy, cut, as it is told on its
standard input. What `tc netem` does, without a kernel that has it.

    wire.py HERE THERE     (namespaces; makes the device `wire` in each)
    delay 0.02 loss 0.02   seconds each way, share of packets
    cut                    nothing gets through, and nobody is told
    rate 500000            bytes a second, each way
    plain
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
QUEUE = 200  # packets; what comes then is lost


def device(space):
    """A TUN device in the namespace; this process is in it afterwards."""
    with open(f'/run/netns/{space}', 'rb') as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0) < 0:
            raise OSError(ctypes.get_errno(), 'setns')
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH', b'wire', IFF_TUN | IFF_NO_PI))
    return fd


class Way:
    """One direction."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.under_way, self.free_at, self.n = [], 0.0, 0

    def take(self, now, how, r):
        while True:
            try:
                packet = os.read(self.source, 65536)
            except BlockingIOError:
                return
            if how['cut'] or r.random() < how['loss'] or len(self.under_way) >= QUEUE:
                continue
            at = max(now, self.free_at)
            if how['rate']:
                self.free_at = at = at + len(packet) / how['rate']
            self.n += 1
            heapq.heappush(self.under_way, (at + how['delay'], self.n, packet))

    def give(self, now):
        while self.under_way and self.under_way[0][0] <= now:
            try:
                os.write(self.target, heapq.heappop(self.under_way)[2])
            except OSError:
                pass  # nobody is there to take it


def listen(line, how):
    words = line.split()
    if words in (['plain'], ['cut']):
        how.update(delay=0.0, loss=0.0, rate=0.0, cut=words == ['cut'])
    for name, value in zip(words[::2], words[1::2]):
        how[name] = float(value)


def main(here, there):
    r = random.Random(1)
    how = {'delay': 0.0, 'loss': 0.0, 'rate': 0.0, 'cut': False}
    a, b = device(here), device(there)
    ways = [Way(a, b), Way(b, a)]
    print('ready', flush=True)
    while True:
        waiting = [w.under_way[0][0] for w in ways if w.under_way]
        timeout = max(0, min(waiting) - time.monotonic()) if waiting else None
        ready = select.select([0, a, b], [], [], timeout)[0]
        if 0 in ready:
            line = os.read(0, 4096).decode()
            if not line:
                return
            listen(line, how)
            print('ready', flush=True)
        now = time.monotonic()
        for way in ways:
            way.take(now, how, r)
            way.give(time.monotonic())


class Wire:
    """From a test: namespaces and the process between them."""

    def __init__(self):
        self.here, self.there, self.address = f'atoll-h{os.getpid()}', f'atoll-t{os.getpid()}', '10.77.0.2'

    def __enter__(self):
        for space in (self.here, self.there):
            subprocess.run(['ip', 'netns', 'add', space], check=True)
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), self.here, self.there],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        for space, address in ((self.here, '10.77.0.1'), (self.there, self.address)):
            for words in (['link', 'set', 'lo', 'up'], ['addr', 'add', f'{address}/24', 'dev', 'wire'],
                          ['link', 'set', 'wire', 'up']):
                subprocess.run(['ip', '-n', space, *words], check=True)
        return self

    def tell(self, text):
        self.process.stdin.write(text + '\n')
        self.process.stdin.flush()
        self.process.stdout.readline()

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        for space in (self.here, self.there):
            subprocess.run(['ip', 'netns', 'del', space], check=False)


if __name__ == '__main__':
    main(*sys.argv[1:])
