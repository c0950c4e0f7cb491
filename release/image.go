package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// authorities is where Debian has the certificates that programs trust. An image without them
// trusts nobody.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

const (
	// imageUser is the user and group of the scheduler in the image, and imageData its data folder:
	// a volume gets its owner from the image.
	imageUser = 65532
	imageData = "/var/lib/forerunner-scheduler"
)

// image makes the OCI layout of one image for all architectures. It has the programs and
// authorities, and nothing else: the worker's image is made from it and a system with the tools
// that commands need.
func (r *release) image(stage string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.imageOf(stage, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	_, err := layout.Write(filepath.Join(r.out, "image"), mutate.AppendManifests(
		mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version},
		}}))
	return err
}

func (r *release) imageOf(stage, arch string) (v1.Image, error) {
	var files []file
	for _, p := range names {
		files = append(files, file{filepath.Join(stage, arch, p.name), "usr/local/bin/" + p.name, 0o755})
	}
	if _, err := os.Stat(authorities); err != nil {
		return nil, err
	}
	files = append(files, file{authorities, authorities[1:], 0o644}, file{to: imageData[1:] + "/", mode: 0o755})
	var content bytes.Buffer
	if err := r.tar(&content, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := r.config(image, arch)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, config)
}

// config describes the image: it starts a scheduler, as deploy/Dockerfile's does.
func (r *release) config(image v1.Image, arch string) (*v1.ConfigFile, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: r.time}
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: r.time}
	}
	config.Config.User = fmt.Sprintf("%d:%d", imageUser, imageUser)
	config.Config.Entrypoint = []string{"/usr/local/bin/forerunner-scheduler", "--data", imageData, "--log-json"}
	config.Config.Volumes = map[string]struct{}{imageData: {}}
	config.Config.Labels = map[string]string{"org.opencontainers.image.version": r.version}
	return config, nil
}
