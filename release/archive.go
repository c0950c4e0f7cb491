package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A file of an archive or image: where it is on this machine, and what it is there.
type file struct {
	from, to string
	mode     int64
}

// archive makes the .tar.gz: programs, units for /usr/local, manual pages, completion, licence.
func (r *release) archive(stage, arch string) error {
	top := fmt.Sprintf("forerunner_%s_linux_%s", r.version, arch)
	var files []file
	for _, p := range names {
		files = append(files,
			file{filepath.Join(stage, arch, p.name), top + "/bin/" + p.name, 0o755},
			file{filepath.Join(stage, p.name+"."+p.section), top + "/share/man/man" + p.section + "/" + p.name + "." + p.section, 0o644})
	}
	units, err := r.units()
	if err != nil {
		return err
	}
	for _, unit := range units {
		files = append(files, file{unit, top + "/systemd/" + filepath.Base(unit), 0o644})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		files = append(files, file{filepath.Join(stage, "forerunner."+shell), top + "/share/completion/forerunner." + shell, 0o644})
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files = append(files, file{filepath.Join(r.source, name), top + "/" + name, 0o644})
	}
	out, err := os.Create(filepath.Join(r.out, top+".tar.gz"))
	if err != nil {
		return err
	}
	defer out.Close()
	zip := gzip.NewWriter(out)
	if err := r.tar(zip, files); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return out.Close()
}

// tar writes files, all of them root's and as old as the commit.
func (r *release) tar(w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		head := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.to, Mode: f.mode, Size: int64(len(content)),
			ModTime: r.time, Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}
		if err := archive.WriteHeader(head); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
