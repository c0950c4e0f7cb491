"""Tree artifacts: one rule that makes a tree with symlinks in it, one that reads it."""

_MAKE = """
set -eu
mkdir -p "$1/docs/old" "$1/bin"
printf 'first\\n' > "$1/docs/a.txt"
printf 'second\\n' > "$1/docs/old/b.txt"
printf '#!/bin/sh\\necho ran from a tree\\n' > "$1/bin/run"
chmod 0755 "$1/bin/run"
: > "$1/docs/empty.txt"
for i in $(seq 1 200); do echo "$i" > "$1/docs/old/n$i"; done
ln -s a.txt "$1/docs/sibling"
ln -s ../bin/run "$1/docs/up"
ln -s docs/old "$1/folder"
"""

_LIST = """
set -eu
out=$PWD/$2
cd "$1"
{
    find -L . -type f | LC_ALL=C sort | xargs sha256sum
    ./docs/up
    cat folder/b.txt
} > "$out"
"""

def _tree_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        outputs = [out],
        arguments = [out.path],
        command = _MAKE,
        mnemonic = "MakeTree",
    )
    return [DefaultInfo(files = depset([out]))]

tree = rule(implementation = _tree_impl)

def _listing_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.run_shell(
        inputs = ctx.files.tree,
        outputs = [out],
        arguments = [ctx.files.tree[0].path, out.path],
        command = _LIST,
        mnemonic = "ListTree",
    )
    return [DefaultInfo(files = depset([out]))]

listing = rule(
    implementation = _listing_impl,
    attrs = {"tree": attr.label(mandatory = True)},
)
