package web

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestUnreadAnswers has a client ask for large files that it does not read: only so many of them
// are in memory, and it is told so.
func TestUnreadAnswers(t *testing.T) {
	const memory, size = 512 << 20, 8 << 20 // more than the kernel keeps for who does not read
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
	if !strings.Contains(text, "more than 8 MiB cannot be had here") {
		t.Errorf("a larger file: %s", text)
	}
}

// TestPagesThatAreTooLarge has an action with an input root of many long names: its page says that
// it cannot be shown, and takes no more memory than pages may.
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
