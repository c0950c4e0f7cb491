package mountinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, line string
		want       Mount // without its Line; empty: the line is omitted
	}{
		{
			"no optional field", "22 28 0:21 / /sys rw,relatime - sysfs sysfs rw",
			Mount{ID: 22, Parent: 28, Device: "0:21", Root: "/", Point: "/sys", Type: "sysfs", Source: "sysfs", Options: "rw"},
		},
		{
			"optional fields", "33 30 8:1 /box /m/a ro shared:11 master:3 propagate_from:2 - fuse.x forerunner ro,a=1",
			Mount{ID: 33, Parent: 30, Device: "8:1", Root: "/box", Point: "/m/a", Type: "fuse.x", Source: "forerunner", Options: "ro,a=1"},
		},
		{
			"escapes", `34 30 0:53 /a\040b /m/\011tab\012line\134back rw - overlay the\040\043source rw`,
			Mount{ID: 34, Parent: 30, Device: "0:53", Root: "/a b", Point: "/m/\ttab\nline\\back", Type: "overlay", Source: "the #source", Options: "rw"},
		},
		{
			"what looks like an escape", `35 30 0:54 /\0 /m/\04\999\777 rw - overlay x\ rw`,
			Mount{ID: 35, Parent: 30, Device: "0:54", Root: `/\0`, Point: `/m/\04\999\777`, Type: "overlay", Source: `x\`, Options: "rw"},
		},
		{
			"options as the kernel writes them", `35 30 0:54 / /m rw - overlay x rw,lowerdir=/a\040b - c d`,
			Mount{ID: 35, Parent: 30, Device: "0:54", Root: "/", Point: "/m", Type: "overlay", Source: "x", Options: `rw,lowerdir=/a\040b - c d`},
		},
		{
			"no source", "35 30 0:54 / /m rw - tmpfs  rw",
			Mount{ID: 35, Parent: 30, Device: "0:54", Root: "/", Point: "/m", Type: "tmpfs", Options: "rw"},
		},
		{"no number", "x 1 0:20 / /m rw - tmpfs x rw", Mount{}},
		{"no number of the parent", "24 x 0:20 / /m rw - tmpfs x rw", Mount{}},
		{"nothing", "", Mount{}},
		{"no file system", "24 1 0:20 / /m rw", Mount{}},
		{"no options of the file system", "24 1 0:20 / /m rw - tmpfs x", Mount{}},
		{"no options of the mount", "24 1 0:20 / /m - tmpfs x rw", Mount{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const next = "36 30 0:55 / /next rw - tmpfs x rw"
			var want []Mount
			if test.want != (Mount{}) {
				test.want.Line = test.line
				want = append(want, test.want)
			}
			want = append(want, Mount{ID: 36, Parent: 30, Device: "0:55", Root: "/", Point: "/next", Type: "tmpfs", Source: "x", Options: "rw", Line: next})
			for _, table := range []string{test.line + "\n" + next, test.line + "\n" + next + "\n"} {
				if got := Parse(table); !slices.Equal(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
		})
	}
}

// TestRead: existing mounts are found, whatever their names.
func TestRead(t *testing.T) {
	point := filepath.Join(t.TempDir(), "a,b:c #\\d\n\t")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("it is #1", point, "tmpfs", 0, ""); err != nil {
		if os.Getenv("CI") == "" || os.Geteuid() != 0 {
			t.Skipf("mount: %v", err)
		}
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(m Mount) bool { return m.Point == point })
	if i < 0 || all[i].Type != "tmpfs" || all[i].Source != "it is #1" || all[i].Root != "/" {
		t.Errorf("%q is not in %+v", point, all)
	}
}

// TestReachable compares what Read leaves out with where paths lead.
func TestReachable(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mount := func(source, at string) {
		t.Helper()
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, at, "tmpfs", 0, ""); err != nil {
			if os.Getenv("CI") == "" || os.Geteuid() != 0 {
				t.Skipf("mount: %v", err)
			}
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	seen := func() (sources []string) {
		all, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
				sources = append(sources, m.Source)
			}
		}
		slices.Sort(sources)
		return sources
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := seen(); !slices.Equal(got, want) {
			t.Errorf("%s: reachable are %q, want %q", when, got, want)
		}
	}
	over := filepath.Join(dir, "over")
	mount("a", filepath.Join(over, "roots"))
	mount("b", filepath.Join(over, "roots", "below"))
	mount("beside", filepath.Join(dir, "over-beside"))
	expect("uncovered", "a", "b", "beside")
	mount("c", over)
	expect("below a cover", "beside", "c")
	mount("d", filepath.Join(over, "roots"))
	expect("new below the cover", "beside", "c", "d")
	mount("e", filepath.Join(over, "roots"))
	expect("one on another", "beside", "c", "d", "e")
	mount("f", filepath.Join(over, "roots", "below"))
	mount("g", filepath.Join(over, "roots"))
	expect("below the uppermost", "beside", "c", "d", "e", "g")
	if err := unix.Unmount(over, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	expect("uncovered again", "a", "b", "beside")
}

// TestStacked: a table with as many mounts on one another as a machine may have is read soon, and so
// is one that is not true, with a circle.
func TestStacked(t *testing.T) {
	const many = 100_000
	var all []Mount
	for id := range many {
		all = append(all, Mount{ID: id + 1, Parent: id, Point: "/a/b"})
	}
	if got := reachable(slices.Clone(all)); len(got) != many {
		t.Errorf("%d mounts are reachable", len(got))
	}
	over := Mount{ID: many + 1, Parent: 0, Point: "/a"}
	if got := reachable(append(slices.Clone(all), over)); len(got) != 1 || got[0] != over {
		t.Errorf("%d mounts are reachable below another one", len(got))
	}
	all[0].Parent = many
	if got := reachable(all); len(got) != many {
		t.Errorf("%d mounts of a circle are reachable", len(got))
	}
}
