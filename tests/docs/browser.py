# SPDX-License-Identifier: Apache-2.0
"""browser.py SITE BROWSER: opens the built site in a browser and looks at what its scripts made of the pages. Nothing may be missing."""

import functools
import http.server
import re
import subprocess
import sys
import threading

SITE, BROWSER = sys.argv[1:]
PAGES = {  # and what each shows; "search" is filled in by the site's scripts alone
    "index.html": ("Start", "Quickstart", "Tensor programs"),
    "guides/tensor_programs.html": ("mm_relu", "assert_allclose"),
    "reference/c.html": ("nw_launch", "nw_plan"),
    "search.html?q=conv1d": ("Search finished", "reference/python.html#narrows.conv1d"),
}


MISSING: list[str] = []


class Handler(http.server.SimpleHTTPRequestHandler):
    def send_error(self, code, message=None, explain=None):
        MISSING.append(f"{self.path}: {code}")
        super().send_error(code, message, explain)

    def log_message(self, format, *args):
        pass


def opened(address):
    """The page's document once its scripts have run, and the errors that they wrote to the console."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=8000", "--dump-dom"]
    done = subprocess.run([BROWSER, *options, address], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, re.findall(r"CONSOLE.*(?:Uncaught|Failed|Error).*", done.stderr)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    faults = []
    for page, shown in PAGES.items():
        document, errors = opened(f"http://127.0.0.1:{server.server_port}/{page}")
        faults += [f"{page}: {error}" for error in errors]
        faults += [f"{page} does not show {text!r}" for text in shown if text not in document]
    faults += [f"asked for and not there: {path}" for path in MISSING if "favicon" not in path]
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(PAGES)} pages opened")


main()
