package rot

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

const rotDiskMB = 512

// A rotFarm is storage, scheduler and two workers apart; the workers read each other's stores.
type rotFarm struct {
	*programs.Test
	storage, scheduler *rotProgram
	workers            []*rotProgram
	conn               *programs.SplitConn
	client             *casclient.Client
	total              map[string]float64 // metrics of programs that have ended
}

// A rotProgram is a program that can be started again with other environment variables.
type rotProgram struct {
	name, http string
	disk       *rotDisk
	args       []string
	now        *programs.Process
}

// cas and actions are where it keeps blobs, and results.
func (p *rotProgram) cas() string {
	if p.name == "storage" {
		return filepath.Join(p.disk.dir, "storage/cas")
	}
	return filepath.Join(p.disk.dir, "cas")
}

func (p *rotProgram) actions() string { return filepath.Join(p.disk.dir, "storage/actions") }

func newRotFarm(f *programs.Test) *rotFarm {
	f.Helper()
	unmountRotDisks(f)
	r := &rotFarm{Test: f, total: map[string]float64{}}
	program := func(name string, args ...string) *rotProgram {
		p := &rotProgram{name: name, http: freeport.Address(f.T), disk: mountRotDisk(f, name, rotDiskMB)}
		p.args = append(args, "--http", p.http, "--data", p.disk.dir)
		return p
	}
	storage, scheduler := freeport.Address(f.T), freeport.Address(f.T)
	r.storage = program("storage", "forerunner-scheduler", "--listen", storage, "--cache-writes", "clients")
	r.scheduler = program("scheduler", "forerunner-scheduler", "--listen", scheduler, "--storage", "grpc://"+storage)
	for i := range 2 {
		name := fmt.Sprint("worker-", i+1)
		w := program(name, "forerunner-worker", "--id", "name="+name, "--scheduler", "grpc://"+scheduler,
			"--storage", "grpc://"+storage, "--slots", "2", "--serve-cache", freeport.Address(f.T))
		r.workers = append(r.workers, w)
		f.Cleanup(func() { programs.ExpectNoMounts(f.T, filepath.Join(w.disk.dir, "mount")) })
	}
	r.conn = &programs.SplitConn{Execution: f.Dial(scheduler), Storage: f.Dial(storage)}
	r.client = casclient.New(r.conn, casclient.Options{})
	return r
}

// start starts a program with some variables.
func (r *rotFarm) start(p *rotProgram, env ...string) {
	r.Helper()
	p.now = r.With(env...).Start(p.args...)
	if p.args[0] == "forerunner-worker" {
		p.now.WaitFor(&p.now.Stderr, programs.ReadyLine)
		return
	}
	p.now.WaitFor(&p.now.Stdout, programs.ServesLine)
}

// stop ends all programs that run, and takes down what they have counted.
func (r *rotFarm) stop() {
	r.Helper()
	for _, p := range []*rotProgram{r.workers[0], r.workers[1], r.scheduler, r.storage} {
		if p.now == nil {
			continue
		}
		for name, value := range r.metrics(p) {
			if strings.HasSuffix(name, "_total") {
				r.total[kindOfRot(p)+" "+name] += value
			}
		}
		p.now.Drain()
		p.now = nil
	}
}

// kindOfRot is storage or worker.
func kindOfRot(p *rotProgram) string {
	kind, _, _ := strings.Cut(p.name, "-")
	return kind
}

// metrics returns what a program shows, the sums over all labels.
func (r *rotFarm) metrics(p *rotProgram) map[string]float64 {
	r.Helper()
	response, err := http.Get("http://" + p.http + "/metrics")
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	sums := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			value = lines.Text()[i+1:]
		}
		name, _, _ := strings.Cut(series, "{")
		if n, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(name, "forerunner_") {
			sums[name] += n
		}
	}
	return sums
}

// scrub has each store read completely, and then compares all files with their names.
func (r *rotFarm) scrub() {
	r.Helper()
	stores := append([]*rotProgram{r.storage}, r.workers...)
	for _, p := range stores {
		// Otherwise the kernel would return the bytes that it has in memory.
		for _, path := range filesOf(r.T, p.cas()) {
			file, err := os.Open(path)
			if err != nil {
				r.Fatal(err)
			}
			if err := forget(file); err != nil {
				r.Error(err)
			}
			_ = file.Close()
		}
	}
	for _, p := range []*rotProgram{r.storage, r.scheduler, r.workers[0], r.workers[1]} {
		r.start(p, "FORERUNNER_SCRUB_EVERY=1s", "FORERUNNER_SCRUB_RATE=1G")
	}
	for _, p := range stores {
		const whole = "forerunner_store_scrub_whole_timestamp_seconds"
		// The first change is the start of a pass or the end of it, the next one is the end of one.
		for last, changes := 0.0, 0; changes < 3; {
			r.Eventually(p.name+" is scrubbed", func() bool { return r.metrics(p)[whole] != last })
			last = r.metrics(p)[whole]
			changes++
		}
	}
	r.stop()
}

// filesOf lists the files of a store or an action cache.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	for _, group := range []string{"sha256", "results"} {
		some, err := filepath.Glob(filepath.Join(dir, group, "??", "*"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	return files
}
