"""Helpers for all scripts: servers by environment variable, parts by name, waiting for conditions."""

import os
import sys
import time
import traceback


def address(name):
    host, port = os.environ[name].rsplit(":", 1)
    return host, int(port)


def equal(given, expected, what=""):
    assert given == expected, f"{what}: {given!r} instead of {expected!r}"


def until(what, holds, deadline_s=20):
    """Waits until the condition holds; `holds` may raise in between."""
    end = time.monotonic() + deadline_s
    problem = None
    while time.monotonic() < end:
        try:
            if holds():
                return
        except Exception as error:
            problem = error
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_s} s: {what} ({problem})")


def fails(call, *words):
    """Expects the call to fail with an error whose text contains these words."""
    try:
        given = call()
    except Exception as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in {error!r}"
        return
    raise AssertionError(f"no error with {words}, but {given!r}")


def restart():
    """Asks the test, with a line of output, to restart the server on the same port."""
    print("restart", flush=True)
    sys.stdin.readline()


def run(parts):
    """Runs the parts named by the arguments; exits with 1 if one failed."""
    is_good = True
    for name in sys.argv[1:]:
        try:
            parts[name]()
            print(f"ok {name}", flush=True)
        except Exception:
            is_good = False
            print(f"failed {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(0 if is_good else 1)
