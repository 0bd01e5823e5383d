"""Starts the real octetd for each test that asks, and demands that it ends with status 0: under a sanitizer
any report makes that another number."""
import os
import pathlib
import signal
import subprocess

import grpc
import pytest

HERE = pathlib.Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--octetd", required=True)
    parser.addoption("--slow", required=True, help="the daemon with the Sleep method")


class Daemon:
    def __init__(self, program, directory, config="", listen="127.0.0.1:0", extra=()):
        self.log = directory / "octetd.log"
        settings = directory / "octetd.yml"
        settings.write_text(config)
        self.process = subprocess.Popen(
            [program, "--listen", listen, "--config", str(settings), *extra],
            stdout=subprocess.PIPE, stderr=self.log.open("ab"), text=True)
        line = self.process.stdout.readline()
        assert " listening on " in line, f"{line!r}; log: {self.log.read_text()}"
        self.first_line = line
        self.address = line.split(" listening on ")[1].strip()
        self.channels = []

    def channel(self, credentials=None, options=()):
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), *options]
        channel = (grpc.secure_channel(self.address, credentials, options) if credentials
                   else grpc.insecure_channel(self.address, options))
        self.channels.append(channel)
        return channel

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(60)

    def stop(self):
        for channel in self.channels:
            channel.close()
        if self.process.poll() is None:
            self.signal()
        status = self.wait()
        assert status == 0, f"status {status}; log: {self.log.read_text()[-4000:]}"


@pytest.fixture
def start(request, tmp_path):
    daemons = []

    def start_one(slow=False, **settings):
        directory = tmp_path / str(len(daemons))
        directory.mkdir()
        program = request.config.getoption("--slow" if slow else "--octetd")
        daemons.append(Daemon(program, directory, **settings))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.stop()
