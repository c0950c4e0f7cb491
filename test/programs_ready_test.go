package test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// testReadiness has a worker without a scheduler, then with one, then without the folders that it needs.
func testReadiness(f *farmTest) {
	listen, pages := freeAddress(f.T), freeAddress(f.T)
	data := filepath.Join(f.dir, "worker")
	f.Cleanup(func() { expectNoMounts(f.T, data) })
	worker := f.start("forerunner-worker", "--data", data, "--http", pages, "--scheduler", "grpc://"+listen, "--storage", "grpc://"+listen)
	f.becomes(pages, http.StatusServiceUnavailable, "scheduler grpc://"+listen)
	scheduler := f.start("forerunner-scheduler", "--listen", listen)
	f.becomes(pages, http.StatusOK, "ready")
	inTheWay := filepath.Join(data, "mount", "roots", ".probe")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.becomes(pages, http.StatusServiceUnavailable, "input roots: ")
	if err := os.Remove(inTheWay); err != nil {
		f.Fatal(err)
	}
	for folder, what := range map[string]string{"work": "work folder: ", "cas/tmp": "store: "} {
		folder = filepath.Join(data, folder)
		f.rename(folder, folder+"-gone")
		f.becomes(pages, http.StatusServiceUnavailable, what)
		f.rename(folder+"-gone", folder)
		f.becomes(pages, http.StatusOK, "ready")
	}
	worker.drain()
	scheduler.drain()
}

func (f *farmTest) rename(from, to string) {
	f.Helper()
	if err := os.Rename(from, to); err != nil {
		f.Fatal(err)
	}
}

// becomes waits until a program says that it is ready, or why it is not.
func (f *farmTest) becomes(address string, code int, why string) {
	f.Helper()
	f.eventually(why, func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == code && strings.Contains(string(text), why)
	})
}
