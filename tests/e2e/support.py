"""What the end-to-end tests share: a server of real processes, requests, and a look at /proc.

Only Python's standard library. BUILD names the folder of the programs (environment COPSE_BUILD).
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("COPSE_BUILD", ROOT / "build"))
MODEL = ROOT / "models/sapling"
DRAFTER = ROOT / "models/sapling-dflash"
# Sanitizers slow everything down; the tests' own deadlines stretch with this.
SLOW = float(os.environ.get("COPSE_TEST_SLOWNESS", "1"))


def wait_until(condition, seconds, what):
    """The first true value of condition(); fails with `what` after so many seconds."""
    deadline = time.monotonic() + seconds * SLOW
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid):
    """{pid: name} of every process below pid."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                head, tail = (entry / "stat").read_text().rsplit(")", 1)
                name = pathlib.Path((entry / "cmdline").read_bytes().split(b"\0")[0].decode()).name
                parent = int(tail.split()[1])
                children.setdefault(parent, []).append((int(entry.name), name or head))
    found, queue = {}, [pid]
    while queue:
        for child, name in children.get(queue.pop(), []):
            found[child] = name
            queue.append(child)
    return found


def listening_addresses(pids):
    """Addresses of the TCP sockets on which these processes listen, as (host, port)."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(fd)
                    if target.startswith("socket:["):
                        inodes.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # 0A: LISTEN
                host, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def run_copse(*arguments, timeout=120):
    return subprocess.run(
        [str(BUILD / "copse"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout * SLOW,
        cwd=ROOT,
    )


def generate(*arguments, **options):
    """The JSON object of `copse generate --json` with the embedded pair."""
    done = run_copse(
        "generate", "--model", MODEL, "--drafter", DRAFTER, "--json", *arguments, **options
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


class Server:
    """`copse serve` with the embedded pair on a free port; use as a context manager."""

    def __init__(self, *arguments, tp=8, draft="auto", ready_s=90):
        self.folder = tempfile.TemporaryDirectory(prefix="copse-e2e-")
        self.port_file = pathlib.Path(self.folder.name, "port")
        self.log_path = pathlib.Path(self.folder.name, "log")
        self.log = open(self.log_path, "w")
        command = [str(BUILD / "copse"), "serve", "--model", str(MODEL)]
        command += ["--drafter", str(DRAFTER), "--tp", str(tp), "--draft", draft]
        command += ["--port", "0", "--port-file", str(self.port_file), "--log-level", "info"]
        self.process = subprocess.Popen(
            command + [str(a) for a in arguments], stderr=self.log, stdout=self.log, cwd=ROOT
        )
        self.seen = {}
        try:
            self.wait_ready(ready_s)
        except BaseException:
            print(self.log_path.read_text()[-4000:], file=sys.stderr)
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print(self.log_path.read_text()[-4000:], file=sys.stderr)
        self.stop()

    def wait_ready(self, seconds=90):
        def has_port():
            assert self.process.poll() is None, f"the server ended: {self.process.returncode}"
            return self.port_file.exists()

        wait_until(has_port, seconds, "the gateway has a port")
        wait_until(lambda: self.port_file.read_text().strip(), seconds, "the port is written")
        self.port = int(self.port_file.read_text())

        def ready():
            assert self.process.poll() is None, f"the server ended: {self.process.returncode}"
            with contextlib.suppress(OSError):
                return self.request("GET", "/health")[0] == 200

        wait_until(ready, seconds, "the server is ready")
        self.processes()

    def processes(self):
        """{pid: name} of the server's processes now; remembers all it ever saw."""
        now = descendants(self.process.pid)
        self.seen.update(now)
        return now

    def workers(self):
        """{rank: pid} of the living workers."""
        found = {}
        for pid, name in self.processes().items():
            if name == "copse-worker" and alive(pid):
                with contextlib.suppress(OSError, ValueError):
                    line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    found[int(line[line.index(b"--rank") + 1])] = pid
        return found

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, JSON or text, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            fields = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, data, fields)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            with contextlib.suppress(ValueError):
                return response.status, json.loads(text), dict(response.getheaders())
            return response.status, text, dict(response.getheaders())
        finally:
            connection.close()

    def complete(self, prompt, **fields):
        """The JSON of one completion that must succeed."""
        body = {"model": "sapling", "prompt": prompt, "temperature": 0, **fields}
        status, answer, _ = self.request("POST", "/v1/completions", body, timeout=120)
        assert status == 200, (status, answer)
        return answer

    def stream(self, prompt, on_chunk=None, path="/v1/completions", timeout=120, **fields):
        """(text, finish_reason, tokens) of a streamed completion; calls on_chunk(chunks so far)."""
        body = {"model": "sapling", "prompt": prompt, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}, **fields}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        text, finish, usage, chunks = "", None, None, 0
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            for line in response:
                if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[6:])
                assert "error" not in event, event
                for choice in event["choices"]:
                    text += choice["text"]
                    finish = choice["finish_reason"] or finish
                usage = event.get("usage") or usage
                chunks += 1
                if on_chunk is not None:
                    on_chunk(chunks)
        finally:
            connection.close()
        return text, finish, usage["completion_tokens"]

    def metric(self, name):
        """The sum of a metric's samples over its labels."""
        text = self.request("GET", "/metrics")[1]
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.split("{")[0].split(" ")[0] == name
        ]
        assert values, f"no metric {name}"
        return sum(values)

    def stop(self):
        self.processes()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(45 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        self.folder.cleanup()
        return self.process.returncode
