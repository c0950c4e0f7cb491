package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// ListRecords returns all records of the fake, or those of the requested invocation.
func (f *fakeScheduler) ListRecords(_ context.Context, req *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error) {
	f.tell(fmt.Sprintf("records %v %q %v %t", req.GetPattern().GetAttributes(), req.GetText(), req.GetOutcomes(), req.GetSlowest()))
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &admin.ListRecordsResponse{}
	for _, r := range f.ended {
		if req.GetBuilds() != (r.GetBuild() != nil) {
			continue
		}
		if req.GetSince() != nil && r.GetEnded().AsTime().Before(req.GetSince().AsTime()) {
			continue
		}
		if req.GetBefore() != nil && !r.GetEnded().AsTime().Before(req.GetBefore().AsTime()) {
			continue
		}
		if id := req.GetPattern().GetAttributes()["invocation"]; id == "" || id == r.GetInvocation() {
			resp.Records = append(resp.Records, r)
		}
	}
	return resp, nil
}

func (f *fakeScheduler) GetRecord(_ context.Context, req *admin.GetRecordRequest) (*historypb.Record, error) {
	for _, r := range f.ended {
		if r.GetOperation() == req.GetOperation() || r.GetAction() == req.GetAction() {
			return r, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "operation %q is unknown, or ended too long ago", req.GetOperation())
}

// failed returns an operation that ended with exit code 139, whose command is in the storage.
func failed(b *browser) *historypb.Record {
	command := b.blobs.put(&repb.Command{
		Arguments: []string{"cc", "-o", "a b"}, WorkingDirectory: "sub",
		EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "A", Value: "$x"}},
		OutputPaths:          []string{"bin/a.d", "bin/a.o"},
	})
	stderr := []byte("\x1b[31merror:\x1b[0m <b>no</b> such \x1b]8;;javascript:alert(1)\x07thing\x1b]8;;\x07\n")
	d := digest.Of(digest.SHA256, stderr)
	b.blobs[d] = stderr
	ended := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return &historypb.Record{
		Operation: "operations/1234", Action: strings.Repeat("cd", 32) + "/7", DigestFunction: "sha256", InstanceName: "main", Target: "//a:b",
		Mnemonic: "CppCompile", Invocation: "build-1", Outcome: historypb.Outcome_FAILED, ExitCode: 139, Attempts: 2,
		Worker: `{"host":"w1","position":"0"}`, Command: command.String(),
		Queued: timestamppb.New(ended.Add(-3 * time.Second)), Started: timestamppb.New(ended.Add(-2 * time.Second)), Ended: timestamppb.New(ended),
		Stderr: &historypb.Stream{Digest: d.String()}, Stdout: &historypb.Stream{Raw: []byte("out")}, AllOutputs: 3,
		Outputs: []*historypb.Output{{Path: "bin/a.o", Digest: d.String()}},
	}
}

