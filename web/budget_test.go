package web

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestUnreadAnswers has a client request large files without reading them. Only a few are in
// memory; for others the client gets an error.
func TestUnreadAnswers(t *testing.T) {
	const memory, size = 512 << 20, 8 << 20 // more than the kernel buffers for a client that does not read
	b := newBrowser(t, true)
	b.change(func(o *Options) { o.Memory = memory })
	content := bytes.Repeat([]byte("x"), size)
	d := digest.Of(digest.SHA256, content)
	b.blobs[d] = content
	path := fmt.Sprintf("/blobs/sha256/%s/%d", d.Hash(), d.SizeBytes())
	refused := 0
	var conns []net.Conn
	for range 3 * leastUnread {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("HTTP/1.1 200"))
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, line); err != nil {
			t.Fatal(err)
		}
		if string(line) == "HTTP/1.1 503" {
			refused++
		}
	}
	if want := len(conns) - leastUnread; refused != want {
		t.Errorf("%d of %d answers are refused, want %d", refused, len(conns), want)
	}
	larger := digest.Of(digest.SHA256, append(content, 'y'))
	b.blobs[larger] = append(content, 'y')
	text := b.get(fmt.Sprintf("/blobs/sha256/%s/%d", larger.Hash(), larger.SizeBytes()), http.StatusConflict)
	if !strings.Contains(text, "more than 8 MiB are not available here") {
		t.Errorf("a larger file: %s", text)
	}
}

// TestSmallAnswersTakeLittleMemory has room for many answers slightly above the usual size, and for
// many open pages of builds.
func TestSmallAnswersTakeLittleMemory(t *testing.T) {
	o := newBudget(1 << 30)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	var answers func(n int)
	answers = func(n int) {
		w := &connection{ResponseRecorder: httptest.NewRecorder()}
		if n > 0 && !o.answer(w, r, usualAnswer+1, func(http.ResponseWriter) { answers(n - 1) }) {
			t.Errorf("with %d more there is no room for an answer", n)
		}
	}
	answers(100)
	for i := range 100 {
		if keeps := (&hold{}); !keeps.grow(o, r, usualAnswer+1, func() {}) {
			t.Fatalf("there is no room for page %d of a build", i)
		}
	}
}

// TestAnswersThatYield takes an answer's reservation away before the answer sets its deadline.
func TestAnswersThatYield(t *testing.T) {
	w := &connection{ResponseRecorder: httptest.NewRecorder()}
	y := &yielding{ResponseWriter: w}
	e := events{}.to(y)
	if err := e.send("main", []byte("a")); err != nil || time.Until(w.until) <= 0 {
		t.Errorf("an answer with a reservation: %v, until %s", err, w.until)
	}
	y.yield()
	if err := e.send("main", []byte("b")); err == nil || time.Until(w.until) > 0 || strings.Contains(w.Body.String(), "b\n") {
		t.Errorf("an answer without its reservation: %v, until %s: %q", err, w.until, w.Body)
	}
	asFile(y, "x", "text/plain")
	if time.Until(w.until) > 0 {
		t.Errorf("a file without its reservation has deadline %s", w.until)
	}
	w.until = time.Time{}
	y.end()
	y.yield()
	if !w.until.IsZero() {
		t.Error("the next answer on the connection loses its reservation")
	}
}

// TestSlowActions has some viewers wait for the storage. A viewer of another action must not wait
// for them.
func TestSlowActions(t *testing.T) {
	b := newBrowser(t, true)
	action := b.blobs.put(&repb.Action{CommandDigest: b.blobs.put(&repb.Command{Arguments: []string{"true"}}).Proto()})
	for range 2 {
		leave, err := b.site.display.budget.make(httptest.NewRequest(http.MethodGet, "/", http.NoBody), "action")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	expect(t, b.get(fmt.Sprintf("/actions/sha256/%s/%d", action.Hash(), action.SizeBytes()), 200), "true")
}

// TestLargeEventsAreNotCopied sends a large part of a page. Sending must not copy it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	part := bytes.Repeat([]byte("0123456789\r\n"), 1<<20)
	e := events{}.to(discard{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := e.send("main", part); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("an event of %d bytes takes %d more", len(part), took)
	}
}

// TestPagesHaveNoSpareMemory renders a page whose buffer has grown larger than the page.
func TestPagesHaveNoSpareMemory(t *testing.T) {
	d := newBrowser(t, true).site.display
	d.templates["large"] = template.Must(template.New("main").Parse("{{.Data}}{{.Data}}{{.Data}}."))
	part, err := d.main(httptest.NewRequest(http.MethodGet, "/", http.NoBody), "large", strings.Repeat("x", 1<<20))
	if err != nil || len(part) != 3<<20+1 || cap(part)-len(part) > usualAnswer {
		t.Errorf("a page of %d bytes takes %d: %v", len(part), cap(part), err)
	}
}

// A discard discards all output.
type discard struct{}

func (discard) Header() http.Header              { return http.Header{} }
func (discard) WriteHeader(int)                  {}
func (discard) Write(b []byte) (int, error)      { return len(b), nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }
func (discard) FlushError() error                { return nil }

// TestPagesThatAreTooLarge has an action whose input root has many long names. Its page says that
// it is too large, and uses no more memory than allowed.
func TestPagesThatAreTooLarge(t *testing.T) {
	b := newBrowser(t, true)
	b.change(func(o *Options) { o.Memory = 64 << 20 })
	root := &repb.Directory{}
	for i := range 40 {
		folder := &repb.Directory{}
		for j := range 100 {
			folder.Files = append(folder.Files, &repb.FileNode{
				Name: fmt.Sprintf("%02d-%03d-%s", i, j, strings.Repeat(`"`, 200)), Digest: digest.Of(digest.SHA256, nil).Proto(),
			})
		}
		root.Directories = append(root.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("%02d", i), Digest: b.blobs.put(folder).Proto()})
	}
	action := b.blobs.put(&repb.Action{
		CommandDigest: b.blobs.put(&repb.Command{Arguments: []string{"true"}}).Proto(), InputRootDigest: b.blobs.put(root).Proto(),
	})
	text := b.get(fmt.Sprintf("/actions/sha256/%s/%d", action.Hash(), action.SizeBytes()), http.StatusConflict)
	if !strings.Contains(text, "this page would be too large") || len(text) > 100<<10 {
		t.Errorf("the page has %d bytes: %.200s", len(text), text)
	}
}
