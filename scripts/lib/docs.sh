# SPDX-License-Identifier: Apache-2.0
# docs.sh -- the documentation site, built into build/docs.

readonly DOCS_TOOLS='sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19 breathe==5.1.0'

# They stand beside the frameworks, because the reference of the Python package imports narrows.torch and narrows.jax.
fetch_docs_tools() {
  step docs-tools
  if [ "$(cat "$PYENV/docs-tools" 2>/dev/null)" != "$DOCS_TOOLS" ]; then
    # shellcheck disable=SC2086 # the words of a list
    logged docs-tools.log retried "$PYENV/bin/python" -m pip install --disable-pip-version-check $DOCS_TOOLS
    printf '%s' "$DOCS_TOOLS" >"$PYENV/docs-tools"
  fi
  done_with "$DOCS_TOOLS"
}

# A warning fails: a public name without a comment.
read_headers() {
  step headers
  (cd -- "$NARROWS_ROOT" && logged doxygen.log doxygen docs/Doxyfile)
  done_with "$(find "$NARROWS_ROOT/build/doxygen/xml" -name 'struct*.xml' | wc -l) structs"
}

# A warning fails: a link to a page or a heading that does not exist, an object without documentation.
build_site() {
  step site
  PYTHONPATH=$NARROWS_ROOT/build/cpu/python logged docs.log "$PYENV/bin/python" -m sphinx -q -W --keep-going -j 2 -b html \
    "$NARROWS_ROOT/docs" "$NARROWS_ROOT/build/docs"
  done_with "$(find "$NARROWS_ROOT/build/docs" -name '*.html' | wc -l) pages, $NARROWS_ROOT/build/docs/index.html"
}

open_site() {
  step browser
  logged browser.log python3 "$NARROWS_ROOT/tests/docs/browser.py" "$NARROWS_ROOT/build/docs" "$(browser_command)"
  done_with "$(tail -n 1 "$LOG/browser.log") in $("$(browser_command)" --version 2>/dev/null)"
}

docs() {
  begin docs 8
  require build python docs
  fetch_dlpack
  fetch_python_tools
  fetch_docs_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cpu narrows_command narrows_cpu narrows_python
  read_headers
  build_site
  open_site
}
