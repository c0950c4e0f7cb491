package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// expect fails the test for each text that the page lacks.
func expect(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
}

func TestPages(t *testing.T) {
	b := newBrowser(t, false)
	b.scheduler.queued = 6
	expect(t, b.get("/", 200), "OS=linux", "all 9 workers that take work are busy", "No worker can serve 2", "no worker has OS=plan9",
		"<dt>Lost</dt><dd>1\u2009234", "<dt>Slots busy</dt><dd>16<small> / 20</small>", "<dt>Slots free</dt><dd>2<", "<dt>Workers</dt><dd>10<", "1 draining, 1 resting", "/"+operationOf)
	expect(t, b.get("/invocations", 200), "team-a", "share 67 %, fair 25 %", "share 33 %, fair 75 %", "&lt;b&gt;build&lt;/b&gt;", "at its maximum")
	page := b.get("/operations?pattern=target%3D//a*", 200)
	expect(t, page, operationOf, "&lt;script&gt;", "GoCompile")
	if strings.Contains(page, "<script>alert") {
		t.Error("a target is taken for HTML")
	}
	if !slices.Contains(b.scheduler.told, "list target=//a*") {
		t.Errorf("asked %q", b.scheduler.told)
	}
	expect(t, b.get("/operations?pattern=nonsense", 400), "Invalid request")
	expect(t, b.get("/workers", 200), "scrub 42 %, ends in 4 days", "50 GiB of 80 GiB", "321 blobs: 3 damaged; no scrub", "host=w?1,slot=0", "executing", "old-*", "page=more%26",
		">executing<", ">drained<", "1 of 6 slots busy", "1 action, 6 slots", "cdcdcdcdcdcd", " and 2 more", "30 GiB of 40 GiB", "75 % full", ">80 %<", "host=dead", "efefefefefef")
	if n := strings.Count(b.get("/workers", 200), `action="/workers/drain"`); n != 1 {
		t.Errorf("%d workers can be drained, want one of the two", n)
	}
	expect(t, b.get("/quotas", 200), "<dt>Capacity</dt><dd>40", "<dt>Guaranteed</dt><dd>50", "in slots",
		"more is promised than there is", "web", ">35<", ">7<", "uses 30 of 40")
	expect(t, b.get("/"+operationOf, 200), "executing", "data-live", "/stdout", "Cancel this operation", "instance=main",
		"for its turn", "least delay", "1h0m0s")
	b.scheduler.done, b.scheduler.stderr = true, digest.Of(digest.SHA256, []byte("warning"))
	expect(t, b.get("/"+operationOf, 200), "The storage does not have it")
	b.blobs[b.scheduler.stderr] = []byte("warning")
	page = b.get("/"+operationOf, 200)
	expect(t, page, "137", "killed for want of memory", "300ms", "hit rate", "75 %", "20 MiB", "a &lt; b\ufffd</pre>", "warning</pre>")
	if strings.Contains(page, "Cancel") || strings.Contains(page, "data-live") {
		t.Error("an operation that is done can be cancelled, or moves")
	}
	expect(t, b.get("/operations/unknown", 404), "operations/unknown")
	expect(t, b.get("/nothing", 404), "Not here")
	expect(t, b.get("/static/live.js", 200), "EventSource", "no longer updated: ${event.data}")
}

