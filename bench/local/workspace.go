package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The files of each package of the workspace. A package has perPackage actions: a compilation for
// each unit, one archive, a sort for each list, and a test with the action that writes its report.
const (
	units, lists = 5, 3
	perPackage   = units + 1 + lists + 2

	unitFunctions, listLines = 12, 2000
)

// stubs replace external repositories that Bazel's own files require, so that Bazel does not
// download them.
var stubs = map[string]string{
	"WORKSPACE": `workspace(name = "forerunner_bench")

[local_repository(name = name, path = "stubs/" + name) for name in ("remote_coverage_tools", "rules_cc", "rules_java")]
`,
	"stubs/remote_coverage_tools/WORKSPACE": "",
	"stubs/remote_coverage_tools/none.sh":   "#!/bin/sh\nexit 1\n",
	"stubs/remote_coverage_tools/BUILD": `package(default_visibility = ["//visibility:public"])

[sh_binary(name = name, srcs = ["none.sh"]) for name in ("coverage_report_generator", "lcov_merger")]
`,
	"stubs/rules_cc/WORKSPACE": "", "stubs/rules_cc/BUILD": "", "stubs/rules_cc/cc/BUILD": "",
	"stubs/rules_cc/cc/defs.bzl":     natives("cc", "binary", "import", "library", "proto_library", "test", "toolchain", "toolchain_suite") + "objc_library = native.objc_library\n",
	"stubs/rules_java/WORKSPACE":     "",
	"stubs/rules_java/BUILD":         "",
	"stubs/rules_java/java/BUILD":    "",
	"stubs/rules_java/java/defs.bzl": natives("java", "binary", "import", "library", "plugin", "proto_library", "runtime", "test", "toolchain"),
}

// natives returns a .bzl file that forwards names to built-in rules.
func natives(language string, rules ...string) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%[1]s_%[2]s = native.%[1]s_%[2]s\n", language, r)
	}
	return b.String()
}

// writeWorkspace writes a workspace with that many packages to a folder that must not exist. All
// actions differ.
func writeWorkspace(dir string, packages int) error {
	for name, text := range stubs {
		if err := writeSource(dir, name, text); err != nil {
			return err
		}
	}
	for p := range packages {
		for name, text := range packageSources(p) {
			if err := writeSource(dir, fmt.Sprintf("actions/p%03d/%s", p, name), text); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeSource(dir, name, text string) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o755)
}

func packageSources(p int) map[string]string {
	files := map[string]string{
		"BUILD": fmt.Sprintf(`cc_library(
    name = "lib",
    srcs = ["unit%%d.c" %% i for i in range(%d)],
    hdrs = ["lib.h"],
    linkstatic = True,
)

[genrule(
    name = "sorted%%d" %% i,
    srcs = ["list%%d.txt" %% i],
    outs = ["sorted%%d.txt" %% i],
    cmd = "sort -u $< > $@",
) for i in range(%d)]

sh_test(
    name = "test",
    size = "small",
    srcs = ["test.sh"],
    data = [":sorted%%d" %% i for i in range(%d)],
)
`, units, lists, lists),
		"lib.h":   fmt.Sprintf("#pragma once\n#define PACKAGE %d\nstruct pair { int key; const char *value; };\n", p),
		"test.sh": fmt.Sprintf("#!/bin/sh\nset -e\nfor i in 0 1 2; do sort -c actions/p%03d/sorted$i.txt; done\n", p),
	}
	for u := range units {
		var b strings.Builder
		b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"actions/p")
		fmt.Fprintf(&b, "%03d/lib.h\"\n", p)
		for f := range unitFunctions {
			fmt.Fprintf(&b, "int f%d_%d_%d(struct pair *p, int n) {\n\tfor (int i = 0; i < n; i++)\n"+
				"\t\tif (p[i].key == PACKAGE + %d) return printf(\"%%s\\n\", p[i].value);\n\treturn abs(n);\n}\n", p, u, f, f)
		}
		files[fmt.Sprintf("unit%d.c", u)] = b.String()
	}
	for l := range lists {
		var b strings.Builder
		seed := uint32(p*lists + l + 1)
		for range listLines {
			seed = seed*1664525 + 1013904223 // a linear congruential generator makes the same lists on every machine
			fmt.Fprintf(&b, "%08x\n", seed)
		}
		files[fmt.Sprintf("list%d.txt", l)] = b.String()
	}
	return files
}
