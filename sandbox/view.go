package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// DefaultShow are the folders with programs and libraries of the machine that commands see, if they
// exist.
var DefaultShow = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec", "/opt", "/nix/store", "/gnu/store",
}

// shownInEtc are the names in /etc that commands see: the needs of the C library, certificates, and
// the runtimes of languages. A star stands for any text. Files that only root can read are not
// copied.
var shownInEtc = []string{
	"nsswitch.conf", "host.conf", "gai.conf", "services", "protocols", "rpc", "networks", "shells", "ethertypes",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "mtab", "locale.conf",
	"locale.alias", "terminfo", "inputrc", "os-release", "lsb-release", "debian_version", "*-release", "mime.types",
	"magic", "magic.mime", "profile", "profile.d", "bash.bashrc", "bashrc", "login.defs",
	"ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf", "crypto-policies",
	"pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "pki/java",
	"fonts", "java*", "jvm*", ".java", "python*", "perl", "php*", "ruby*", "node*", "maven", "gradle", "bazel", "bazel.bazelrc", "chromium*", "ghc",
	"xml", "sgml", "texmf", "ghostscript", "ImageMagick*", "OpenCL", "vulkan", "glvnd", "dpkg", "debuginfod",
	"dotnet", "emacs", "vim", "X11", "gtk-*", "openmpi", "papersize", "libpaper.d", "groff",
}

// ownEtc are files of /etc that are independent of the machine. The home of users is the action's
// own folder. Those of the machine's network are added for commands that have it.
var ownEtc = map[string]string{
	"passwd":      "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/usr/sbin/nologin\n",
	"group":       "root:x:0:\ntty:x:5:\nstaff:x:50:\nusers:x:100:\nnogroup:x:65534:\n",
	"hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"resolv.conf": "",
	"hostname":    "localhost\n",
}

// shownInSys are the parts of /sys that commands see besides their cgroups: processors and memory,
// by which programs decide how many threads they start.
var shownInSys = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm"}

const cgroupsPath = "/sys/fs/cgroup"

// A view assembles the commands' view of the machine, in the folder building.
type view struct {
	hidden []string // real paths
	shown  []string // real paths, no one below another
}

// show makes path visible, with the symlinks on the way to it. If it is missing the error wraps
// fs.ErrNotExist.
func (v *view) show(path string) error {
	return v.follow(filepath.Clean(path), 0)
}

// maxSymlinks is as many as the kernel follows.
const maxSymlinks = 40

func (v *view) follow(path string, links int) error {
	if links > maxSymlinks {
		return &os.PathError{Op: "show", Path: path, Err: unix.ELOOP}
	}
	for at := 1; at <= len(path); at++ {
		if at < len(path) && path[at] != '/' {
			continue
		}
		prefix := path[:at]
		info, err := os.Lstat(prefix)
		if err != nil {
			return err
		}
		if info.Mode().Type() != os.ModeSymlink {
			continue
		}
		target, err := os.Readlink(prefix)
		if err != nil {
			return err
		}
		if !v.isShown(prefix) {
			if err := makeSymlink(target, building+prefix); err != nil {
				return err
			}
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(prefix), target)
		}
		return v.follow(filepath.Join(target, path[at:]), links+1)
	}
	return v.bind(path)
}

func (v *view) isShown(path string) bool {
	return slices.ContainsFunc(v.shown, func(s string) bool { return paths.Below(path, s) })
}

// neverShown are folders of which commands have their own, mounted over them.
var neverShown = []string{"/dev", "/proc", building, Root}

// bind shows the entry at path, which contains no symlink, including mounts below.
func (v *view) bind(path string) error {
	if i := slices.IndexFunc(v.hidden, func(h string) bool { return paths.Below(path, h) }); i >= 0 {
		return fmt.Errorf("%w: %s is never shown to commands, because of %s", ErrView, path, v.hidden[i])
	}
	if slices.ContainsFunc(neverShown, func(own string) bool { return path == "/" || paths.Below(path, own) }) {
		return fmt.Errorf("%w: %s cannot be shown: commands have their own", ErrView, path)
	}
	if v.isShown(path) {
		return nil
	}
	if err := bindAt(path); err != nil {
		return err
	}
	v.shown = append(v.shown, path)
	return nil
}