// TestRecordPage shows an operation that ended long ago, by its name and by its action.
func TestRecordPage(t *testing.T) {
	b := newBrowser(t, false)
	r := failed(b)
	b.scheduler.ended = []*historypb.Record{r}
	page := b.get("/operations/1234", 200)
	expect(t, page, "Failed: exit code 139, as a shell reports SIGSEGV", `<span class="term-fg31">error:</span> &lt;b&gt;no`, "such thing",
		"cd sub &amp;&amp; env -i &#39;A=$x&#39; cc -o &#39;a b&#39;", `href="/builds/build-1"`, `href="/workers?pattern=host%3Dw1"`,
		`download>bin/a.o</a>`, "and 2 more", "attempt 2")
	if strings.Index(page, "Standard error") > strings.Index(page, "<dt>Worker") {
		t.Error("standard error is not before the facts")
	}
	if strings.Contains(page, "javascript:") {
		t.Error("a command can make links")
	}
	expect(t, b.get("/actions/sha256/"+r.GetAction()+"?instance=main", 200), "Failed: exit code 139") // the storage no longer has the action
	if got := b.get("/blobs/sha256/"+r.GetStderr().GetDigest()+"?instance=main&name=x/stderr.txt", 200); !strings.Contains(got, "error:") {
		t.Errorf("the download is %q", got)
	}
	b.get("/blobs/sha256/"+strings.Repeat("0", 64)+"/3", 404)
	r.Outcome, r.ExitCode = historypb.Outcome_SUCCEEDED, 0
	page = b.get("/operations/1234", 200)
	if strings.Index(page, "Standard error") < strings.Index(page, "<dt>Worker") {
		t.Error("on the page of a success, standard error is before the facts")
	}
	if strings.Contains(page, "did not make") {
		t.Error("outputs that are not listed were not made")
	}
	r.AllOutputs = 1
	expect(t, b.get("/operations/1234", 200), "Outputs that the command did not make <small>1</small>", "<li>bin/a.d</li>")
	r.Outcome = historypb.Outcome_FAILED
	if strings.Contains(b.get("/operations/1234", 200), "did not make") {
		t.Error("a command that failed need not make outputs")
	}
}

