package operator

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestReadiness has a worker without a scheduler, then with one, then with one that hangs, then
// without the folders that it needs.
func TestReadiness(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	listen, pages := freeport.Address(f.T), freeport.Address(f.T)
	data := filepath.Join(f.Dir, "worker")
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	worker := f.Start("forerunner-worker", "--data", data, "--http", pages, "--scheduler", "grpc://"+listen, "--storage", "grpc://"+listen)
	becomes(f, pages, http.StatusServiceUnavailable, "scheduler grpc://"+listen)
	scheduler := f.Start("forerunner-scheduler", "--data", filepath.Join(f.Dir, "scheduler"), "--listen", listen)
	becomes(f, pages, http.StatusOK, "ready")
	scheduler.Signal(syscall.SIGSTOP) // which keeps its connections
	becomes(f, pages, http.StatusServiceUnavailable, "no answer")
	scheduler.Signal(syscall.SIGCONT)
	becomes(f, pages, http.StatusOK, "ready")
	inTheWay := filepath.Join(data, "mount", "roots", ".probe")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	becomes(f, pages, http.StatusServiceUnavailable, "input roots: ")
	if err := os.Remove(inTheWay); err != nil {
		f.Fatal(err)
	}
	for folder, what := range map[string]string{"work": "work folder: ", "cas/tmp": "store: "} {
		folder = filepath.Join(data, folder)
		rename(f, folder, folder+"-gone")
		becomes(f, pages, http.StatusServiceUnavailable, what)
		rename(f, folder+"-gone", folder)
		becomes(f, pages, http.StatusOK, "ready")
	}
	worker.Drain()
	scheduler.Drain()
}

func rename(f *programs.Test, from, to string) {
	f.Helper()
	if err := os.Rename(from, to); err != nil {
		f.Fatal(err)
	}
}

// becomes waits until a program says that it is ready, or why it is not.
func becomes(f *programs.Test, address string, code int, why string) {
	f.Helper()
	f.Eventually(why, func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == code && strings.Contains(string(text), why)
	})
}
