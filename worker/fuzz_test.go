package worker

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
)

// FuzzCommand reads arbitrary Commands. An accepted one can be run, and stays in its input root.
func FuzzCommand(f *testing.F) {
	for _, m := range []*repb.Command{
		{Arguments: []string{"/bin/true"}, OutputPaths: []string{"a", "../b/c", ""}, WorkingDirectory: "x/y"},
		{Arguments: []string{"a", "b"}, EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "A", Value: "b=c"}, {Name: "="}}},
		{Arguments: []string{"a"}, OutputFiles: []string{"x/../../y"}, OutputDirectories: []string{"/etc"}, WorkingDirectory: "../x"},
		{Arguments: []string{"a\x00b"}, WorkingDirectory: "/"},
		{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		m := &repb.Command{}
		if proto.Unmarshal(encoded, m) != nil {
			return
		}
		c, err := parseCommand(m)
		if err != nil {
			return
		}
		if len(c.args) == 0 || !fs.ValidPath(c.WorkingDirectory) {
			t.Errorf("arguments %q in %q", c.args, c.WorkingDirectory)
		}
		for _, o := range c.Paths {
			if !fs.ValidPath(o.Full) || strings.Contains(o.Full, "\x00") {
				t.Errorf("output %q is %q", o.Given, o.Full)
			}
		}
		for _, text := range append(c.env, c.args...) {
			if strings.Contains(text, "\x00") {
				t.Errorf("%q contains NUL", text)
			}
		}
		// Everything that it names is created below the root, whatever exists there.
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if len(encoded) < math.MaxInt8 {
			_ = c.Prepare(root)
		}
		if others, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(others) != 1 {
			t.Errorf("beside the root is %v, %v", others, err)
		}
	})
}
