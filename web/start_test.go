package web

import (
	"os"
	"strings"
	"testing"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// TestBazelrc compares the lines with those in the documentation.
func TestBazelrc(t *testing.T) {
	lines := Bazelrc("grpc://127.0.0.1:8980", "http://127.0.0.1:8981/", 0)
	for slots, jobs := range map[int]string{1: "50", 12: "50", 64: "256"} {
		want := strings.Replace(lines, "--jobs=50\n", "--jobs="+jobs+"\n", 1)
		if got := Bazelrc("grpc://127.0.0.1:8980", "http://127.0.0.1:8981/", slots); got != want {
			t.Errorf("with %d slots they are\n%swant\n%s", slots, got, want)
		}
	}
	for _, page := range []string{"../README.md", "../docs/QUICKSTART.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```bazelrc\n"+lines+"```\n") {
			t.Errorf("%s has other lines than\n%s", page, lines)
		}
	}
	if lines := Bazelrc("grpc://h:1", "", 0); strings.Contains(lines, "results_url") {
		t.Errorf("without pages they are\n%s", lines)
	}
}

// TestStart opens the overview of a new farm: it shows how to use the farm until someone has used
// it.
func TestStart(t *testing.T) {
	b := newBrowser(t, false)
	if page := b.get("/", 200); strings.Contains(page, "--remote_executor") {
		t.Error("lines without an address are shown")
	}
	b.change(func(o *Options) { o.Address = "grpc://[::]:8980" })
	expect(t, b.get("/", 200), "Start here", "build --remote_executor=grpc://127.0.0.1:8980\n", "build --bes_results_url="+b.server.URL+"/builds/\n",
		"forerunner exec --remote grpc://127.0.0.1:8980 ")
	b.change(func(o *Options) { o.Address, o.Pages = "grpcs://farm:1", "https://pages/" })
	expect(t, b.get("/", 200), "build --remote_executor=grpcs://farm:1\n", "build --bes_results_url=https://pages/builds/\n")
	b.scheduler.ended = []*historypb.Record{{Invocation: "one", Build: &historypb.Build{}}}
	for range 2 {
		if page := b.get("/", 200); strings.Contains(page, "Start here") {
			t.Error("the farm has been used")
		}
		b.scheduler.ended = nil
	}
}

// TestStartOfOneMachine: the page of a farm in one process has the lines that its program prints.
func TestStartOfOneMachine(t *testing.T) {
	b := newBrowser(t, false)
	b.change(func(o *Options) { o.Address, o.Pages, o.Slots = "grpc://127.0.0.1:8980", "http://127.0.0.1:8981/", 64 })
	expect(t, b.get("/", 200), Bazelrc("grpc://127.0.0.1:8980", "http://127.0.0.1:8981/", 64))
}

func TestReachable(t *testing.T) {
	for _, c := range [][3]string{
		{"grpc://0.0.0.0:8980", "farm:8981", "grpc://farm:8980"},
		{"grpc://[::]:8980", "[fe80::1]:8981", "grpc://[fe80::1]:8980"},
		{"grpc://[::]:8980", "farm", "grpc://farm:8980"},
		{"grpc://127.0.0.1:8980", "farm:8981", "grpc://127.0.0.1:8980"},
		{"grpc://10.0.0.1:8980", "farm:8981", "grpc://10.0.0.1:8980"},
	} {
		if got := reachable(c[0], c[1]); got != c[2] {
			t.Errorf("%s, seen at %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