// TestRunAgain has commands whose environment is known, empty, and not known.
func TestRunAgain(t *testing.T) {
	r := &historypb.Record{Arguments: []string{"cc"}}
	for want, command := range map[string]*repb.Command{
		"cc":                 nil,
		"env -i cc -c":       {Arguments: []string{"cc", "-c"}},
		"env -i 'A=a b' tcc": {Arguments: []string{"tcc"}, EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "A", Value: "a b"}}},
		"":                   {},
	} {
		if got := again(r, command); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestRecordPageWithoutContent has a viewer with the right to execute but not to read. A command's
// environment is content.
func TestRecordPageWithoutContent(t *testing.T) {
	b := newBrowser(t, false)
	r := failed(b)
	r.Arguments = []string{"cc"}
	b.scheduler.ended = []*historypb.Record{r}
	for right, want := range map[auth.Right]bool{auth.Execute: false, auth.Observe: true} {
		g, err := auth.New(auth.Options{Rules: []auth.Rule{{Anyone: true, May: []auth.Right{right}}}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		g.OwnHTTP(auth.Execute, b.site.Handler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/operations/1234", nil))
		page := w.Body.String()
		expect(t, page, "Failed: exit code 139")
		if got := strings.Contains(page, "A=$x"); got != want {
			t.Errorf("with the right %q the page shows the environment: %t, want %t", right, got, want)
		}
	}
}

func TestHistoryPage(t *testing.T) {
	b := newBrowser(t, false)
	expect(t, b.get("/history", 200), "No operation of this kind has ended")
	b.scheduler.ended = []*historypb.Record{failed(b)}
	expect(t, b.get("/history?show=failed&q=user%3Dann+//a:+b", 200), "//a:b", "exit code 139, as a shell reports SIGSEGV", "2030-01-02 03:04:05 UTC", `value="user=ann //a: b"`)
	if told := b.scheduler.told; told[len(told)-1] != `records map[user:ann] "//a: b" [FAILED ERROR OUT_OF_MEMORY TIMED_OUT] false` {
		t.Errorf("asked %q", told)
	}
	bare := failed(b)
	bare.Target, bare.Arguments, bare.Worker = "", []string{"cc", "-o", "a b"}, `{"data":"/var/x","host":"w1","position":"0"}`
	b.scheduler.ended = []*historypb.Record{bare}
	expect(t, b.get("/history?q=bare", 200), `href="/operations/1234">cc -o &#39;a b&#39;</a>`, "<td>w1</td>", "2 attempts")
	b.get("/history?show=nonsense", 400)
	expect(t, b.get("/history?time=nonsense", 400), "there is no time")
}

// TestTabsOfHistory follows the tabs between operations and builds, which have other names.
func TestTabsOfHistory(t *testing.T) {
	b := newBrowser(t, false)
	for path, want := range map[string]string{
		"/history?q=action%3D85aa+user%3Dann,worker%3Dhost%3Da+//a:b&time=1h": `href="/history?q=user%3Dann&#43;%2F%2Fa%3Ab&amp;show=builds&amp;time=1h">Builds<`,
		"/history?q=action%3D85aa":                        `href="/history?show=builds">Builds<`,
		"/history?q=worker%3Da&show=failed":               `href="/history?q=worker%3Da&amp;show=retried">Retried<`,
		"/history?q=command%3Dtest,user%3Da&show=builds":  `href="/history?q=user%3Da&amp;show=failed">Failed<`,
		"/history?q=command%3Dtest,user%3Da&show=builds#": `No matching build is known. <a href="/history?q=user%3Da&amp;show=recent">Search operations</a>`,
	} {
		expect(t, b.get(path, 200), want)
	}
}

// TestBuildPage has a build of 20,000 actions in 64 positions.
func TestBuildPage(t *testing.T) {
	b := newBrowser(t, false)
	b.get("/builds/build-1", 404)
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 20_000 {
		begun := start.Add(time.Duration(i/64) * time.Second)
		r := &historypb.Record{
			Operation: fmt.Sprintf("operations/%d", i), Target: fmt.Sprintf("//a:%d", i), Mnemonic: []string{"CppCompile", "GoLink"}[i%2], Invocation: "build-1",
			Outcome: historypb.Outcome_SUCCEEDED, Worker: fmt.Sprintf(`{"host":"w%02d"}`, i%64), Attempts: 1,
			Queued: timestamppb.New(start), Started: timestamppb.New(begun), Ended: timestamppb.New(begun.Add(time.Second)),
		}
		switch i % 1000 {
		case 3:
			r.Outcome, r.ExitCode = historypb.Outcome_FAILED, 1
		case 5, 7, 9:
			r.Outcome, r.Started, r.Worker = historypb.Outcome_CACHED, nil, ""
		}
		b.scheduler.ended = append(b.scheduler.ended, r)
	}
	page := b.get("/builds/build-1", 200)
	expect(t, page, "<dd>20\u2009000</dd>", "<dd>60</dd>", `<span class="lane-count">64 lanes</span>`, "//a:3<", "GoLink", "1 % from the action cache")
	if n := strings.Count(page, "<path"); n > 10 {
		t.Errorf("the time line has %d paths", n)
	}
	if paths := regexp.MustCompile(`<path[^>]* d="(M[^"]*)"`).FindAllStringSubmatch(page, -1); len(paths) < 3 || !regexp.MustCompile(`^M0,40(V[0-9.]+h1){240}V40Z$`).MatchString(paths[0][1]) ||
		!regexp.MustCompile(`^(M\d+ \d+h\d+v8h-\d+z)+$`).MatchString(paths[1][1]) {
		t.Errorf("%d paths, the first begin %.60q", len(paths), paths)
	}
	if len(page) > 6<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestBuildPageSendsWhatIsNew has a build of 20,000 actions continue while its page is open.
func TestBuildPageSendsWhatIsNew(t *testing.T) {
	b := newBrowser(t, false)
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	ended := func(i int) *historypb.Record {
		begun := start.Add(time.Duration(i/64) * time.Second)
		return &historypb.Record{
			Operation: fmt.Sprintf("operations/%d", i), Target: fmt.Sprintf("//a:%d", i), Mnemonic: "CppCompile", Invocation: "build-1",
			Outcome: historypb.Outcome_SUCCEEDED, Worker: fmt.Sprintf(`{"host":"w%02d"}`, i%64), Attempts: 1,
			Queued: timestamppb.New(start), Started: timestamppb.New(begun), Ended: timestamppb.New(begun.Add(time.Second)),
		}
	}
	for i := range 20_000 {
		b.scheduler.ended = append(b.scheduler.ended, ended(i))
	}
	b.scheduler.open = []*admin.Operation{{
		Name: "operations/running", Invocation: "build-1", Target: "//a:running", Worker: `{"host":"w99"}`,
		Queued: timestamppb.New(start), Started: timestamppb.New(start.Add(5 * time.Minute)),
	}}
	page := b.get("/builds/build-1", 200)
	have := regexp.MustCompile(`data-have="(\d+)"`).FindStringSubmatch(page)
	if have == nil {
		t.Fatal("the page does not say which actions it has")
	}
	t.Logf("the page has %d bytes", len(page))
	sent, added, seen, looks := 0, false, false, 0
	b.follow("/builds/build-1?have="+have[1], func(name, data string) bool {
		sent += len(data)
		switch {
		case name == "lanes" && !added:
			expect(t, data, "//a:running")
			added = true
			b.scheduler.mu.Lock()
			b.scheduler.ended = append(b.scheduler.ended, ended(20_000))
			b.scheduler.mu.Unlock()
		case name == "main" && added:
			seen = strings.Contains(data, "<dd>20\u2009001</dd>")
			expect(t, data, `id="time-line" data-kept`)
		case name == "lanes" && seen:
			expect(t, data, "//a:20000", "//a:running")
			if strings.Contains(data, "//a:19000") {
				t.Error("actions that the page has are sent again")
			}
			return false
		}
		if !seen {
			sent = 0 // the scheduler has answered before; the last actions may be sent once more
		}
		looks++
		return looks < 20
	})
	if !seen {
		t.Error("one more action is not on the page")
	}
	if t.Logf("for one more action %d bytes are sent", sent); !added || sent > 64<<10 {
		t.Errorf("for one more action %d bytes are sent (%t)", sent, added)
	}
}

// TestBuildTrace returns the completed actions of a build as a Chrome trace.
func TestBuildTrace(t *testing.T) {
	b := newBrowser(t, false)
	b.get("/builds/build-1.trace.json", 404)
	ran, cached := failed(b), failed(b)
	ran.Target = "//a:\"</script>"
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(ran.GetStarted().AsTime().Add(d)) }
	ran.Metadata = &repb.ExecutedActionMetadata{ExecutionStartTimestamp: at(500 * time.Millisecond), ExecutionCompletedTimestamp: at(2 * time.Second)}
	cached.Operation, cached.Outcome, cached.Started, cached.Worker = "operations/2", historypb.Outcome_CACHED, nil, ""
	b.scheduler.ended = []*historypb.Record{ran, cached}
	expect(t, b.get("/builds/build-1", 200), `href="/builds/build-1.trace.json" download`)
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  int64
			Pid, Tid int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal([]byte(b.get("/builds/build-1.trace.json", 200)), &trace); err != nil {
		t.Fatal(err)
	}
	start := ran.GetStarted().AsTime().UnixMicro()
	var got []string
	for _, e := range trace.TraceEvents {
		if e.Ph != "M" {
			e.Ts -= start
		}
		got = append(got, fmt.Sprintf("%s %s %d+%d %d/%d %v", e.Ph, e.Name, e.Ts, e.Dur, e.Pid, e.Tid, e.Args))
	}
	want := []string{
		"M process_name 0+0 1/0 map[name:w1]", "M thread_name 0+0 1/1 map[name:host=w1,position=0]",
		"b queue //a:\"</script> CppCompile -1000000+0 1/1 map[]", "e queue //a:\"</script> CppCompile 0+0 1/1 map[]",
		"X //a:\"</script> CppCompile 0+2000000 1/1 map[failed:true operation:operations/1234 waited_ms:1000]",
		"X inputs and waiting 0+500000 1/1 map[]", "X execution 500000+1500000 1/1 map[]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestComparedRecord explains why a result was not in the action cache.
func TestComparedRecord(t *testing.T) {
	b := newBrowser(t, false)
	file := func(name, content string) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(content)).Proto()}
	}
	action := func(flag, path, header string) string {
		deep := b.blobs.put(&repb.Directory{Files: []*repb.FileNode{file("same.h", "same"), file("<b>.h", header)}})
		same := b.blobs.put(&repb.Directory{Files: []*repb.FileNode{file("never.h", "never")}})
		root := b.blobs.put(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "include", Digest: deep.Proto()}, {Name: "other", Digest: same.Proto()}}})
		command := b.blobs.put(&repb.Command{
			Arguments: []string{"cc", flag}, EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: path}, {Name: "LANG", Value: "C"}},
		})
		return b.blobs.put(&repb.Action{CommandDigest: command.Proto(), InputRootDigest: root.Proto()}).String()
	}
	before, now := failed(b), failed(b)
	before.Operation, before.Action = "operations/1", action("-O1", "/bin", "one")
	now.Action = action("-O2", "/usr/bin", "two")
	now.Ended = timestamppb.New(before.GetEnded().AsTime().Add(time.Hour))
	b.scheduler.ended = []*historypb.Record{now, before}
	expect(t, b.get("/operations/1234", 200), `href="/operations/1234?compare=1#compared"`)
	for _, path := range []string{"/operations/1234?compare=1", "/actions/sha256/" + now.GetAction() + "?instance=main&compare=1"} {
		page := b.get(path, 200)
		expect(t, page, `<td>-O1</td><td>-O2</td>`, `<th scope="row">PATH</th><td>/bin</td><td>/usr/bin</td>`, `<th scope="row">include/&lt;b&gt;.h</th>`,
			`href="/operations/1"`, "<li>Input include/&lt;b&gt;.h differs.</li>")
		_, page, _ = strings.Cut(page, `id="compared"`)
		page, _, _ = strings.Cut(page, "<h2>") // the page of an action lists all inputs below
		for _, same := range []string{"LANG</th>", "same.h", "never.h"} {
			if strings.Contains(page, same) {
				t.Errorf("%s: %s is the same, and listed", path, same)
			}
		}
	}
	expect(t, b.get("/actions/sha256/"+now.GetAction()+"?instance=main", 200), `href="?compare=1&amp;instance=main#compared"`)
	b.scheduler.ended = []*historypb.Record{now}
	expect(t, b.get("/operations/1234?compare=1", 200), "No other run of //a:b (CppCompile) is known here")
}

