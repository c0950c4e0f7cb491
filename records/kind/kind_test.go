package kind

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

func TestToolOf(t *testing.T) {
	for command, want := range map[string]string{
		"":                           "",
		"/usr/bin/gcc -c a.c":        "/usr/bin/gcc",
		"env A=b /usr/bin/gcc -c":    "/usr/bin/gcc",
		"env":                        "env",
		"/usr/bin/env -i X= bash x":  "bash x",
		"node a/webpack.js --mode x": "node a/webpack.js",
		"node --max-old-space-size=4096 -r ./hook a/tsc.js -p x": "node a/tsc.js",
		"node -e text":                          "node -e",
		"python3 -m pip install":                "python3 -m pip",
		"/usr/bin/python3.11 -W ignore -B x.py": "/usr/bin/python3.11 x.py",
		"python3 -c print":                      "python3 -c",
		"python3":                               "python3",
		"python3 -m":                            "python3 -m",
		"sh build.sh a":                         "sh build.sh",
		"bash -eu -o pipefail x.sh":             "bash x.sh",
		"bash -ec|cd a && gcc -c b.c":           "bash -c gcc",
		"bash -c|set -e; source x.sh; A=b \"a/tool\" x > y": "bash -c a/tool",
		"sh -c|exec python3 -m x y":                         "sh -c python3 -m x",
		"sh -c|cd a":                                        "sh -c cd",
		"sh -c|":                                            "sh -c",
		"sh -c":                                             "sh -c",
		"java -Xmx1g -cp a.jar:b.jar com.example.Main x": "java com.example.Main",
		"java -Xmx1g -jar a/JavaBuilder.jar @params":     "java -jar a/JavaBuilder.jar",
		"perl -I lib x.pl": "perl x.pl",
	} {
		words, text, hasText := strings.Cut(command, "|")
		args := strings.Fields(words)
		if hasText {
			args = append(args, text)
		}
		if got := ToolOf(args); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestLongToolsAreHashed(t *testing.T) {
	long := strings.Repeat("x", 10*maxTool)
	a, b := ToolOf([]string{"sh", long + "a"}), ToolOf([]string{"sh", long + "b"})
	if a == b || len(a) != maxTool || len(b) != maxTool || !strings.HasPrefix(a, "sh xxx") {
		t.Errorf("%q and %q", a, b)
	}
	nested := strings.Repeat("sh -c ", 1000)
	if got := ToolOf([]string{"sh", "-c", nested}); len(got) > maxTool {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzToolOf(f *testing.F) {
	f.Add("bash", "-c", "cd a && x")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if got := ToolOf([]string{a, b, c}); len(got) > maxTool {
			t.Errorf("%d bytes", len(got))
		}
	})
}

func TestKindsDiffer(t *testing.T) {
	base := Kind{Mnemonic: "CppCompile", Tool: "g++", Platform: "os=linux"}
	seen := map[digest.Digest]Kind{}
	for _, k := range []Kind{
		base,
		{Mnemonic: "x", Tool: base.Tool, Platform: base.Platform},
		{Mnemonic: base.Mnemonic, Tool: "x", Platform: base.Platform},
		{Mnemonic: base.Mnemonic, Tool: base.Tool, Platform: "x"},
		{Mnemonic: base.Mnemonic, Tool: base.Tool, Platform: base.Platform, Configuration: "x"},
		{Mnemonic: base.Tool, Tool: base.Mnemonic, Platform: base.Platform},
	} {
		d, ok := k.Digest(digest.SHA256)
		if other, twice := seen[d]; twice || !ok {
			t.Errorf("%+v is %+v (%t)", k, other, ok)
		}
		seen[d] = k
	}
	if _, ok := (Kind{Platform: "os=linux", Configuration: "x"}).Digest(digest.SHA256); ok {
		t.Error("an unknown action counts as similar to others")
	}
}
