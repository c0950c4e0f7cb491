package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/eintr"
	"github.com/forerunner-build/forerunner/farm/dial"
)

// The names of rows.
const (
	Noop  = "noop_floor_ms"
	exec  = "floor_exec_ms"
	rpc   = "floor_rpc_ms"
	Mount = "floor_mount_ms"
)

// Names returns the names of all rows.
func Names() []string { return []string{Noop, exec, rpc, Mount} }

// Floors has the machine's own times for the parts of an action, in milliseconds. Nothing that
// consists of these parts can be faster.
type Floors struct {
	exec  []float64 // a process in private namespaces: fork, exec, wait
	rpc   []float64 // a call over loopback
	mount []float64 // an overlay: mount and unmount
}

// callsOfAction is the minimum number of calls for an action: one by its client, and one by its
// worker.
const callsOfAction = 2

// Measure adds n samples of each part. It uses the folder dir, which must not exist.
func (f *Floors) Measure(ctx context.Context, dir string, n int) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for range n {
		began := time.Now()
		if err := runTrue(); err != nil {
			return fmt.Errorf("floor of a process: %w", err)
		}
		f.exec = append(f.exec, report.Milliseconds(time.Since(began)))
	}
	if err := f.measureMount(dir, n); err != nil {
		return fmt.Errorf("floor of a mount: %w", err)
	}
	if err := f.measureCall(ctx, n); err != nil {
		return fmt.Errorf("floor of a call: %w", err)
	}
	return nil
}

// runTrue runs /bin/true in the same kinds of namespaces as commands get.
func runTrue() error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{
		Dir: "/", Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP},
	})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err = eintr.Ignore(func() (int, error) { return syscall.Wait4(pid, &status, 0, nil) })
	if err == nil && status != 0 {
		err = fmt.Errorf("/bin/true ended with %#x", status)
	}
	return err
}

func (f *Floors) measureMount(dir string, n int) error {
	folders := map[string]string{}
	for _, name := range []string{"lower", "upper", "work", "root"} {
		folders[name] = filepath.Join(dir, name)
		if err := os.Mkdir(folders[name], 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", folders["lower"], folders["upper"], folders["work"])
	for range n {
		// The next volatile mount of the same folders would fail on these remains.
		if err := os.RemoveAll(filepath.Join(folders["work"], "work", "incompat")); err != nil {
			return err
		}
		began := time.Now()
		if err := unix.Mount("floor", folders["root"], "overlay", unix.MS_NODEV, options); err != nil {
			return err
		}
		if err := unix.Unmount(folders["root"], unix.UMOUNT_NOFOLLOW); err != nil {
			return err
		}
		f.mount = append(f.mount, report.Milliseconds(time.Since(began)))
	}
	return nil
}

func (f *Floors) measureCall(ctx context.Context, n int) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		err = errors.Join(err, <-served)
	}()
	conn, err := dial.Dial(listener.Addr().String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := healthpb.NewHealthClient(conn)
	for i := range n + 1 { // the first call connects
		began := time.Now()
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			return err
		}
		if i > 0 {
			f.rpc = append(f.rpc, report.Milliseconds(time.Since(began)))
		}
	}
	return nil
}

// Rows returns the medians; without samples it returns no rows.
func (f *Floors) Rows() []report.Row {
	if len(f.exec) == 0 {
		return nil
	}
	of := func(name, note string, ms []float64) report.Row {
		r := report.NewRow(name, report.Median(ms), "ms")
		r.Note = fmt.Sprintf("%s; p99 %s", note, report.FormatValue(report.Quantile(slices.Sorted(slices.Values(ms)), 0.99)))
		return r
	}
	whole := report.NewRow(Noop, report.Median(f.exec)+callsOfAction*report.Median(f.rpc), "ms")
	whole.Note = fmt.Sprintf("%s and %d × %s", exec, callsOfAction, rpc)
	return []report.Row{
		whole, of(exec, "fork, exec and wait in namespaces of its own", f.exec),
		of(rpc, "a call over loopback", f.rpc), of(Mount, "mount and unmount of an overlay", f.mount),
	}
}
