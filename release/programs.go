package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// names are the programs, each with the section of its manual page.
var names = []struct{ name, section string }{
	{"forerunner", "1"},
	{"forerunner-scheduler", "8"},
	{"forerunner-worker", "8"},
}

// programs builds the programs of an architecture into its folder below stage.
func (r *release) programs(stage, arch string) error {
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS="}
	stamps, err := r.stamps()
	if err != nil {
		return err
	}
	args := []string{
		"build", "-trimpath", "-buildvcs=false", // which depends on the kind of checkout, and on "go env"
		"-ldflags", "-s -w" + stamps,
		"-o", filepath.Join(stage, arch) + string(filepath.Separator),
	}
	for _, p := range names {
		args = append(args, "./cmd/"+p.name)
	}
	_, err = r.output(env, "go", args...)
	return err
}

// stamps returns linker flags that set the version, commit and date in the programs.
func (r *release) stamps() (flags string, err error) {
	commit, err := r.output(nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changes, err := r.output(nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", err
	}
	for _, stamp := range []string{
		"release=" + r.version, "commit=" + strings.TrimSpace(commit), "date=" + r.time.Format(time.RFC3339),
		"changed=" + strconv.FormatBool(changes != ""),
	} {
		flags += " -X github.com/forerunner-build/forerunner/farm/flags." + stamp
	}
	return flags, nil
}

// documents puts into stage what is the same for all architectures: manual pages, completion and
// units.
func (r *release) documents(stage string) error {
	for _, p := range names {
		page, err := os.ReadFile(filepath.Join(r.source, "docs", "reference", p.name+".md"))
		if err != nil {
			return err
		}
		manual := md2man.Render(r.manual(p.name, p.section, string(page)))
		if err := os.WriteFile(filepath.Join(stage, p.name+"."+p.section), manual, 0o644); err != nil {
			return err
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := r.output(nil, "go", "run", "./cmd/forerunner", "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(stage, "forerunner."+shell), []byte(script), 0o644); err != nil {
			return err
		}
	}
	return r.packagedUnits(stage)
}

// units are the files of systemd's units, as they are for programs in /usr/local.
func (r *release) units() ([]string, error) {
	units, err := filepath.Glob(filepath.Join(r.source, "deploy", "systemd", "*.service"))
	if err == nil && len(units) == 0 {
		err = errors.New("deploy/systemd has no units")
	}
	return units, err
}

// packagedUnits puts the units of packages into stage.
func (r *release) packagedUnits(stage string) error {
	units, err := r.units()
	if err != nil {
		return err
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			return err
		}
		// Packages have their programs in /usr/bin; what an administrator installs goes to
		// /usr/local.
		packaged := strings.ReplaceAll(string(text), "/usr/local/bin/", "/usr/bin/")
		if err := os.WriteFile(filepath.Join(stage, filepath.Base(unit)), []byte(packaged), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manual gives a page of the reference the head that manual pages have.
func (r *release) manual(name, section, page string) []byte {
	_, body, _ := strings.Cut(page, "-->\n") // the page's title, and where it comes from
	date := r.time.Format("January 2006")
	head := fmt.Sprintf("%s %s %q %q\n===\n\n# NAME\n\n%s - remote execution of builds\n\n# DESCRIPTION\n\n",
		strings.ToUpper(name), section, date, "Forerunner "+r.version, name)
	return []byte(head + strings.TrimLeft(body, "\n"))
}

// checksums writes SHA256SUMS, as sha256sum does, over all files of the release.
func (r *release) checksums() error {
	var list []string
	err := filepath.WalkDir(r.out, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		list = append(list, fmt.Sprintf("%s  %s\n", sum, name))
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(list, "")), 0o644)
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
