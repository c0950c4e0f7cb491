package farm

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/freeport"
)

// readyz asks a program whether it is ready.
func readyz(t *testing.T, address string) (code int, text string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// becomes waits until a program is ready, or not, and says why.
func becomes(t *testing.T, address string, code int, why string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, text := readyz(t, address)
		if got == code && strings.Contains(text, why) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %q, want %d %q", got, text, code, why)
		}
	}
}

// TestSchedulerIsReady takes a scheduler its storage's folder away, as a disk that fails does.
func TestSchedulerIsReady(t *testing.T) {
	s := &Scheduler{HTTP: freeport.Address(t)}
	startScheduler(t, s)
	becomes(t, s.HTTP, http.StatusOK, "ready")
	tmp := filepath.Join(s.Data, "storage", "actions", "tmp")
	if err := os.Rename(tmp, tmp+"-gone"); err != nil {
		t.Fatal(err)
	}
	becomes(t, s.HTTP, http.StatusServiceUnavailable, "storage: ")
	if err := os.Rename(tmp+"-gone", tmp); err != nil {
		t.Fatal(err)
	}
	becomes(t, s.HTTP, http.StatusOK, "ready")
}

// TestHangingScheduler has connections that are up, to servers that answer in some way, and one
// that does not.
func TestHangingScheduler(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		hangs bool
	}{"no such method": {err: status.Error(codes.Unimplemented, "none")}, "not known": {err: status.Error(codes.Unauthenticated, "who?")}, "hangs": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				if c.hangs { // for longer than the client waits, or it may still answer in time
					<-over
				}
				return c.err
			}))
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(listener) }()
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			if err := answers(t.Context(), conn); (err != nil) != c.hangs {
				t.Errorf("the server answers: %v", err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			close(over)
			s.Stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
