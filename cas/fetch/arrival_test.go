package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// TestArrivalTellsHowItEnds: all waiting and later readers get the reason why bytes do not arrive.
func TestArrivalTellsHowItEnds(t *testing.T) {
	broken := errors.New("the disk is broken")
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		failed, closed := s.Through(u).newArrival(d), s.Through(u).newArrival(d)
		waits := make(chan error, 1)
		go func() {
			_, err := failed.readAt(context.Background(), make([]byte, 10), 0)
			waits <- err
		}()
		synctest.Wait()
		failed.drop(broken)
		if err := <-waits; !errors.Is(err, broken) {
			t.Errorf("who waited is told %v", err)
		}
		failed.close()
		closed.close()
		for a, want := range map[*arrival]error{failed: broken, closed: fs.ErrClosed} {
			if _, err := a.readAt(context.Background(), make([]byte, 10), 0); !errors.Is(err, want) {
				t.Errorf("read later: %v, want %v", err, want)
			}
		}
	})
}

// TestArrivalsLeaveNothingOpen, however they end.
func TestArrivalsLeaveNothingOpen(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, u, a := storeArrive(t)
			main := <-u.calls
			if err := main.next(1000); err != nil {
				t.Error(err)
			}
			if filesOpen(t, s.Dir()) != 2 {
				t.Errorf("open are %d files, want the lock and what comes", filesOpen(t, s.Dir()))
			}
			if comes {
				u.free()
				if err := a.Wait(context.Background()); err != nil {
					t.Error(err)
				}
			}
			a.Close()
			synctest.Wait()
			if n := filesOpen(t, s.Dir()); n != 1 {
				t.Errorf("open are %d files, want the lock alone", n)
			}
		})
	}
}

// filesOpen counts the files below dir, also removed ones, that this process has open.
func filesOpen(t *testing.T, dir string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, dir+"/") {
			n++
		}
	}
	return n
}
