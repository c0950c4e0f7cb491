"""A rule with one action that reads nothing at all."""

def _inputless_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.run_shell(
        outputs = [out],
        # Counted before the shell makes the output.
        command = "n=$(find . -type f | wc -l) && echo $n > " + out.path,
        mnemonic = "Inputless",
    )
    return [DefaultInfo(files = depset([out]))]

inputless = rule(implementation = _inputless_impl)
