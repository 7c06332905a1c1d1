# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL cluster for tests: its own directory, a Unix socket, nothing on the network.

    with Cluster(top, max_prepared_transactions=20) as cluster:
        cluster.sql('create table ...')
"""

import glob
import os
import subprocess
from pathlib import Path

SERVER_UID = 65534  # initdb refuses root


def binary(name):
    found = sorted(glob.glob(f'/usr/lib/postgresql/*/bin/{name}'), key=lambda p: int(p.split('/')[4]))
    if not found:
        raise FileNotFoundError(f'no {name}: PostgreSQL is not installed')
    return found[-1]


class Cluster:
    role, database = 'app', 'shop'

    def __init__(self, top, **settings):
        self.data, self.socket = Path(top) / 'pg', Path(top) / 'sock'
        self.settings = {'max_prepared_transactions': 20, 'fsync': 'off', 'listen_addresses': "''",
                         'unix_socket_directories': f"'{self.socket}'", 'shared_buffers': '16MB', **settings}

    def server(self, *argv, check=True):
        down = ['setpriv', f'--reuid={SERVER_UID}', f'--regid={SERVER_UID}', '--clear-groups'] \
            if os.geteuid() == 0 else []
        return subprocess.run([*down, *map(str, argv)], cwd='/', check=check, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        for folder in (self.data, self.socket):
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(folder, SERVER_UID, SERVER_UID)
        self.socket.chmod(0o755)
        self.server(binary('initdb'), '-D', self.data, '-U', 'postgres', '-A', 'trust', '-N')
        with open(self.data / 'postgresql.conf', 'a', encoding='utf-8') as conf:
            conf.writelines(f'{name} = {value}\n' for name, value in self.settings.items())
        self.start()
        self.sql(f'create role {self.role} login', user='postgres', database='postgres')
        self.sql(f'create database {self.database} owner {self.role}', user='postgres', database='postgres')
        return self

    def __exit__(self, *_):
        self.stop('immediate')

    def start(self):
        self.running = True
        self.server(binary('pg_ctl'), '-D', self.data, '-l', self.data / 'log', '-w', 'start')

    def stop(self, how='fast'):
        self.running = False
        self.server(binary('pg_ctl'), '-D', self.data, '-m', how, '-w', 'stop', check=False)

    @property
    def url(self):
        return f'postgres:///{self.database}?host={self.socket}&user={self.role}'

    def sql(self, text, user=None, database=None):
        """What the statements print, unaligned, past every sandbox."""
        done = subprocess.run([binary('psql'), '-XqAt', '-v', 'ON_ERROR_STOP=1', '-h', str(self.socket), '-U',
                               user or self.role, '-d', database or self.database], input=text, check=False,
                              capture_output=True, text=True, timeout=300,
                              env=dict(os.environ, PGOPTIONS='-c lock_timeout=120s'))
        if done.returncode:
            raise AssertionError(f'psql: {done.stderr}')
        return done.stdout.strip()