// TestHiddenCharacters: whatever others chose as names, pages show each character of them.
func TestHiddenCharacters(t *testing.T) {
	b := newBrowser(t, false)
	r := failed(b)
	const name = "//a\u202eb\u200b\u3164"
	r.Target, r.Mnemonic, r.User, r.Client, r.Invocation, r.InstanceName = name, name, name, name, name, name
	r.Worker, r.Error, r.Message = `{"host":"`+name+`"}`, name, name
	build := &historypb.Record{User: name, Invocation: "build-1", Build: &historypb.Build{
		Command: "build", Patterns: []string{name}, Options: []string{name}, Host: name, LocalUser: name, Errors: []string{name},
		Targets: []*historypb.Build_Target{{Label: name, State: historypb.Build_FAILED, Message: name}},
	}}
	b.scheduler.ended = []*historypb.Record{r, build}
	for _, path := range []string{"/history", "/history?show=builds", "/operations/1234", "/builds/build-1"} {
		page := b.get(path, 200)
		if strings.ContainsAny(page, "\u202e\u200b\u3164") {
			t.Errorf("%s has a character that is not seen:\n%s", path, page)
		}
		if !strings.Contains(strings.ReplaceAll(page, "<wbr>", ""), "a[U+202E]b[U+200B][U+3164]") {
			t.Errorf("%s has no name:\n%s", path, page)
		}
	}
}
