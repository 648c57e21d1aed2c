"""Does with az what az.tbl says, one line after the other, and tells of every line that did not go as it says.

The commands run in one process, by az's own entry point: starting az takes longer than most commands. Prints one JSON
object: how many lines there were, and what was wrong with those that failed.
"""

import contextlib
import io
import json
import os
import re
import socket
import sys
import time

import jmespath
from azure.cli.core import get_default_cli

CASE = re.compile(r"^(?:!(\d+) |(\w+)=([^= ]\S*) |(\S+?)==('[^']*'|\{\w+\}|\d+) )?(.*)$")


def know_localhost(resolve=socket.getaddrinfo):
    """Names below localhost are this machine (RFC 6761); not every resolver knows, and vaults have such names."""

    def known(host, *rest, **more):
        return resolve("localhost" if str(host).endswith(".localhost") else host, *rest, **more)

    socket.getaddrinfo = known


def invoke(words):
    """A command's exit code, answer and words to people."""
    said = io.StringIO()
    out = io.StringIO()
    cli = get_default_cli()
    with contextlib.redirect_stderr(said):
        try:
            code = cli.invoke([*words, "-o", "json"], out_file=out)
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:  # noqa: BLE001: whatever az does not handle is a finding
            code = 1
            said.write(f"{type(error).__name__}: {error}")
    if code and not said.getvalue():
        said.write(str(cli.result.error) if cli.result else "")
    return code or 0, out.getvalue(), said.getvalue()


def words_of(command, known):
    """Splits before names are filled in: what they stand for may have spaces."""
    return [re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), word) for word in command.split()]


def run(line, known):
    code, name, query, check, wanted, command = CASE.match(line).groups()
    expected = int(code or 0)
    got, answer, said = invoke(words_of(command, known))
    if got != expected:
        return f"ended with {got}, not {expected}: {said.strip()[-900:]}"
    if not (query or check):
        return None
    found = jmespath.search(query or check, json.loads(answer))
    if name:
        known[name] = str(found)
        return None if found else f"{query} is not in the answer"
    wanted = re.sub(r"\{(\w+)\}", lambda part: f"'{known[part[1]]}'", wanted)
    wanted = wanted[1:-1] if wanted.startswith("'") else int(wanted)
    return None if found == wanted else f"{check} is {found!r}, not {wanted!r}"


def main():
    table, known = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:])
    with open(table, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    wrong = []
    know_localhost()
    for line in lines:
        start = time.monotonic()
        trouble = run(line, known)
        if os.environ.get("VERBOSE"):
            print(f"{time.monotonic() - start:5.1f}", "ok " if not trouble else "BAD", line, flush=True, file=sys.stderr)
            if trouble:
                print("     ", trouble[:1500], flush=True, file=sys.stderr)
        if trouble:
            wrong.append({"line": line, "trouble": trouble})
    print(json.dumps({"lines": len(lines), "wrong": wrong}))


main()
