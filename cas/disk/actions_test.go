package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

func storeOpenActions(t *testing.T, dir string, maxEntries int64) *Actions {
	t.Helper()
	a, err := OpenActions(dir, ActionsOptions{MaxEntries: maxEntries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func storeAction(n int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, n)) }

// storeExitCode returns the exit code of the result, or -1 if there is no result.
func storeExitCode(t *testing.T, a *Actions, instance string, d digest.Digest) int32 {
	t.Helper()
	r, err := a.Get(context.Background(), instance, d)
	if errors.Is(err, cas.ErrNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.GetExitCode()
}

func storePutResult(t *testing.T, a *Actions, instance string, d digest.Digest, code int32) {
	t.Helper()
	if err := a.Put(context.Background(), instance, d, &repb.ActionResult{ExitCode: code}); err != nil {
		t.Fatal(err)
	}
}

func TestActionsKeepResultsByInstanceAndAction(t *testing.T) {
	dir := t.TempDir()
	a := storeOpenActions(t, dir, 0)
	one := storeAction(1)
	same := digest.Of(digest.BLAKE3, []byte("1"))
	storePutResult(t, a, "", one, 1)
	storePutResult(t, a, "main", one, 2)
	storePutResult(t, a, "", same, 3)
	storePutResult(t, a, "", storeAction(2), 0)
	storePutResult(t, a, "", one, 4) // in place of the first
	check := func() {
		t.Helper()
		for _, c := range []struct {
			instance string
			d        digest.Digest
			want     int32
		}{{"", one, 4}, {"main", one, 2}, {"", same, 3}, {"", storeAction(2), 0}, {"main", same, -1}, {"main/", one, -1}} {
			if got := storeExitCode(t, a, c.instance, c.d); got != c.want {
				t.Errorf("%q %s: exit code %d, want %d", c.instance, c.d, got, c.want)
			}
		}
	}
	check()
	_ = a.Close()
	if storeExitCode(t, a, "", one) != -1 {
		t.Error("found in a closed cache")
	}
	a = storeOpenActions(t, dir, 0)
	check()
	if err := a.Put(context.Background(), "", digest.Digest{}, &repb.ActionResult{}); !errors.Is(err, digest.ErrInvalid) {
		t.Errorf("no digest: %v", err)
	}
}

func TestActionsAreBounded(t *testing.T) {
	a := storeOpenActions(t, t.TempDir(), 3)
	for n := range 10 {
		storePutResult(t, a, "", storeAction(n), int32(n))
		storeExitCode(t, a, "", storeAction(0)) // used all the time
	}
	for n, want := range []int32{0, -1, -1, -1, -1, -1, -1, -1, 8, 9} {
		if got := storeExitCode(t, a, "", storeAction(n)); got != want {
			t.Errorf("action %d: exit code %d, want %d", n, got, want)
		}
	}
	names, err := filepath.Glob(filepath.Join(a.files.Dir, "*", "*", "*"))
	if err != nil || len(names) != 3 {
		t.Errorf("%d files, %v", len(names), err)
	}
}

func TestActionsNoticeDamage(t *testing.T) {
	d := storeAction(1)
	path := func(a *Actions) string { return a.files.path(keyOfAction("", d).Digest) }
	for name, damage := range map[string]func(t *testing.T, b []byte) []byte{
		"empty":           func(*testing.T, []byte) []byte { return nil },
		"header only":     func(_ *testing.T, b []byte) []byte { return b[:actionHeaderBytes] },
		"cut":             func(_ *testing.T, b []byte) []byte { return b[:len(b)-1] },
		"zeros":           func(_ *testing.T, b []byte) []byte { return make([]byte, len(b)) },
		"a flipped bit":   func(_ *testing.T, b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"of another time": func(_ *testing.T, b []byte) []byte { b[0] = 'X'; return b },
		"of another action": func(_ *testing.T, b []byte) []byte {
			return keyOfAction("", storeAction(2)).seal(b[actionHeaderBytes:])
		},
	} {
		for _, restart := range []bool{false, true} {
			dir := t.TempDir()
			a := storeOpenActions(t, dir, 0)
			storePutResult(t, a, "", d, 7)
			b, err := os.ReadFile(path(a))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(path(a)), os.WriteFile(path(a), damage(t, b), 0o444)); err != nil {
				t.Fatal(err)
			}
			if restart {
				_ = a.Close()
				a = storeOpenActions(t, dir, 0)
			}
			if got := storeExitCode(t, a, "", d); got != -1 {
				t.Errorf("%s: exit code %d", name, got)
			}
			storePutResult(t, a, "", d, 8)
			if got := storeExitCode(t, a, "", d); got != 8 {
				t.Errorf("%s: put again: exit code %d", name, got)
			}
		}
	}
}

func TestActionsUnderManyHands(t *testing.T) {
	a := storeOpenActions(t, t.TempDir(), 20) // each hand holds two at most
	var wg sync.WaitGroup
	for hand := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(hand), 3))
			for range 200 {
				n := random.IntN(40)
				if random.IntN(2) == 0 {
					storePutResult(t, a, "", storeAction(n), int32(n))
				} else if got := storeExitCode(t, a, "", storeAction(n)); got != -1 && got != int32(n) {
					t.Errorf("action %d: exit code %d", n, got)
				}
			}
		})
	}
	wg.Wait()
	x := a.files.index
	if x.reserved != 0 || x.pinned != 0 || x.present > 20 || int64(len(x.entries)) != x.present {
		t.Errorf("%d reserved, %d pinned, %d present, %d entries", x.reserved, x.pinned, x.present, len(x.entries))
	}
}

func TestActionsReturnACopy(t *testing.T) {
	ctx := context.Background()
	a := storeOpenActions(t, t.TempDir(), 0)
	want := &repb.ActionResult{StdoutRaw: []byte("out"), OutputFiles: []*repb.OutputFile{{Path: "a", IsExecutable: true}}}
	if err := a.Put(ctx, "", storeAction(1), want); err != nil {
		t.Fatal(err)
	}
	first, err := a.Get(ctx, "", storeAction(1))
	if err != nil || !proto.Equal(first, want) {
		t.Fatalf("got %v, %v", first, err)
	}
	first.StdoutRaw[0] = 'X'
	if again, err := a.Get(ctx, "", storeAction(1)); err != nil || !proto.Equal(again, want) {
		t.Errorf("got %v, %v", again, err)
	}
}
