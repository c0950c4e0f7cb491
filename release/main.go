// Release makes what people install, below build/release: for each architecture an archive, a
// Debian and an RPM package, an image in the OCI layout, a list of what the programs are built of,
// and the checksums of all. The same commit gives the same bytes: every time in them is that of the
// commit.
//
// It is a module of its own, so that building Forerunner does not depend on what packages it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var architectures = []string{"amd64", "arm64"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	source := flag.String("source", "..", "folder of the checkout")
	out := flag.String("out", "../build/release", "folder for the release; it is emptied first")
	version := flag.String("version", "", "version (default: the first one in CHANGELOG.md)")
	flag.Parse()
	if err := run(*source, *out, *version); err != nil {
		log.Fatal(err)
	}
}

// A release is one version of the checkout in source, with all files below out.
type release struct {
	source, out string
	version     string
	// time is the time of the commit, and of each created file.
	time time.Time
}

func run(source, out, version string) error {
	r, err := newRelease(source, out, version)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "forerunner-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := r.documents(stage); err != nil {
		return err
	}
	for _, arch := range architectures {
		log.Printf("%s for %s", r.version, arch)
		if err := r.architecture(stage, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	log.Print("image")
	if err := r.image(stage); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.checksums()
}

func newRelease(source, out, version string) (*release, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	r := &release{source: source, out: out, version: version}
	if r.version == "" {
		if r.version, err = newestVersion(filepath.Join(source, "CHANGELOG.md")); err != nil {
			return nil, err
		}
	}
	seconds, err := r.output(nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	unix, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	return r, nil
}

// newestVersion returns the version of the first heading of a changelog that has one.
func newestVersion(changelog string) (string, error) {
	text, err := os.ReadFile(changelog)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)\b`).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s has no heading with a version, such as \"## 1.2.3\"", changelog)
	}
	return string(m[1]), nil
}

// architecture makes all that is made once for each architecture.
func (r *release) architecture(stage, arch string) error {
	if err := r.programs(stage, arch); err != nil {
		return err
	}
	if err := r.archive(stage, arch); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.pack(stage, arch, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return r.components(stage, arch)
}

// command prepares a command in the checkout. Its messages are shown.
func (r *release) command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func (r *release) output(env []string, name string, args ...string) (string, error) {
	out, err := r.command(env, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}
