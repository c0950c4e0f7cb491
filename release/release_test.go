package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// staged returns a release of this checkout, and a stage with a stand-in for each program: to build
// them takes minutes.
func staged(t *testing.T) (r *release, stage string) {
	t.Helper()
	source, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	r, stage = &release{source: source, out: t.TempDir(), version: "1.2.3", time: time.Unix(1e9, 0).UTC()}, t.TempDir()
	write := func(name string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(filepath.Base(name)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range names {
		write(filepath.Join(stage, "amd64", p.name))
		write(filepath.Join(stage, p.name+"."+p.section))
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		write(filepath.Join(stage, "forerunner."+shell))
	}
	if err := r.packagedUnits(stage); err != nil {
		t.Fatal(err)
	}
	return r, stage
}

// made returns the only file of a release whose name ends so.
func made(t *testing.T, r *release, end string) []byte {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(r.out, "*"+end))
	if err != nil || len(list) != 1 {
		t.Fatalf("the release has %q, %v", list, err)
	}
	content, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// members are the files of an ar archive, which a Debian package is.
func members(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	rest, ok := bytes.CutPrefix(archive, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("this is no Debian package")
	}
	for len(rest) >= 60 {
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || len(rest) < 60+size {
			t.Fatalf("a member of %d bytes: %v", size, err)
		}
		all[strings.TrimRight(string(rest[:16]), " /")] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return all
}

// An entry is a file of an archive.
type entry struct {
	*tar.Header
	content string
}

// entries are the files of a compressed archive, by their paths.
func entries(t *testing.T, zipped []byte) map[string]entry {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]entry{}
	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all["/"+strings.Trim(strings.TrimPrefix(head.Name, "."), "/")] = entry{head, string(content)}
	}
}

// TestDebianPackage checks the content of the package: files, owners and modes, configuration
// files, and the program of each unit.
func TestDebianPackage(t *testing.T) {
	r, stage := staged(t)
	if err := r.pack(stage, "amd64", "deb"); err != nil {
		t.Fatal(err)
	}
	parts := members(t, made(t, r, ".deb"))
	data, control := entries(t, parts["data.tar.gz"]), entries(t, parts["control.tar.gz"])
	for path, e := range data {
		switch {
		case e.Uid != 0 || e.Gid != 0 || !e.ModTime.Equal(r.time):
			t.Errorf("%s is of user %d, group %d, %s", path, e.Uid, e.Gid, e.ModTime)
		case strings.HasPrefix(path, "/usr/local") || strings.HasPrefix(path, "/var"):
			t.Errorf("%s is an administrator's", path)
		case e.Typeflag == tar.TypeReg && e.Mode != wantedMode(path):
			t.Errorf("%s has mode %o", path, e.Mode)
		}
	}
	if got, want := strings.Fields(control["/conffiles"].content), []string{"/etc/forerunner/scheduler.env", "/etc/forerunner/worker.env"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("upgrades keep %q, want %q", got, want)
	}
	for _, script := range []string{"/postinst", "/prerm", "/postrm"} {
		if e, ok := control[script]; !ok || e.Mode&0o111 == 0 || !strings.HasPrefix(e.content, "#!/bin/sh\n") {
			t.Errorf("%s: mode %o\n%s", script, e.Mode, e.content)
		}
	}
	for _, name := range wantedDocuments {
		if _, ok := data["/usr/share/doc/forerunner/"+name]; !ok {
			t.Errorf("%s is missing in the documentation", name)
		}
	}
	units, err := r.units()
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range units {
		e, ok := data["/usr/lib/systemd/system/"+filepath.Base(unit)]
		_, started, _ := strings.Cut(e.content, "\nExecStart=")
		program, _, _ := strings.Cut(strings.TrimSpace(started), " ")
		if _, there := data[program]; !ok || !there {
			t.Errorf("%s starts %q, of %q", unit, program, slices.Sorted(maps.Keys(data)))
		}
		if !strings.Contains(control["/prerm"].content, filepath.Base(unit)) || !strings.Contains(control["/postinst"].content, filepath.Base(unit)) {
			t.Errorf("%s is not stopped or not started again", filepath.Base(unit))
		}
	}
}

// wantedMode returns the mode of a file of the package: settings may have secrets in them.
func wantedMode(path string) int64 {
	switch {
	case strings.HasPrefix(path, "/usr/bin/"):
		return 0o755
	case strings.HasPrefix(path, "/etc/forerunner/"):
		return 0o600
	}
	return 0o644
}

// wantedDocuments are some of the documentation.
var wantedDocuments = []string{
	"README.md", "CHANGELOG.md", "docs/QUICKSTART.md", "docs/failed.png", "docs/reference/forerunner-worker.md", "deploy/grafana/forerunner.json", "deploy/prometheus/rules.yaml",
}

// TestDocuments: packages have the documentation, and none of its tests.
func TestDocuments(t *testing.T) {
	r, _ := staged(t)
	list, err := r.reading()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wantedDocuments {
		if !slices.Contains(list, name) {
			t.Errorf("%s is missing in %q", name, list)
		}
	}
	for _, name := range list {
		if strings.Contains(name, "test") {
			t.Errorf("%s is documentation", name)
		}
	}
}

// TestArchive looks for all that the archive is to have.
func TestArchive(t *testing.T) {
	r, stage := staged(t)
	if err := r.archive(stage, "amd64"); err != nil {
		t.Fatal(err)
	}
	files := entries(t, made(t, r, ".tar.gz"))
	units, err := r.units()
	if err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(wantedDocuments), "LICENSE", "share/completion/forerunner.bash")
	for _, unit := range units {
		want = append(want, "systemd/"+filepath.Base(unit))
	}
	for _, p := range names {
		want = append(want, "bin/"+p.name, "share/man/man"+p.section+"/"+p.name+"."+p.section)
	}
	for _, path := range want {
		if _, ok := files["/forerunner_1.2.3_linux_amd64/"+path]; !ok {
			t.Errorf("%s is missing in %q", path, slices.Sorted(maps.Keys(files)))
		}
	}
}

// TestSameBytes makes everything twice, from stages whose files are of different ages and modes.
func TestSameBytes(t *testing.T) {
	var first map[string]string
	for round := range 2 {
		r, stage := staged(t)
		if round == 1 {
			age(t, stage)
		}
		if err := errors.Join(r.archive(stage, "amd64"), r.pack(stage, "amd64", "deb"), r.pack(stage, "amd64", "rpm")); err != nil {
			t.Fatal(err)
		}
		sums := map[string]string{}
		for _, end := range []string{".tar.gz", ".deb", ".rpm"} {
			sums[end] = string(made(t, r, end))
		}
		if first == nil {
			first = sums
		}
		for end, content := range sums {
			if content != first[end] {
				t.Errorf("the second %s has other bytes than the first", end)
			}
		}
	}
}

// age makes files look as another checkout's.
func age(t *testing.T, stage string) {
	t.Helper()
	err := filepath.WalkDir(stage, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return errors.Join(os.Chmod(path, 0o666), os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	})
	if err != nil {
		t.Fatal(err)
	}
}
