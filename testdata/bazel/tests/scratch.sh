#!/bin/bash
# Needs the folders that bazel promises to a test: they must be there and writable.
set -eu
echo "kept for the reader" > "$TEST_UNDECLARED_OUTPUTS_DIR/note.txt"
echo scratch > "$TEST_TMPDIR/scratch"
[ "$(cat "$TEST_TMPDIR/scratch")" = scratch ]
