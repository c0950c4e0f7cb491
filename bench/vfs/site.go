package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
)

const (
	// storeBytes limits the blobs; all inputs are about 2 GiB.
	storeBytes = 8 << 30
	// upperMemory limits a writable layer in memory; the largest has 20,000 small files.
	upperMemory = 256 << 20
	// commandTimeout limits each measured command.
	commandTimeout = 15 * time.Minute
)

// A site is the part of a worker that makes input roots: a launcher, which was started before any
// mount, a store, and a folder of roots. Only one goroutine may use it.
type site struct {
	dir      string
	launcher *runner.Launcher
	log      *zap.Logger

	store  *disk.Store
	views  *fetch.Group // of store
	roots  *vfs.FS
	memory *vfs.FS // with writable layers in memory; nil until memoryRoots

	subtrees []*repb.DirectoryNode // the content of each root
	starts   int
	actions  int
	part     int // children do one part-th of the work; 0: all
}

// partly reports whether children do only a part of the work, as in tests.
func (s *site) partly() bool { return s.part > 1 }

// openSite starts a launcher and opens a store and a folder of roots in dir.
func openSite(ctx context.Context, dir string) (_ *site, err error) {
	log, err := testbed.NewLogger()
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.launcher, err = runner.StartLauncher(ctx, runner.LauncherOptions{Logger: log}); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *site) open() (err error) {
	s.starts++
	if s.store, err = disk.Open(filepath.Join(s.dir, "cas"), disk.Options{MaxBytes: storeBytes, Logger: s.log}); err != nil {
		return err
	}
	if s.views, err = fetch.NewGroup(s.store, fetch.Options{}); err != nil {
		return err
	}
	s.roots, err = vfs.Open(vfs.Options{
		MountDir: filepath.Join(s.dir, fmt.Sprintf("mount-%d", s.starts)),
		UpperDir: filepath.Join(s.dir, fmt.Sprintf("upper-%d", s.starts)),
		Logger:   s.log, Crew: crew.New(16),
		Blobs: &vfs.BlobFolder{
			Dir: s.store.Dir(), Path: disk.BlobPath, Parse: disk.ParseBlobPath,
			Used: func(d digest.Digest) { s.store.Contains(d) },
		},
	})
	return err
}

// restart makes the site like a new worker: its store has the blobs, but it has never shown a root.
func (s *site) restart() error {
	if err := s.shut(); err != nil {
		return err
	}
	return s.open()
}

