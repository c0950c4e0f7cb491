package operator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestQuotas has one client take all four slots of a farm. A second one, with a minimum of two,
// must get two although no action ends; the first one's actions must all succeed nevertheless.
// "quota get" must match the running actions at any time.
func TestQuotas(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	const delay, grace = time.Second, time.Second
	config := f.Write("config.yaml", fmt.Sprintf(`
labels: {all: {pool: shared}}
cohorts: {farm: {labels: [all], unit: slots}}
preemption: {delay: %s, grace: %s}
`, delay, grace))
	data, listen := filepath.Join(f.Dir, "data"), freeport.Address(f.T)
	pages, workerPages := freeport.Address(f.T), freeport.Address(f.T)
	serve := func() *programs.Process {
		p, _ := f.Scheduler("--data", data, "--listen", listen, "--http", pages, "--config", config)
		return p
	}
	server := serve()
	f.Verb(listen, "quota", "put", "--min-quota=2", "--max-quota=3", "second", "farm")
	if got := f.Verb(listen, "quota", "put", "--min-quota=9", "third", "farm"); !strings.Contains(got, "warning: cohort farm: the minimums exceed the capacity: they add up to 11") {
		f.Errorf("no warning: %s", got)
	}
	f.Verb(listen, "quota", "delete", "third", "farm")
	server.Drain()
	server = serve() // the quota is still there
	worker := f.With("FORERUNNER_REPORT_WIDTH=0").Worker("worker", listen, listen, "--slots", "4", "--platform", "pool=shared",
		"--http", workerPages, "--serve-cache", "127.0.0.1:0")

	release := filepath.Join(f.Dir, "release")
	var clients []*programs.Process
	run := func(instance string, n int) {
		for i := range n {
			clients = append(clients, f.Exec(listen, "--instance", instance, "--platform", "pool=shared", "--",
				"/bin/sh", "-c", fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; echo done # %s-%d", release, instance, i)))
		}
	}
	run("first", 4)
	f.Eventually("the first one has all slots", func() bool { return quotaUsed(f, listen, "first") == 4 })
	f.Eventually("its commands run", func() bool { return commands(f, release, "first") == 4 })
	began := time.Now()
	run("second", 4)
	f.Eventually("the second one has its guarantee", func() bool {
		first, second := quotaUsed(f, listen, "first"), quotaUsed(f, listen, "second")
		if first > 4 || second > 2 {
			f.Errorf("the first one uses %d slots, the second %d", first, second)
		}
		return second == 2
	})
	f.Logf("it took %s, with a delay of %s and a grace of %s", time.Since(began), delay, grace)
	f.Eventually("its commands run", func() bool {
		return commands(f, release, "first") == 2 && commands(f, release, "second") == 2
	})
	if first, second := quotaUsed(f, listen, "first"), quotaUsed(f, listen, "second"); first != 2 || second != 2 {
		f.Errorf("quota get says %d and %d, 2 and 2 run", first, second)
	}
	f.Write("release", "")
	for _, c := range clients {
		c.Expect(0, "done\n")
	}
	f.Eventually("nothing is used", func() bool {
		return quotaUsed(f, listen, "first") == 0 && quotaUsed(f, listen, "second") == 0
	})
	expectDocumentedMetrics(f, "scheduler", pages)
	expectDocumentedMetrics(f, "worker", workerPages)
	worker.Drain()
	server.Drain()
}

// quotaUsed returns the use of an instance according to "quota get", after comparing it with the
// running actions that it lists.
func quotaUsed(f *programs.Test, address, instance string) int {
	f.Helper()
	list := &admin.ListQuotasResponse{}
	if err := protojson.Unmarshal([]byte(f.Verb(address, "quota", "get", "--runs", "--json", instance, "farm")), list); err != nil {
		f.Fatal(err)
	}
	q, sum, workers := list.GetCohorts()[0].GetQuotas()[0], int64(0), map[string]bool{}
	for _, r := range q.GetRuns() {
		sum += r.GetCost()
		workers[r.GetWorker()] = true
	}
	if sum != q.GetUsed() || len(workers) != len(q.GetRuns()) {
		f.Errorf("quota get says that %q uses %d, and runs %v", instance, q.GetUsed(), q.GetRuns())
	}
	return int(q.GetUsed())
}

// commands counts the shells of an instance that run.
func commands(f *programs.Test, release, instance string) (n int) {
	f.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range lines {
		// A process that ends meanwhile takes its file along.
		text, _ := os.ReadFile(line)
		if bytes.HasPrefix(text, []byte("/bin/sh\x00-c\x00until [ -e "+release)) && bytes.Contains(text, []byte("# "+instance)) {
			n++
		}
	}
	return n
}
