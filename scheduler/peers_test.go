package scheduler

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// peersOp is an action of command in a build of an instance name.
func peersOp(instance, build, command string) *request.Operation {
	return &request.Operation{
		Instance: instance, Request: request.Metadata{Correlated: build},
		Action: &repb.Action{CommandDigest: &repb.Digest{Hash: command}},
	}
}

func TestPeers(t *testing.T) {
	var n peers
	want := func(why, worker string, op *request.Operation, near ...string) {
		t.Helper()
		if got := n.of(worker, op); !slices.Equal(got, near) {
			t.Errorf("%s: %q, want %q", why, got, near)
		}
	}
	op := peersOp("main", "build", "cc")
	n.ran("a", op)
	want("nobody serves anything", "b", op)
	for _, w := range []string{"a", "b", "c", "d", "e", "f"} {
		n.serves(w, "grpc://"+w+":1")
	}
	n.serves("a, too", "grpc://a:1")
	want("nobody ran anything", "b", op)
	n.ran("a", op)
	want("one ran it", "b", op, "grpc://a:1")
	want("it ran it itself", "a", op)
	want("so did another position", "a, too", op)
	want("other command, build and instance", "b", peersOp("other", "build", "cc"))
	n.ran("b", peersOp("main", "other build", "ld"))
	n.ran("c", peersOp("main", "build", "ar"))
	want("command, then build, then instance", "d", op, "grpc://a:1", "grpc://c:1", "grpc://b:1")
	want("who has no store to serve is told, too", "x", op, "grpc://a:1", "grpc://c:1", "grpc://b:1")
	for _, w := range []string{"a", "b", "c", "d", "e", "d"} {
		n.ran(w, op)
	}
	want("the latest first, and no more than three", "f", op, "grpc://d:1", "grpc://e:1", "grpc://c:1")
	n.serves("d", "")
	n.serves("e", "grpc://e:2")
	want("who is gone is not named", "f", op, "grpc://c:1", "grpc://b:1")
	n.serves("c, too", "grpc://c:1")
	n.serves("c", "")
	want("one position of two is left", "f", op, "grpc://c:1", "grpc://b:1")
	n.serves("c, too", "")
	want("none is", "f", op, "grpc://b:1")
}

// Memory is bounded, and the oldest entries are forgotten.
func TestPeersAreForgotten(t *testing.T) {
	var n peers
	n.serves("a", "grpc://a:1")
	op := func(i int) *request.Operation { return peersOp("main", fmt.Sprint("build", i), fmt.Sprint("cc", i)) }
	const many = maxTraits * 5 / 4 // with two traits each, and one for all
	for i := range many {
		n.ran("a", op(i))
		if kept := n.traits.Len(); kept > maxTraits {
			t.Fatalf("%d traits are kept", kept)
		}
	}
	for i, known := range map[int]bool{0: false, many - 1: true} {
		command := maphash.Comparable(n.seed, traits(op(i))[0])
		if _, got := n.traits.Peek(command); got != known {
			t.Errorf("who ran command %d is known: %t", i, got)
		}
	}
}

func TestWorkersAreToldOfPeers(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		ran, cold, other := f.worker("ran"), f.worker("cold"), f.worker("other")
		ran.cache, cold.cache = "grpc://ran:1", "grpc://cold:1"
		salt := byte(0)
		run := func(w *fakeWorker, near ...string) {
			t.Helper()
			salt++
			d := f.storage.action("cc", func(a *repb.Action, _ *repb.Command) { a.Salt = []byte{salt} })
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
			w.idle()
			if !slices.Equal(w.near, near) {
				t.Errorf("peers %q, want %q", w.near, near)
			}
			w.completed(d, success)
			s.done()
			synctest.Wait()
		}
		run(ran)
		run(ran)
		run(other, "grpc://ran:1")
		run(cold, "grpc://ran:1")
		run(ran, "grpc://cold:1")
		cold.cache = "grpc://0.0.0.0:1" // an address that belongs to no peer
		run(cold, "grpc://ran:1")
		time.Sleep(time.Hour)
		run(other)
	})
	for cache, named := range map[string]bool{
		"grpc://host:1": true, "grpcs://10.0.0.1:8983": true, "grpc://[2001:db8::1]:1": true,
		"": false, "host": false, "grpc://:1": false, "grpc://0.0.0.0:1": false, "grpcs://[::]:1": false,
		"grpc://" + strings.Repeat("h", maxCacheAddress) + ":1": false,
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(names.CacheHeader, cache))
		if got := cacheOf(ctx); got != "" != named || named && got != cache {
			t.Errorf("%q is taken as %q", cache, got)
		}
	}
}