func (s *site) shut() error {
	var errs []error
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	if s.roots != nil {
		errs = append(errs, s.roots.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	s.memory, s.roots, s.store = nil, nil, nil
	return errors.Join(errs...)
}

// close removes all mounts and ends all processes. The caller removes the folder.
func (s *site) close() error {
	err := s.shut()
	if s.launcher != nil {
		err = errors.Join(err, s.launcher.Close(context.Background()))
	}
	return err
}

// memoryRoots returns a file system whose roots have writable layers in memory.
func (s *site) memoryRoots() (*vfs.FS, error) {
	if s.memory != nil {
		return s.memory, nil
	}
	var err error
	s.memory, err = vfs.Open(vfs.Options{
		MountDir:    filepath.Join(s.dir, fmt.Sprintf("mount-memory-%d", s.starts)),
		UpperDir:    filepath.Join(s.dir, fmt.Sprintf("upper-memory-%d", s.starts)),
		UpperMemory: upperMemory,
		Logger:      s.log, Crew: crew.New(16),
	})
	return s.memory, err
}

// upload stores each folder in dir, as a subtree of all roots.
func (s *site) upload(ctx context.Context, dir string) error {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range folders { // sorted, as Directory requires
		in, err := client.Scan(ctx, testbed.Function, []client.Mount{{Dir: filepath.Join(dir, f.Name())}}, nil)
		if err != nil {
			return err
		}
		if err := s.put(ctx, in.Blobs); err != nil {
			return fmt.Errorf("store %s: %w", f.Name(), err)
		}
		s.subtrees = append(s.subtrees, &repb.DirectoryNode{Name: f.Name(), Digest: in.Root.Proto()})
	}
	return nil
}

func (s *site) put(ctx context.Context, blobs []casclient.Blob) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, b := range blobs {
		group.Go(func() error {
			r, err := b.Open()
			if err != nil {
				return err
			}
			return errors.Join(s.store.Put(ctx, b.Digest, r), r.Close())
		})
	}
	return group.Wait()
}

// root makes a root in f that no action has seen: it has the subtrees and a unique file.
func (s *site) root(ctx context.Context, f *vfs.FS, subtrees []*repb.DirectoryNode) (*vfs.Root, error) {
	spec, err := s.spec(ctx, subtrees)
	if err != nil {
		return nil, err
	}
	return f.NewRoot(ctx, spec)
}

// spec stores the messages of such a root.
func (s *site) spec(ctx context.Context, subtrees []*repb.DirectoryNode) (spec vfs.RootSpec, err error) {
	s.actions++
	own := []byte(strconv.Itoa(s.actions))
	file := digest.Of(testbed.Function, own)
	d, raw, err := digest.OfMessage(testbed.Function, &repb.Directory{
		Files:       []*repb.FileNode{{Name: fmt.Sprintf("action-%d", s.actions), Digest: file.Proto()}},
		Directories: subtrees,
	})
	if err != nil {
		return spec, err
	}
	if err := errors.Join(s.store.PutBytes(ctx, file, own), s.store.PutBytes(ctx, d, raw)); err != nil {
		return spec, err
	}
	return vfs.RootSpec{
		Name: fmt.Sprintf("action-%d", s.actions), Digest: d, Source: s.views.Through(nowhere{}),
	}, nil
}

// nowhere is an upstream without blobs: all of them are already in the store.
type nowhere struct{}

// Fetch implements cas.Fetcher.
func (nowhere) Fetch(_ context.Context, ds []digest.Digest, _ func(digest.Digest, io.Reader) error) error {
	return &cas.MissingError{Digests: slices.Clone(ds)}
}

// A job is a measured command.
type job struct {
	dir  string // working directory
	env  []string
	args []string
}

// run runs a command and returns its output and its duration, without the launcher's own work.
func (s *site) run(ctx context.Context, j job) (printed string, took time.Duration, err error) {
	stdout, stderr := filepath.Join(s.dir, "stdout"), filepath.Join(s.dir, "stderr")
	result, err := s.launcher.Run(ctx, runner.Command{
		Args: j.args, Dir: j.dir, Env: append([]string{"PATH=" + runner.DefaultPath, "LC_ALL=C"}, j.env...),
		Stdout: stdout, Stderr: stderr, MaxOutputBytes: 1 << 16, Timeout: commandTimeout,
	})
	if err != nil {
		return "", 0, err
	}
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	if result.Cause != runner.Exited || result.ExitCode != 0 {
		said, _ := os.ReadFile(stderr) // only improves the error message
		return "", 0, fmt.Errorf("%s: %s, exit code %d: %s%.2000s",
			j.args[0], result.Cause, result.ExitCode, result.Err, said)
	}
	text, err := os.ReadFile(stdout)
	return string(text), result.Ended.Sub(result.Started), err
}

// child runs this program for one piece of work and returns the duration that it prints.
func (s *site) child(ctx context.Context, args ...string) (time.Duration, error) {
	// In the launcher's child, /proc/self/exe is the program of the launcher.
	child := []string{"/proc/self/exe", "child", "--part", strconv.Itoa(max(1, s.part))}
	// A child of a test with the race detector would sleep for a second before it exits.
	printed, _, err := s.run(ctx, job{dir: "/", args: append(child, args...), env: []string{"GORACE=" + os.Getenv("GORACE")}})
	if err != nil {
		return 0, err
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(printed), 64)
	if err != nil {
		return 0, fmt.Errorf("child %s: %w", args[0], err)
	}
	return time.Duration(took * float64(time.Second)), nil
}
