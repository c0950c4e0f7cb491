package fuse

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// localSource has some blobs on the local disk. Both ways to open one are noted.
type localSource struct {
	*vfstest.Source
	local map[digest.Digest]string // paths

	mu    sync.Mutex
	calls []string
}

func (s *localSource) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *localSource) OpenLocal(_ context.Context, d digest.Digest) (*os.File, bool) {
	if s.local[d] == "" {
		return nil, false
	}
	s.note("local")
	file, err := os.Open(s.local[d])
	return file, err == nil
}

func (s *localSource) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	s.note("blob")
	return s.Source.OpenBlob(ctx, d)
}

// TestLocalOpens: a local file is opened without waiting; others, and local files of the wrong
// size, are opened as by a Source that has no local files. It is so for files that overlayfs opens
// to copy them up, as cat(1) seems to do, and for others.
func TestLocalOpens(t *testing.T) {
	opens := []string{"sh", "-c", `dd if="$0" iflag=noatime status=none`}
	for name, c := range map[string]struct {
		local   string // content of the local file; "": there is none
		program []string
		calls   []string // of each open
		waits   bool
	}{
		"local":             {"content of file", opens, []string{"blob told", "local"}, false},
		"elsewhere":         {"", opens, []string{"blob told", "blob"}, true},
		"cut off":           {"content", opens, []string{"blob told", "local", "blob"}, true},
		"copied, local":     {"content of file", []string{"cat"}, []string{"blob told", "local"}, false},
		"copied, elsewhere": {"", []string{"cat"}, []string{"blob told", "blob"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			src := &localSource{Source: vfstest.NewSource(t), local: map[digest.Digest]string{}}
			root := src.Tree(t, "file")
			d := src.Blob(t, "content of file")
			if c.local != "" {
				src.local[d] = filepath.Join(t.TempDir(), "blob")
				if err := os.WriteFile(src.local[d], []byte(c.local), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			driver, err := NewDriver(zaptest.NewLogger(t), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var stalls int
			l := driver.NewLayer(t.Context(), Options{
				Name: "local", Folder: filepath.Join(t.TempDir(), "layer"), Digest: root, Source: src,
				Owner: folder.ProcessOwner(), Inodes: NewInodes(),
				Hooks: Hooks{
					Read: func(*Node) {}, Blob: func(digest.Digest) { src.note("blob told") },
					Stall: func(time.Duration) {
						src.mu.Lock()
						defer src.mu.Unlock()
						stalls++
					},
				},
			})
			if _, err := src.Directory(t.Context(), root); err != nil { // it is local from now on
				t.Fatal(err)
			}
			hide := sync.OnceValue(l.Hide)
			t.Cleanup(func() { _ = hide() })
			vfstest.Shown(t, l.Show(t.Context()))
			out, err := exec.Command(c.program[0], append(c.program[1:], filepath.Join(l.InputFolder(), "file"))...).CombinedOutput()
			if string(out) != "content of file" || err != nil {
				t.Errorf("read %q, %v", out, err)
			}
			if err := hide(); err != nil {
				t.Error(err)
			}
			if calls := src.calls[:min(len(src.calls), len(c.calls))]; !slices.Equal(calls, c.calls) {
				t.Errorf("calls %q, want %q", src.calls, c.calls)
			}
			if waited := stalls > 0; waited != c.waits {
				t.Errorf("%d waits", stalls)
			}
		})
	}
}