// TestAction compares the inputs of an action with a profile.
func TestAction(t *testing.T) {
	b := newBrowser(t, false)
	file := func(name string, size int64) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: &repb.Digest{Hash: strings.Repeat("0", 64), SizeBytes: size}}
	}
	lib := b.blobs.put(&repb.Directory{Files: []*repb.FileNode{file("used", 10), file("large", 30<<20)}})
	root := b.blobs.put(&repb.Directory{
		Files: []*repb.FileNode{file("main.c", 5)}, Directories: []*repb.DirectoryNode{{Name: "lib", Digest: lib.Proto()}},
	})
	command := b.blobs.put(&repb.Command{Arguments: []string{"cc", "it's", "$HOME"}})
	action := &repb.Action{CommandDigest: command.Proto(), InputRootDigest: root.Proto()}
	d := b.blobs.put(action)
	path := "/actions/sha256/" + d.String()
	page := b.get(path, 200)
	expect(t, page, "cc &#39;it&#39;\\&#39;&#39;s&#39; &#39;$HOME&#39;", "There is no profile of this command yet", "3 files, 30 MiB",
		"starts on class 1", "it was fast enough", "90 %",
		`<path d="M400 10h.01"/><path class="bad" d="M1000 10h.01"/><path class="accept" d="M800 0v20"/>`, ">large<")
	if strings.Contains(page, "never-read") {
		t.Error("unknown files are shown as never read")
	}

	profiles := prefetch.NewProfiles(b.profiles, prefetch.ProfilesOptions{})
	var hashes []prefetch.PathHash
	for _, p := range []string{"", "main.c", "lib", "lib/used"} {
		hashes = append(hashes, prefetch.HashPath(p))
	}
	profiles.Learn(t.Context(), prefetch.Action{Digest: digest.OfReduced(digest.SHA256, action)}, hashes, prefetch.Inputs{})
	profiles.Flush(t.Context())
	page = b.get(path, 200)
	expect(t, page, "Never read: 1 file, 30 MiB", `<span class="key">large</span><span class="n less"></span><span class="n">30 MiB</span><span class="n">30 MiB</span><span class="n mark never-read">never read</span>`,
		`<span class="key">main.c</span><span class="n less"></span><span class="n">5 B</span><span class="n"></span><span class="n mark read">read</span>`)
	if strings.Index(page, "lib/") > strings.Index(page, "main.c") || strings.Index(page, "large") > strings.Index(page, ">used") {
		t.Error("files that are never read do not come first")
	}

	delete(b.blobs, lib)
	expect(t, b.get(path, 200), "the storage does not have the input root")
	delete(b.blobs, command)
	expect(t, b.get(path, 404), "command of this action")
	b.get("/actions/sha256/abc/1", 400)
	expect(t, b.get("/actions/sha256/"+b.blobs.put(&repb.Action{}).String(), 400), "is not a valid Action")
	b.get("/actions/md5/"+d.String(), 400)
}

func TestForms(t *testing.T) {
	b := newBrowser(t, false)
	worker := url.Values{"name": {"host", "slot"}, "value": {"w,1", "0"}}
	for _, c := range []struct {
		path, origin string
		form         url.Values
		want         int
	}{
		{"/workers/drain", b.server.URL, worker, http.StatusSeeOther},
		{"/workers/undrain", b.server.URL, url.Values{"pattern": {"host=old-*"}}, http.StatusSeeOther},
		{"/" + operationOf + "/cancel", b.server.URL, nil, http.StatusSeeOther},
		{"/operations/*/cancel", b.server.URL, nil, http.StatusNotFound},
		{"/workers/drain", b.server.URL, nil, http.StatusBadRequest},
		{"/workers/drain", "https://elsewhere.example", worker, http.StatusForbidden},
		{"/" + operationOf + "/cancel", "https://elsewhere.example", nil, http.StatusForbidden},
	} {
		if got := b.post(c.path, c.origin, c.form); got != c.want {
			t.Errorf("%s from %s: %d, want %d", c.path, c.origin, got, c.want)
		}
	}
	if want := []string{"drain host=w?1,slot=0", "undrain host=old-*", "kill operation=" + operationOf}; !slices.Equal(b.scheduler.told, want) {
		t.Errorf("told %q, want %q", b.scheduler.told, want)
	}
}

