#!/bin/bash
# Passes; its log must hold both lines.
echo "this line is for stdout"
echo "this line is for stderr" >&2
cat tests/pass.txt
