package scratch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// made are files whose sizes a test says. Its methods count the measurements.
type made struct {
	named, nameless, used, free atomic.Int64
	late                        bool // the file system tells nothing
	walks, looks                atomic.Int64
}

func (m *made) files(most int64) Files {
	return Files{
		Most:  most,
		Named: func(int64) int64 { m.walks.Add(1); return m.named.Load() },
		Nameless: func(context.Context, int64) int64 {
			m.looks.Add(1)
			return m.nameless.Load()
		},
		Disks: func() Disks { return Disks{Used: m.used.Load(), Free: m.free.Load(), Prompt: !m.late} },
	}
}

const gib = 1 << 30

// TestQuietFilesAreNotMeasured: a command that writes little against what it may has its files
// measured every few seconds, and where the file system does not tell, twice a second.
func TestQuietFilesAreNotMeasured(t *testing.T) {
	for name, want := range map[string]int64{"prompt": 12, "late": 118} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &made{late: name == "late"}
				m.free.Store(100 * gib)
				w := m.files(50*gib).Begin(t.Context(), func() { t.Error("it was stopped") })
				for range 600 { // a little of everything all the time
					time.Sleep(99 * time.Millisecond)
					m.named.Add(1 << 20)
					m.used.Add(1 << 20)
				}
				synctest.Wait()
				if peak, exceeded := w.End(); exceeded || peak < m.named.Load()*9/10 {
					t.Errorf("it has seen %d of %d bytes, too many: %v", peak, m.named.Load(), exceeded)
				}
				if walks, looks := m.walks.Load()-1, m.looks.Load(); walks != want || looks != walks { // and at the end
					t.Errorf("while it ran, files were measured %d times, those without names %d times, want %d", walks, looks, want)
				}
			})
		})
	}
}

// TestTooMuchIsSeen: the next look sees that there is too much.
func TestTooMuchIsSeen(t *testing.T) {
	for name, write := range map[string]func(m *made, n int64){
		"named":                  func(m *made, n int64) { m.named.Add(n); m.used.Add(n) },
		"without a name":         func(m *made, n int64) { m.nameless.Add(n); m.used.Add(n) },
		"others free afterwards": func(m *made, n int64) { m.named.Add(n); m.used.Add(n); time.Sleep(interval); m.used.Add(-n) },
		"others freed before":    func(m *made, n int64) { m.used.Add(-3 * n); time.Sleep(interval); m.named.Add(n); m.used.Add(n) },
		"on a full disk":         func(m *made, n int64) { m.free.Store(1); m.named.Add(n); m.used.Add(n) },
		"not prompt":             func(m *made, n int64) { m.named.Add(n) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &made{late: name == "not prompt"}
				m.free.Store(100 * gib)
				var stopped atomic.Bool
				w := m.files(4*gib).Begin(t.Context(), func() { stopped.Store(true) })
				time.Sleep(7*time.Second + interval/2) // between two looks
				before := m.walks.Load()
				write(m, 3*gib)
				time.Sleep(interval)
				synctest.Wait()
				if stopped.Load() || m.walks.Load() == before {
					t.Errorf("three quarters of the limit: stopped %v after %d walks", stopped.Load(), m.walks.Load()-before)
				}
				write(m, gib+1)
				time.Sleep(2 * interval) // those with and without names may be measured in either order
				synctest.Wait()
				if !stopped.Load() {
					t.Error("it was not stopped beyond the limit")
				}
				if peak, exceeded := w.End(); !exceeded || peak != 4*gib+1 {
					t.Errorf("too much: %v, %d bytes", exceeded, peak)
				}
			})
		})
	}
}

// TestShortCommand is over before the first measurement. It is measured then, unless the disks say
// that it is far from its limit.
func TestShortCommand(t *testing.T) {
	for name, c := range map[string]struct {
		most, named, used int64
		late              bool
		walks             int64
		exceeds           bool
	}{
		"wrote little":           {most: 50 * gib, named: gib, used: gib},
		"wrote much":             {most: 50 * gib, named: 13 * gib, used: 13 * gib, walks: 1},
		"wrote too much":         {most: 50 * gib, named: 51 * gib, used: 51 * gib, walks: 1, exceeds: true},
		"others freed":           {most: 50 * gib, used: -gib},
		"little is allowed":      {most: gib / 2, named: 1, used: 1, walks: 1},
		"too much of the little": {most: gib / 2, named: gib, used: -gib, walks: 1, exceeds: true},
		"not prompt":             {most: 50 * gib, named: 51 * gib, late: true, walks: 1, exceeds: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &made{late: c.late}
				m.used.Store(100 * gib)
				w := m.files(c.most).Begin(t.Context(), func() {})
				time.Sleep(interval - 1)
				m.named.Add(c.named)
				m.used.Add(c.used)
				if _, exceeds := w.End(); exceeds != c.exceeds || m.walks.Load() != c.walks {
					t.Errorf("measured %d times, too much: %v", m.walks.Load(), exceeds)
				}
			})
		})
	}
}

// TestPromptDisks: file systems that are said to be prompt tell of bytes that are not yet on the
// disk and of empty files.
func TestPromptDisks(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "tmpfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := mounted(t, kind)
			before := DisksOf(dir)
			if !before.Prompt {
				t.Fatal("it is not prompt")
			}
			const bytes, files = 64 << 20, 2000
			if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, bytes), 0o600); err != nil {
				t.Fatal(err)
			}
			written := DisksOf(dir, dir)
			if grown := written.Used - 2*before.Used; grown < 2*bytes || written.Free > before.Free-bytes {
				t.Errorf("after %d bytes it uses %d more for each folder, and has %d instead of %d", bytes, grown/2, written.Free, before.Free)
			}
			for i := range files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if grown := DisksOf(dir).Used - written.Used/2; grown < files*folder.EntryBytes {
				t.Errorf("after %d files it uses %d more", files, grown)
			}
		})
	}
	if d := DisksOf(t.TempDir(), "/proc"); d != (Disks{}) {
		t.Errorf("of /proc it knows %+v", d)
	}
}

// mounted returns where a new file system is mounted.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-scratch-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at, image := filepath.Join(dir, "at"), filepath.Join(dir, "image")
	steps := [][]string{{"mkdir", at}, {"truncate", "-s", "512M", image}, {"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, at}}
	if kind == "tmpfs" {
		steps = [][]string{{"mkdir", at}, {"mount", "-t", "tmpfs", "-o", "size=512M", "none", at}}
	}
	for _, s := range steps {
		if _, err := exec.LookPath(s[0]); err != nil {
			t.Skip(err)
		}
		if out, err := exec.Command(s[0], s[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", s, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}
