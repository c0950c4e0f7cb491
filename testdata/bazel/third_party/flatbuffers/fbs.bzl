"""A C++ library of the header that flatc makes of one schema."""

def fbs_header(name, schema, flatc_args = [], **kwargs):
    """Runs flatc on a schema.

    flatc is a source of the action, not a tool, which Bazel would compile a second time, for the host.

    Args:
      name: name of the cc_library; the header is NAME_generated.h beside the schema.
      schema: the .fbs file.
      flatc_args: further arguments of flatc.
      **kwargs: passed to the cc_library.
    """
    header = schema.rpartition(".")[0] + "_generated.h"
    native.genrule(
        name = name + "_gen",
        srcs = [schema, "//third_party/flatbuffers:flatc"],
        outs = [header],
        cmd = " ".join(
            ["$(execpath //third_party/flatbuffers:flatc)", "--cpp"] + flatc_args +
            ["-o $$(dirname $@)", "$(execpath %s)" % schema],
        ),
    )
    native.cc_library(
        name = name,
        hdrs = [header],
        includes = [header.rpartition("/")[0] or "."],
        deps = ["//third_party/flatbuffers"],
        **kwargs
    )
