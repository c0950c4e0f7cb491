package farm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/paths"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/worker"
)

// Together has settings of a scheduler and a worker in one process. The tags are the users'
// documentation.
type Together struct {
	// OneStore is false for comparisons, or to have two copies of each blob.
	OneStore bool `tuning:"one_store" group:"Disk" unit:"true|false" default:"true" doc:"The worker of forerunner up has no store of its own: commands read inputs in the storage, and outputs move into it. Otherwise it has a second store, and copies blobs between both"`
	// DirectCalls is false for comparisons, or to see the calls on a socket.
	DirectCalls bool `tuning:"direct_calls" group:"Pipeline" unit:"true|false" default:"true" doc:"The worker of forerunner up calls its scheduler and storage without a connection. Otherwise it calls them over sockets in the process"`
}

// joined is a worker in the process of its scheduler.
type joined struct {
	Together
	direct  *serve.Direct        // its calls, with DirectCalls
	sockets *serve.InProcess     // its connections, without
	metrics *prometheus.Registry // of the worker
	ready   *serve.Readiness     // of both
	slots   int
	unboxed bool // it has no sandbox: callers can act as the user of this process
	worker  atomic.Pointer[worker.Worker]
	storage *scrub.Store // also the worker's store; nil: the worker has one of its own
}

// Join connects a worker in this process to s, over private connections. Call it before the Run of
// either. The worker can connect from the ready of that of s on.
func (s *Scheduler) Join(started *Started, settings Together) {
	w := started.w
	j := &joined{
		Together: settings, direct: &serve.Direct{}, sockets: serve.NewInProcess(),
		metrics: prometheus.NewRegistry(), ready: &serve.Readiness{}, slots: w.Slots,
		unboxed: started.isolation.sandbox == nil,
	}
	s.joined, w.joined = j, j
	if j.DirectCalls {
		w.Client.Within = j.direct.Connect
	} else {
		w.Client.Connect = j.sockets.Dial
	}
	address := "grpc://" + serve.InProcessNetwork + ":0"
	w.Scheduler, w.Storage, w.State = address, address, state.Location(address)
	if j.OneStore && started.data != nil { // the folder is this process's
		w.removeStore()
	}
}

// removeStore removes the store that the worker had when it had one of its own.
func (w *Worker) removeStore() {
	dir := filepath.Join(w.Data, "cas")
	if err := removeOwn(dir); err != nil {
		w.Logger.Warn("the worker's own store is no longer used, but cannot be removed", zap.Error(fmt.Errorf("remove %s: %w", dir, err)))
	}
}

// removeOwn removes a folder if all of it lies in its place: what a symlink or a mount shows there
// may be others'. A missing folder is no error.
func removeOwn(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("it is not a folder (%s)", info.Mode())
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	mounted, err := mounts.Below(filepath.Dir(dir))
	if err != nil {
		return err
	}
	for _, point := range mounted {
		if paths.Below(point, dir) {
			return fmt.Errorf("something is mounted at %s", point)
		}
	}
	return folder.RemoveTree(dir)
}

// shareStore makes the worker use the store of the storage. j may be nil.
func (j *joined) shareStore(s *storage.Opened) {
	if j != nil && j.OneStore {
		j.storage = s.Blobs()
	}
}

// storageBusy returns whether others need the disk of the storage.
func (s *Scheduler) storageBusy(clients *serve.Activity) func() bool {
	if s.joined == nil || !s.joined.OneStore {
		return clients.MovesBlobs
	}
	return func() bool {
		w := s.joined.worker.Load()
		return w != nil && w.Busy() || clients.MovesBlobs()
	}
}

// storageHere returns the storage that is also the worker's store; nil: it has one of its own.
func (w *Worker) storageHere() *scrub.Store {
	if w.joined == nil {
		return nil
	}
	return w.joined.storage
}

// scrubbed returns the worker's store with its Scrubber, and what runs that.
func (w *Worker) scrubbed(store *disk.Store, l scrub.Load) (blobs scrub.Store, run func() (stop func()), err error) {
	if shared := w.storageHere(); shared != nil { // its owner scrubs it
		return *shared, func() func() { return func() {} }, nil
	}
	blobs, err = w.Disk.Scrub.Open(store, nil, l)
	return blobs, blobs.Run, err
}
