package main

import (
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // a format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // a format
)

// pack makes the package of one format, as package/nfpm.yaml says, with the documentation.
func (r *release) pack(stage, arch, format string) error {
	values := map[string]string{
		"ARCH": arch, "VERSION": r.version, "STAGE": stage, "SOURCE": r.source,
		"PROGRAMS": filepath.Join(stage, arch), "PACKAGE": filepath.Join(r.source, "release", "package"),
	}
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(values["PACKAGE"], "nfpm.yaml"), func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	documents, err := r.reading()
	if err != nil {
		return err
	}
	for _, name := range documents {
		info.Contents = append(info.Contents, &files.Content{
			Source: filepath.Join(r.source, name), Destination: "/usr/share/doc/forerunner/" + name, FileInfo: &files.ContentFileInfo{Mode: 0o644},
		})
	}
	info.MTime = r.time
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = filepath.Join(values["PACKAGE"], *script)
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := packager.Package(info, out); err != nil {
		return err
	}
	return out.Close()
}
