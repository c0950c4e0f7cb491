package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	soakStorageMB = 96
	soakCacheMB   = 32 // of a worker
	soakDiskMB    = 64 // of the first worker's cache
)

// A soakProgram is one that a soak starts, and may start again.
type soakProgram struct {
	name, http string
	args       []string
	ready      func(p *programs.Process)
	now        *programs.Process
	since      int // which start it is
}

// A soakFarm is a storage, a scheduler and two workers. All connections between them and to clients
// go through wires that can be cut.
type soakFarm struct {
	*programs.Test
	storage, scheduler *soakProgram
	workers            []*soakProgram
	wires              []*wire
	disk               string // of the first worker's cache
	conn               *programs.SplitConn
	client             *casclient.Client
	groups             map[string]bool // names of cgroups that workers had
}

func startSoakFarm(f *programs.Test) *soakFarm {
	f.Helper()
	s := &soakFarm{Test: f, groups: map[string]bool{}, disk: filepath.Join(f.Dir, "disk")}
	serves := func(p *programs.Process) { p.WaitFor(&p.Stdout, programs.ServesLine) }
	works := func(p *programs.Process) { p.WaitFor(&p.Stderr, programs.ReadyLine) }
	add := func(name string, ready func(*programs.Process), args ...string) *soakProgram {
		p := &soakProgram{name: name, http: freeport.Address(f.T), ready: ready}
		p.args = append(args, "--http", p.http, "--data", filepath.Join(f.Dir, name))
		s.start(p)
		return p
	}
	storage, scheduler := freeport.Address(f.T), freeport.Address(f.T)
	s.storage = add("storage", serves, "forerunner-scheduler", "--listen", storage, "--cache-size", fmt.Sprint(soakStorageMB, "M"),
		"--cache-writes", "clients")
	s.scheduler = add("scheduler", serves, "forerunner-scheduler", "--listen", scheduler, "--storage", "grpc://"+s.wire(storage),
		"--config", f.Write("scheduler.yaml", "tuning: {worker_slack: 5s}\n"))
	s.mountDisk()
	for i, more := range []string{", cache_dir: " + filepath.Join(s.disk, "cas"), ""} {
		name := fmt.Sprint("worker-", i+1)
		// The cache in memory is full soon: later growth is a leak.
		config := f.Write(name+".yaml", "tuning: {slot_memory: 64M, memory_cache: 4M"+more+"}\n")
		f.Cleanup(func() { programs.ExpectNoMounts(f.T, filepath.Join(f.Dir, name)) })
		s.workers = append(s.workers, add(name, works, "forerunner-worker", "--id", "name="+name, "--config", config,
			"--scheduler", "grpc://"+s.wire(scheduler), "--storage", "grpc://"+s.wire(storage),
			"--slots", "2", "--cache-size", fmt.Sprint(soakCacheMB, "M")))
	}
	s.conn = &programs.SplitConn{Execution: f.Dial(s.wire(scheduler)), Storage: f.Dial(s.wire(storage))}
	s.client = casclient.New(s.conn, casclient.Options{})
	return s
}

// mountDisk makes a small disk for a cache to fill.
func (s *soakFarm) mountDisk() {
	s.Helper()
	if err := os.Mkdir(s.disk, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := unix.Mount("disk", s.disk, "tmpfs", 0, fmt.Sprintf("size=%dM", soakDiskMB)); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := unix.Unmount(s.disk, unix.MNT_DETACH); err != nil {
			s.Error(err)
		}
	})
}

// start starts a program again.
func (s *soakFarm) start(p *soakProgram) {
	s.Helper()
	p.now = s.Start(p.args...)
	p.since++
	p.ready(p.now)
	for _, group := range programs.TraceOf(s.T, p.now).Groups {
		s.groups[group] = true
	}
}

// stop ends all programs and checks that nothing of them is left.
func (s *soakFarm) stop() {
	s.Helper()
	for _, p := range append(s.workers, s.scheduler, s.storage) {
		was := programs.TraceOf(s.T, p.now)
		p.now.Drain()
		s.ExpectNoLaunchers(was)
		for _, dir := range []string{"work", "upper", "mount", "cas/tmp", "storage/cas/tmp", "../disk/cas/tmp"} {
			dir = filepath.Join(s.Dir, p.name, dir)
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			if left := programs.FilesBelow(s.T, dir); len(left) > 0 {
				s.Errorf("%s left behind: %s", p.name, left)
			}
		}
	}
	var all programs.Trace
	for group := range s.groups {
		all.Groups = append(all.Groups, group)
	}
	s.ExpectNoGroups(all)
}

