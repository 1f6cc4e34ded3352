"""Guarded work in Python: one unit at a time, only while this pod leads. Standard library only."""

import json
import os
import signal
import time
import urllib.request

URL = os.environ.get("TENURE_URL", "http://localhost:4040")
# Counts suspended time, unlike time.monotonic() on Linux.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# What urllib would send through a proxy is for this pod only.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

stopping = False


def stop(*_):
    global stopping
    stopping = True


def now():
    return time.clock_gettime(CLOCK)


def ask():
    """(epoch, deadline) of a grant of at most 2 s, or None. No answer is no grant."""
    asked = now()
    try:
        with OPENER.open(f"{URL}/leader?max_valid=2s", timeout=2) as answer:
            said = json.load(answer)
    except (OSError, ValueError):
        return None
    if not said["leader"]:
        return None
    return said["epoch"], asked + (said["waited_ms"] + said["valid_for_ms"]) / 1000


def work(epoch, deadline):
    """One unit: much shorter than a grant, and with its epoch on every write."""
    if now() < deadline:
        print(f"work epoch={epoch}", flush=True)
        time.sleep(0.2)


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
working = None
while not stopping:
    grant = ask()
    if grant:
        working = grant[0]
        work(*grant)
    else:
        if working:
            print("stop", flush=True)
        working = None
        time.sleep(0.2)

if working:
    # Nothing is running any more: let another lead at once.
    body = json.dumps({"epoch": working}).encode()
    OPENER.open(urllib.request.Request(f"{URL}/release", data=body, method="POST"), timeout=10)
