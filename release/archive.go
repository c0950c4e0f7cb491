package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A file of an archive or image: where it is on this machine, and what it is there.
type file struct {
	from, to string // from is empty for a folder
	mode     int64
}

// archive makes the .tar.gz: programs, units for /usr/local, manual pages, completion, documentation,
// licence.
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
	documents, err := r.reading()
	if err != nil {
		return err
	}
	for _, name := range append(documents, "LICENSE") {
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

// reading returns the paths, below the source, of the documentation and of the examples that it
// names, such as dashboards and alerts. Links among them stay whole.
func (r *release) reading() ([]string, error) {
	list := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, folder := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(r.source, folder), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || strings.Contains(d.Name(), "_test.") || d.Name() == "Dockerfile": // that builds the source
				return nil
			}
			name, err := filepath.Rel(r.source, path)
			list = append(list, name)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// tar writes files, all of them root's and as old as the commit, and folders of the image's user.
func (r *release) tar(w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		head := &tar.Header{Name: f.to, Mode: f.mode, ModTime: r.time, Format: tar.FormatPAX}
		var content []byte
		if f.from == "" {
			head.Typeflag, head.Uid, head.Gid = tar.TypeDir, imageUser, imageUser
		} else {
			var err error
			if content, err = os.ReadFile(f.from); err != nil {
				return err
			}
			head.Typeflag, head.Size, head.Uname, head.Gname = tar.TypeReg, int64(len(content)), "root", "root"
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
