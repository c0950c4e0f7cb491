package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestOwnersOfLinkedInputs: hard links belong to an owner who is root of a namespace, also in a
// kept tree, and his changes are his alone. If that is impossible, it is reported.
func TestOwnersOfLinkedInputs(t *testing.T) {
	owner := Owner{UID: 1900000000, GID: 1900000000}
	namespace, err := sandbox.UserNamespace(&sandbox.User{UID: owner.UID, GID: owner.GID, IDs: 1 << 16})
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer func() { _ = namespace.Close() }()
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = none.Close() }()
	for name, c := range map[string]struct {
		namespace *os.File
		want      Owner // of inputs
		warnings  int
	}{"a namespace": {namespace, owner, 0}, "none": {none, Owner{}, 1}} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zapcore.WarnLevel)
			f := openFS(t, Options{Method: HardLink, Namespaces: map[Owner]*os.File{owner: c.namespace}, Logger: zap.New(core)})
			if got := logs.FilterMessageSnippet("ID-mapped").Len(); got != c.warnings {
				t.Errorf("%d warnings, want %d", got, c.warnings)
			}
			src := vfstest.NewSource(t)
			paths := []string{"file", "ln -> file"}
			for i := range 300 {
				paths = append(paths, fmt.Sprintf("kept/%d/file%d", i%10, i))
			}
			root := src.Tree(t, paths...)
			for i := range 3 { // the second one keeps a tree
				r := openRoot(t, f, RootSpec{Name: string(rune('a' + i)), Digest: root, Source: src, Owner: &owner})
				for _, p := range []string{"file", "ln", "kept/3/file3"} {
					info, err := os.Lstat(filepath.Join(r.Path(), p))
					if err != nil {
						t.Fatal(err)
					}
					if st := info.Sys().(*syscall.Stat_t); (Owner{UID: st.Uid, GID: st.Gid}) != c.want {
						t.Errorf("root %d: %s is %d's and %d's", i, p, st.Uid, st.Gid)
					}
				}
				for _, p := range []string{"file", "kept/3/file3"} {
					if got := string(mustRead(t, filepath.Join(r.Path(), p))); got != "content of "+filepath.Base(p) {
						t.Errorf("root %d: %s has %q", i, p, got)
					}
					if err := os.WriteFile(filepath.Join(r.Path(), p), []byte("mine"), 0); err != nil {
						t.Error(err)
					}
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