// bindAt shows a file or folder of the machine at its place in the new root.
func bindAt(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(building+path, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(building+path), 0o755); err == nil {
		err = touch(building+path, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(path, building+path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "bind", Path: path, Err: err}
	}
	return nil
}

func touch(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// makeSymlink makes a symlink, unless it is there.
func makeSymlink(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// CheckShow returns an error unless each path of Show is one that can be shown.
func (o *Options) CheckShow() error {
	for _, path := range o.Show {
		if err := checkShown(path); err != nil {
			return err
		}
	}
	return nil
}

func checkShown(path string) error {
	clean := filepath.Clean(path)
	if clean == "/" || !filepath.IsAbs(path) || paths.Below(clean, building) || paths.Below(clean, varTmp) {
		return fmt.Errorf("%q cannot be shown: name a file or folder by its absolute path, and not in %s or %s", path, building, varTmp)
	}
	return nil
}

// showMachine shows the list, and Options.Show, which must be there.
func (v *view) showMachine(show []string) error {
	for _, path := range DefaultShow {
		if err := v.show(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range show {
		if err := checkShown(path); err != nil {
			return err
		}
		if err := v.show(path); err != nil {
			return fmt.Errorf("show to commands: %w", err)
		}
	}
	return nil
}

// makeEtc makes the folder from the shown entries of the machine's.
func (v *view) makeEtc() error {
	const etc = building + "/etc"
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	for name, text := range ownEtc {
		if v.isShown("/etc/" + name) {
			continue
		}
		if err := os.WriteFile(etc+"/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, pattern := range shownInEtc {
		names, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := v.showEtc(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (v *view) showEtc(name string) error {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return err
	case v.isShown(name):
		return nil
	case info.Mode().Type() == os.ModeSymlink:
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		return makeSymlink(target, building+name) // which leads to something that is shown, or nowhere
	case info.Mode()&0o004 == 0 || slices.ContainsFunc(v.hidden, func(h string) bool { return paths.Below(name, h) }):
		return nil
	}
	if all, err := v.little(name); err == nil && copyAll(all) == nil {
		v.shown = append(v.shown, name)
		return nil
	}
	return v.bind(name) // over the copied entries
}

// makeSys shows the visible parts of the machine's.
func makeSys(groups []Cgroup) error {
	for _, path := range shownInSys {
		if err := bindAt(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, g := range groups {
		if !paths.Below(g.Point, cgroupsPath) {
			continue // programs look there
		}
		err := os.MkdirAll(building+g.Point, 0o755)
		if err == nil {
			err = unix.Mount(g.Dir, building+g.Point, "", unix.MS_BIND, "")
		}
		if err != nil {
			return &os.PathError{Op: "show cgroup", Path: g.Dir, Err: err}
		}
	}
	return linkControllers()
}

// linkControllers makes a symlink for each controller whose hierarchy is named after several.
func linkControllers() error {
	entries, err := os.ReadDir(cgroupsPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Type() != os.ModeSymlink {
			continue
		}
		path := filepath.Join(cgroupsPath, e.Name())
		target, err := os.Readlink(path)
		if err == nil {
			err = makeSymlink(target, building+path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hide covers hidden entries in shown folders, and unmounts mounts there.
func (v *view) hide() error {
	for _, path := range v.hidden {
		if !v.isShown(path) {
			continue
		}
		if err := detach(func(m mountinfo.Mount) bool { return paths.Below(m.Point, building+path) }); err != nil {
			return err
		}
		info, err := os.Stat(building + path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = cover(building+path, unix.MS_RDONLY)
		} else {
			err = unix.Mount(building+"/"+nothing, building+path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return &os.PathError{Op: "hide", Path: path, Err: err}
		}
	}
	return nil
}

// nothing is an empty file that is shown in place of a hidden one.
const nothing = ".nothing"
