package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestImage: the image's user owns the data folder, which is a volume.
func TestImage(t *testing.T) {
	r, stage := staged(t)
	image, err := r.imageOf(stage, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	owners := map[string]string{}
	for archive := tar.NewReader(content); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !head.ModTime.Equal(r.time) {
			t.Errorf("%s is of %s", head.Name, head.ModTime)
		}
		owners["/"+strings.TrimSuffix(head.Name, "/")] = fmt.Sprintf("%d:%d", head.Uid, head.Gid)
	}
	for volume := range config.Config.Volumes {
		if owners[volume] != config.Config.User {
			t.Errorf("%s is of %q, and the image's user is %s", volume, owners[volume], config.Config.User)
		}
	}
	for _, path := range []string{"/usr/local/bin/forerunner-scheduler", "/usr/local/bin/forerunner-worker", authorities} {
		if owners[path] != "0:0" {
			t.Errorf("%s is of %q", path, owners[path])
		}
	}
}