func TestReadOnly(t *testing.T) {
	b := newBrowser(t, true)
	for _, page := range []string{b.get("/workers", 200), b.get("/"+operationOf, 200)} {
		if strings.Contains(page, `method="post"`) {
			t.Error("the page has a form that changes something")
		}
	}
	if got := b.post("/workers/drain", b.server.URL, url.Values{"pattern": {"host=*"}}); got < 400 || len(b.scheduler.told) > 0 {
		t.Errorf("%d, told %q", got, b.scheduler.told)
	}
}

// TestLive has a live page that is sent again when it looks different.
func TestLive(t *testing.T) {
	b := newBrowser(t, false)
	seen := 0
	b.follow("/", func(name, data string) bool {
		if name != "main" {
			t.Errorf("event %q: %s", name, data)
			return false
		}
		seen++
		switch seen {
		case 1:
			expect(t, data, "<dd>2</dd>")
			b.scheduler.mu.Lock()
			b.scheduler.queued = 40
			b.scheduler.mu.Unlock()
		case 2:
			expect(t, data, "<dd>42</dd>")
		}
		return seen < 2
	})
	var last string
	b.follow("/operations/unknown", func(name, _ string) bool {
		last = name
		return true
	})
	if last != "gone" {
		t.Errorf("the page of a missing operation ends with %q", last)
	}
}

// TestLiveOperation has an operation end while its page is open. If the operation has a record, the
// page then has another form.
func TestLiveOperation(t *testing.T) {
	for name, hasRecord := range map[string]bool{"with a record": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			b := newBrowser(t, false)
			var names []string
			b.follow("/"+operationOf, func(name, data string) bool {
				if data == "" {
					t.Errorf("browsers pass over the event %s, which has no data", name)
				}
				b.scheduler.mu.Lock()
				defer b.scheduler.mu.Unlock()
				if b.scheduler.done = true; hasRecord {
					r := failed(b)
					r.Operation = operationOf
					b.scheduler.ended = []*historypb.Record{r}
				}
				names = append(names, name)
				return true
			})
			if !slices.Equal(names, []string{"main", "reload"}) {
				t.Errorf("the events are %q", names)
			}
		})
	}
}

// A connection accepts data until a deadline.
type connection struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (c *connection) SetWriteDeadline(until time.Time) error {
	c.until = until
	return nil
}

// TestViewersThatTakeNothing sends events to a viewer that does not read. Each event has a
// deadline.
func TestViewersThatTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &connection{ResponseRecorder: httptest.NewRecorder()}
		for range 3 {
			time.Sleep(time.Hour)
			if err := (events{w: w, control: http.NewResponseController(w)}).send("main", nil); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(w.until); left != stuck {
				t.Errorf("%s are left", left)
			}
		}
	})
}

// TestEventsHaveOneKindOfLine sends text with every line end that browsers accept.
func TestEventsHaveOneKindOfLine(t *testing.T) {
	w := &connection{ResponseRecorder: httptest.NewRecorder()}
	if err := (events{w: w, control: http.NewResponseController(w)}).send("main", []byte("a\r\nb\r\revent: reload\rdata: c\n\nd\r")); err != nil {
		t.Fatal(err)
	}
	want := "event: main\ndata: a\ndata: b\ndata: \ndata: event: reload\ndata: data: c\ndata: \ndata: d\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// TestOutput has a command whose output splits a character over two messages and ends within
// another one, after a run that does not count.
func TestOutput(t *testing.T) {
	b := newBrowser(t, false)
	var got []string
	b.follow("/"+operationOf+"/stdout", func(name, data string) bool {
		got = append(got, name+" "+strings.TrimSpace(data))
		return true
	})
	want := []string{`text "wrong "`, `text "` + "\ufffd" + `"`, "again " + startedOver, `text "one\n"`, `text "tw` + "\ufffd" + `o \u003c/pre\u003e\n"`, `text "€ "`, `text "` + "\ufffd" + `"`, "gone end"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.get("/"+operationOf+"/stdin", 404)
}
