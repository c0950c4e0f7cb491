package operator

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestMetricsOfUp: what the worker of `forerunner up` counts, and lacks, is shown beside what the
// scheduler does.
func TestMetricsOfUp(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	listen, pages := freeport.Address(f.T), freeport.Address(f.T)
	up := f.Start("forerunner", "up", "--data", "up", "--listen", listen, "--http", pages, "--cache-size", "100M")
	up.WaitFor(&up.Stdout, programs.UpLine)
	f.Exec("grpc://"+listen, "--", "true").Expect(0, "")
	var text string
	shows := func(line string) bool {
		response, err := http.Get("http://" + pages + "/metrics")
		if err != nil {
			f.Fatal(err)
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			f.Fatalf("%s, %v", response.Status, err)
		}
		text = string(all)
		return strings.Contains(text, line)
	}
	// An action is counted after its result has gone.
	const counted = "forerunner_worker_actions_total{half=\"worker\",outcome=\"ok\"} 1\n"
	f.Eventually("/metrics shows "+counted, func() bool { return shows(counted) })
	if line := "forerunner_store_damaged_total 0\n"; !strings.Contains(text, line) {
		f.Errorf("/metrics does not show %s", line)
	}
	if twice := "forerunner_store_damaged_total{half=\"worker\"}"; strings.Contains(text, twice) {
		f.Errorf("/metrics shows the one store of both twice: %s", twice)
	}

	// A command that does not run has a page, too.
	f.Exec("grpc://"+listen, "--", "no-such-program").Expect(127, "", "See http://"+pages+"/operations/", `exec "no-such-program": no such file`)

	// So has one that succeeds, and one whose result was in the action cache.
	for _, how := range []string{"done: ran for ", "done: the result was in the action cache\n"} {
		ran := f.Exec("grpc://"+listen, "--", "sh", "-c", "echo it works")
		ran.Expect(0, "it works\n", how, "\nSee http://"+pages+"/operations/")
		_, page, _ := strings.Cut(ran.Stderr.String(), "\nSee ")
		page, _, _ = strings.Cut(page, "\n")
		response, err := http.Get(page)
		if err != nil {
			f.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), page[strings.LastIndexByte(page, '/')+1:]) {
			f.Errorf("%s: %s, %v, %d bytes", page, response.Status, err, len(text))
		}
	}

	// It is as ready as its worker.
	becomes(f, pages, http.StatusOK, "ready")
	work := filepath.Join(f.Dir, "up", "worker", "work")
	rename(f, work, work+"-gone")
	becomes(f, pages, http.StatusServiceUnavailable, "work folder: ")
	rename(f, work+"-gone", work)
	becomes(f, pages, http.StatusOK, "ready")
	up.Drain()
}
