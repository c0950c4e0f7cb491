package bazel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// testEvents has Bazel publish builds while the connection to the scheduler breaks in the middle of
// them, and once while the scheduler is replaced. Each build must end as it does without
// --bes_backend, at once or in the background, and its page must describe it. How Bazel treats a
// scheduler that stays away is Bazel's own matter. The builds have more flags, a farm of their own,
// which shares a folder with them, and the Bazel server of c.
func testEvents(t *testing.T, c *Client, flags ...string) {
	f := programs.New(t, programs.ShareFolder)
	pages := freeport.Address(t)
	up, address := f.Up(filepath.Join(f.Dir, "data"), "--http", pages)
	farm := &upFarm{up, f}
	f.Cleanup(func() { farm.Drain() })
	e := &events{f, farm, c.With("--keep_going", "--remote_retries=20", "--remote_executor=grpc://"+address), pages, address}
	e.large(t)
	e.cuts(t, false, flags...)
	e.cuts(t, true, append(flags, "--bes_upload_mode=fully_async")...)
}

// events has everything that a test of build events needs.
type events struct {
	*programs.Test
	farm           *upFarm
	bazel          *Client
	pages, address string
}

// An upFarm is the farm that runs now, of a test.
type upFarm struct {
	*programs.Process
	of *programs.Test
}

// replace ends the farm in the middle of its work, and starts it again. It is not killed: otherwise
// the events of the last second might be lost, at random.
func (e *events) replace() {
	e.farm.Signal(syscall.SIGTERM)
	e.farm.WaitFor(&e.farm.Stderr, regexp.MustCompile("finishing what runs"))
	e.farm.Signal(syscall.SIGTERM)
	e.farm.Wait()
	e.farm.Process, _ = e.farm.of.Up(filepath.Join(e.Dir, "data"), "--http", e.pages, "--listen", e.address)
	e.farm.of.Cleanup(e.farm.Drain)
}

// in returns them for a part of the test.
func (e events) in(t *testing.T) *events {
	test := *e.Test
	test.T, e.Test = t, &test
	return &e
}

// localFiles has Bazel upload no files that events name.
const localFiles = "--experimental_build_event_upload_strategy=local"

// Bazel's exit codes if tests fail, and if it has waited for the scheduler without success.
const (
	testsFailed = 3
	unpublished = 38
)

const eventsPackage = `
genrule(
    name = "gate",
    outs = ["gate.txt"],
    cmd = "echo > %[1]s; while [ ! -e %[2]s ]; do sleep 0.1; done; echo > $@",
)
sh_test(name = "passes", srcs = ["passes.sh"], data = [":gate"])
sh_test(name = "fails", srcs = ["fails.sh"], data = [":gate"])
`

// cuts publishes one build over an unbroken connection, one whose connection breaks for a while,
// and one whose connection breaks permanently, with more flags; background says whether these flags
// upload in the background.
func (e *events) cuts(t *testing.T, background bool, more ...string) {
	for i, cut := range []string{"not cut", "cut for a while", "cut for good"} {
		name := cut
		if background {
			name, i = "in the background, "+cut, i+10
		}
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			begun, gate := filepath.Join(e.Dir, fmt.Sprint("begun", i)), fmt.Sprint("gate", i)
			e.bazel.WritePackage(t, "events", map[string]string{
				"BUILD": fmt.Sprintf(eventsPackage, begun, filepath.Join(e.Dir, gate)), "passes.sh": "#!/bin/sh\n", "fails.sh": "#!/bin/sh\necho it failed\nexit 1\n",
			})
			for _, script := range []string{"passes.sh", "fails.sh"} {
				if err := os.Chmod(filepath.Join(e.bazel.Workspace(), "events", script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			through := newProxy(t, e.address)
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			flags := append([]string{"//events:all", "--bes_backend=grpc://" + through.address(), "--invocation_id=" + id}, more...)
			ended := e.bazel.Start(t, "test", flags...)
			e.WaitForFile(begun)
			e.Eventually("the build has a page", func() bool { return strings.Contains(e.page(id), "bazel test") })
			if cut != "not cut" {
				through.cut()
				e.Eventually("Bazel tries again", func() bool { _, rejected := through.counts(); return rejected > 0 })
			}
			if cut == "cut for a while" {
				if background {
					e.replace()
				}
				through.restore()
				e.Eventually("Bazel is back", func() bool { passed, _ := through.counts(); return passed > 1 })
			}
			e.Write(gate, "")
			run, want := <-ended, testsFailed
			if cut == "cut for good" && !background {
				want = unpublished
			}
			if run.ExitCode != want {
				t.Fatalf("exit code %d, want %d:\n%s", run.ExitCode, want, programs.Tail(run.Output, 30))
			}
			if cut == "cut for good" {
				e.Eventually("the page says what is known", func() bool { return strings.Contains(e.page(id), "Not ended, or its last event is missing") })
			} else {
				e.expectPage(t, id, !slices.Contains(more, localFiles))
			}
		})
	}
}

// expectPage looks for all of a build on its page, where logs are links if they were uploaded, and
// for the build in the history.
func (e *events) expectPage(t *testing.T, id string, uploaded bool) {
	t.Helper()
	e.Eventually("the page has the end", func() bool { return strings.Contains(e.page(id), "Failed: exit code 3, tests failed") })
	page := e.page(id)
	log := "test.log (failed)"
	if uploaded {
		log = ">" + log + "</a>"
	}
	for _, want := range []string{
		"bazel test ", "--keep_going", "//events:all", "1 passed, 1 did not", "//events:passes", "//events:fails", `<span class="state failed">failed</span>`, log,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "This page is incomplete") || strings.Contains(page, "too large") {
		t.Error("the page says that something is missing")
	}
	var list struct {
		Records []struct{ Invocation string }
	}
	if err := json.Unmarshal([]byte(e.Verb(e.address, "history", "--builds", "--json", "command=test", "target=//events:fails", "invocation="+id)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Records) != 1 || list.Records[0].Invocation != id {
		t.Errorf("the history has %v", list.Records)
	}
}

// large builds targets whose names together are more than the scheduler takes of one event.
func (e *events) large(t *testing.T) {
	t.Run("large", func(t *testing.T) {
		e := e.in(t)
		const id = "00000000-0000-4000-8000-999999999999"
		e.bazel.WritePackage(t, "many", map[string]string{"BUILD": `[filegroup(name = "n%d" % i + 15000 * "x") for i in range(1200)]`})
		run := e.bazel.Run(t, "build", "//many:all", "--bes_backend=grpc://"+e.address, "--invocation_id="+id)
		if run.ExitCode != 0 {
			t.Errorf("exit code %d:\n%s", run.ExitCode, programs.Tail(run.Output, 30))
		}
		e.Eventually("the page has the end", func() bool { return strings.Contains(e.page(id), "Succeeded") })
		page := e.page(id)
		for _, want := range []string{"//many:all", "1\u2009200 built", "1 event was too large"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	})
}

// page returns the page of a build, or the error in its place.
func (e *events) page(id string) string {
	e.Helper()
	resp, err := http.Get("http://" + e.pages + "/builds/" + id)
	if err != nil {
		e.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	return string(text)
}