// A soakFault is a fault of the farm; it is over when do returns.
type soakFault struct {
	name  string
	early bool // it ends a life that later on has to last
	do    func(random *rand.Rand)
}

func (s *soakFarm) faults() []soakFault {
	killed := func(p *soakProgram) func(*rand.Rand) {
		return func(*rand.Rand) {
			p.now.Kill()
			s.start(p)
		}
	}
	stopped := func(p *soakProgram) func(*rand.Rand) {
		return func(random *rand.Rand) {
			p.now.Signal(syscall.SIGSTOP)
			time.Sleep(time.Second + time.Duration(random.Int64N(int64(8*time.Second))))
			p.now.Signal(syscall.SIGCONT)
		}
	}
	return []soakFault{
		{"cut connections", false, s.cut},
		{"killed worker 1", false, killed(s.workers[0])},
		{"killed scheduler", true, killed(s.scheduler)},
		{"full disk", false, s.fill},
		{"evicted storage", false, s.evict},
		{"killed storage", true, killed(s.storage)},
		{"stopped worker 2", false, stopped(s.workers[1])},
		{"stopped storage", false, stopped(s.storage)},
		{"killed worker 2", true, killed(s.workers[1])},
		{"stopped scheduler", false, stopped(s.scheduler)},
		{"drained worker 1", false, func(*rand.Rand) {
			s.workers[0].now.Drain()
			s.start(s.workers[0])
		}},
	}
}

// cut breaks all connections that go over some of the wires.
func (s *soakFarm) cut(random *rand.Rand) {
	for range 1 + random.IntN(4) {
		s.wires[random.IntN(len(s.wires))].cut()
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
	}
}

// fill leaves no space for the cache of the first worker.
func (s *soakFarm) fill(*rand.Rand) {
	name := filepath.Join(s.disk, "junk")
	if err := os.WriteFile(name, make([]byte, soakDiskMB<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		s.Errorf("the disk did not fill: %v", err)
	}
	time.Sleep(2 * time.Second)
	if err := os.Remove(name); err != nil {
		s.Error(err)
	}
}

// evict uploads so much to the storage that everything else is evicted.
func (s *soakFarm) evict(random *rand.Rand) {
	ctx, cancel := context.WithTimeout(s.Context(), soakPatience)
	defer cancel()
	for range soakStorageMB {
		junk := make([]byte, 1<<20)
		for i := 0; i < len(junk); i += 8 {
			junk[i], junk[i+1], junk[i+2], junk[i+3] = byte(random.Uint32()), byte(random.Uint32()), byte(i), byte(i>>8)
		}
		d := digest.Of(digest.SHA256, junk)
		if err := s.client.Upload(ctx, []casclient.Blob{casclient.BytesBlob(d, junk)}, nil); err != nil {
			s.Errorf("upload junk: %v", err)
			return
		}
	}
}

// A wire passes connections on to an address.
type wire struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	ends     map[net.Conn]bool // guarded by mu
	all      sync.WaitGroup
}

// wire lays one to an address, until the end of the test, and returns where it begins.
func (s *soakFarm) wire(to string) string {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	w := &wire{listener: listener, to: to, ends: map[net.Conn]bool{}}
	s.wires = append(s.wires, w)
	w.all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.pass(near) })
		}
	})
	s.Cleanup(func() {
		_ = listener.Close()
		w.cut()
		w.all.Wait()
	})
	return listener.Addr().String()
}

// pass serves a connection until one side ends it.
func (w *wire) pass(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer far.Close()
	w.mu.Lock()
	w.ends[near], w.ends[far] = true, true
	w.mu.Unlock()
	var both sync.WaitGroup
	for _, side := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(side[0], side[1])
			_, _ = near.Close(), far.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	delete(w.ends, near)
	delete(w.ends, far)
	w.mu.Unlock()
}

// cut ends all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.ends {
		_ = end.Close()
	}
}
