package serve

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/intake"
)

// allow sets the limit of open files until the test ends.
func allow(t *testing.T, files uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// TestFewFiles has a program that may have fewer open files than it needs, or just enough.
func TestFewFiles(t *testing.T) {
	allow(t, 60)
	if err := CheckFiles(60); err != nil {
		t.Errorf("as many as it needs: %v", err)
	}
	const want = "only 60 open files and connections, and needs 61: raise it with ulimit -n"
	if err := CheckFiles(61); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, b, err := (&Callers{}).bounds(); err != nil || b.Connections != 30 || b.ConnectionsOfOne != 15 || b.Pages != 8 {
		t.Errorf("%d connections, %d of one address, %d of pages: %v; want half of the files, and the fewest", b.Connections, b.ConnectionsOfOne, b.Pages, err)
	}
	if _, b, err := (&Callers{MaxConnections: 50}).bounds(); err != nil || b.Connections != 50 || b.Pages != 8 {
		t.Errorf("%d connections, %d of pages: %v; want those that were set", b.Connections, b.Pages, err)
	}
	allow(t, 256)
	if _, b, err := (&Callers{}).bounds(); err != nil || b.Pages != 32 {
		t.Errorf("%d connections of pages: %v; want an eighth of the files", b.Pages, err)
	}
}

// TestSmallFiles has a program that may not write large files.
func TestSmallFiles(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := CheckFiles(1)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	const want = "only 1048576 bytes into a file, and needs at least 268435456: raise it with ulimit -f"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A moody listener accepts a connection for each nil in errs.
type moody struct {
	net.Listener
	errs chan error
}

func (m *moody) Accept() (net.Conn, error) {
	if err := <-m.errs; err != nil {
		return nil, err
	}
	conn, other := net.Pipe()
	return conn, other.Close()
}

// TestNotReadyWithoutDescriptors: a program that cannot accept connections is not ready, for as long
// as that is so, and logs it once.
func TestNotReadyWithoutDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, logged := observer.New(zap.WarnLevel)
		l := &moody{errs: make(chan error, 1)}
		ready := &Readiness{}
		server := intake.NewServer(intake.Options{Bounds: intake.BoundsFor(64 << 20), Metrics: prometheus.NewRegistry()})
		defer server.Stop()
		gated, err := (&Callers{}).Accept(l, server, ready, zap.New(lines))
		if err != nil {
			t.Fatal(err)
		}
		accept := func(err error) {
			l.errs <- err
			if conn, got := gated.Accept(); got != err {
				t.Errorf("%v, want %v", got, err)
			} else if got == nil {
				_ = conn.Close()
			}
		}
		expect := func(when string, code int, text string) {
			t.Helper()
			w := httptest.NewRecorder()
			if ready.ServeHTTP(w, nil); w.Code != code || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: %d %s", when, w.Code, w.Body)
			}
		}
		full := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", unix.EMFILE)}
		expect("at first", http.StatusOK, "ready")
		time.Sleep(probeAge)
		for range 3 {
			accept(full)
			time.Sleep(time.Second)
		}
		expect("without descriptors", http.StatusServiceUnavailable, "connections: accept tcp: accept4: too many open files (this process may have ")
		accept(nil)
		expect("with one again", http.StatusOK, "ready")
		time.Sleep(probeAge)
		accept(full)
		expect("without once more", http.StatusServiceUnavailable, "too many open files")
		time.Sleep(faultAge + time.Second)
		expect("while nobody connects", http.StatusOK, "ready")
		accept(net.ErrClosed)
		time.Sleep(probeAge)
		expect("at the end", http.StatusOK, "ready")
		if logged.Len() != 2 {
			t.Errorf("logged %v, want two lines", logged.All())
		}
	})
}
