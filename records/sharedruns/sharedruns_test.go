package sharedruns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/rpctest"
)

const fn = digest.SHA256

// A fakeStore is a record.Hints in memory. The test can hold up its Put.
type fakeStore struct {
	mu     sync.Mutex
	values map[record.Key][]byte
	held   chan struct{} // closed to let Put continue; nil: Put does not wait
	puts   chan struct{} // gets a token when a Put begins; may be nil
}

func (s *fakeStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.values[k]
	if !ok {
		return nil, record.ErrNotFound
	}
	return slices.Clone(b), nil
}

func (s *fakeStore) Put(_ context.Context, k record.Key, value []byte) error {
	if s.puts != nil {
		s.puts <- struct{}{}
	}
	if s.held != nil {
		<-s.held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[record.Key][]byte{}
	}
	s.values[k] = slices.Clone(value)
	return nil
}

// A served is the service over gRPC, with a storage. A caller that sends the digest of an action as
// its grant is authorized.
type served struct {
	*testing.T
	reuse.AccountsClient
	store *fakeStore
	blobs map[digest.Digest][]byte
}

const grantHeader = "test-grant"

func serve(t *testing.T, store *fakeStore) *served {
	t.Helper()
	s := &served{T: t, store: store, blobs: map[digest.Digest][]byte{}}
	g := grpc.NewServer()
	Register(g, Options{
		Store: store,
		Granted: func(ctx context.Context, instance string, action digest.Digest) bool {
			return slices.Contains(metadata.ValueFromIncomingContext(ctx, grantHeader), instance+" "+action.String())
		},
		Read: func(_ context.Context, _ string, d digest.Digest) ([]byte, error) {
			if b, ok := s.blobs[d]; ok {
				return b, nil
			}
			return nil, cas.ErrNotFound
		},
	})
	s.AccountsClient = reuse.NewAccountsClient(rpctest.Serve(t, g))
	return s
}

// action stores an Action with a command and an input root of these names.
func (s *served) action(command, root string, change func(*repb.Action)) (digest.Digest, *repb.Action) {
	s.Helper()
	m := &repb.Action{
		CommandDigest: digest.Of(fn, []byte(command)).Proto(), InputRootDigest: digest.Of(fn, []byte(root)).Proto(),
		Platform: &repb.Platform{Properties: []*repb.Platform_Property{{Name: "b", Value: "1"}, {Name: "a", Value: "2"}}},
	}
	if change != nil {
		change(m)
	}
	d, b, err := digest.OfMessage(fn, m)
	if err != nil {
		s.Fatal(err)
	}
	s.blobs[d] = b
	return d, m
}

func (s *served) granted(instance string, action digest.Digest) context.Context {
	return metadata.AppendToOutgoingContext(s.Context(), grantHeader, instance+" "+action.String())
}

// runOf returns a run of an action that read a file with that content.
func runOf(action digest.Digest, content string) *reuse.Run {
	result, err := proto.Marshal(&repb.ActionResult{StdoutRaw: []byte(action.String())})
	if err != nil {
		panic(err) // the message is constant
	}
	return &reuse.Run{
		Action: action.Proto(), Worker: "w", Result: result, Blobs: []*repb.Digest{fn.Empty().Proto()},
		Root: &reuse.Directory{Hash: []byte(action.Hash()), Entries: []*reuse.Entry{{Name: []byte("f"), Looks: 3, Shown: []byte(content)}}},
	}
}

var here = bytes.Repeat([]byte{1}, sha256.Size)

func (s *served) keep(action digest.Digest, m *reuse.Run) error {
	_, err := s.Keep(s.granted("i", action), &reuse.KeepRequest{InstanceName: "i", ActionDigest: action.Proto(), Circumstances: here, Run: m})
	return err
}

// find returns the actions of the runs that Find returns for an action.
func (s *served) find(action digest.Digest, m *repb.Action) (found []string) {
	s.Helper()
	reduced, ok := Reduced(fn, m)
	if !ok {
		s.Fatal("the action cannot be reduced")
	}
	r, err := s.Find(s.granted("i", action), &reuse.FindRequest{
		InstanceName: "i", ActionDigest: action.Proto(), ReducedActionDigest: reduced.Proto(), Circumstances: here,
	})
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range r.GetRuns() {
		found = append(found, m.GetAction().GetHash())
	}
	return found
}

// TestRunsOfOneCommand checks that Find returns a run for all actions that have the same command,
// platform and salt, and for no others.
func TestRunsOfOneCommand(t *testing.T) {
	s := serve(t, &fakeStore{})
	ran, _ := s.action("gcc", "root", nil)
	if err := s.keep(ran, runOf(ran, "1")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		command string
		change  func(*repb.Action)
		found   bool
	}{
		"another root":     {"gcc", nil, true},
		"not to be cached": {"gcc", func(a *repb.Action) { a.DoNotCache = true }, true},
		"in order":         {"gcc", func(a *repb.Action) { slices.Reverse(a.Platform.Properties) }, true},
		"another command":  {"ld", nil, false},
		"another salt":     {"gcc", func(a *repb.Action) { a.Salt = []byte("s") }, false},
		"another platform": {"gcc", func(a *repb.Action) { a.Platform.Properties[0].Value = "3" }, false},
		"no platform":      {"gcc", func(a *repb.Action) { a.Platform = nil }, false},
	} {
		asks, m := s.action(test.command, "other root", test.change)
		if found := s.find(asks, m); slices.Contains(found, ran.Hash()) != test.found {
			t.Errorf("%s: found %v, want it %t", name, found, test.found)
		}
	}
	asks, m := s.action("gcc", "other root", nil)
	reduced, _ := Reduced(fn, m)
	for name, r := range map[string]*reuse.FindRequest{
		"other circumstances":     {InstanceName: "i", Circumstances: bytes.Repeat([]byte{2}, sha256.Size)},
		"another instance name":   {InstanceName: "j", Circumstances: here},
		"another digest function": {InstanceName: "i", Circumstances: here, DigestFunction: repb.DigestFunction_BLAKE3},
	} {
		r.ActionDigest, r.ReducedActionDigest = asks.Proto(), reduced.Proto()
		if known, err := s.Find(s.granted(r.GetInstanceName(), asks), r); err != nil || len(known.GetRuns()) > 0 {
			t.Errorf("%s: %v, %v", name, known, err)
		}
	}
}

// TestRepeatedProperties: a worker may use the first of several values of a property, so actions
// that differ in their order may be run differently.
func TestRepeatedProperties(t *testing.T) {
	a := &repb.Action{Platform: &repb.Platform{Properties: []*repb.Platform_Property{
		{Name: "network", Value: "on"}, {Name: "network", Value: "off"}, {Name: "a", Value: "b"},
	}}}
	first, _ := Reduced(fn, a)
	a.Platform.Properties[0].Value, a.Platform.Properties[1].Value = "off", "on"
	if second, _ := Reduced(fn, a); second == first {
		t.Error("the order of values of a property is lost")
	}
}

// TestRefusals checks that a caller without the grant of an action can neither read nor write, and
// that the service accepts only a run of that action.
func TestRefusals(t *testing.T) {
	store := &fakeStore{}
	s := serve(t, store)
	action, m := s.action("gcc", "root", nil)
	other, _ := s.action("ld", "root", nil)
	absent := digest.Of(fn, []byte("an action that the storage does not have"))
	reduced, _ := Reduced(fn, m)
	failed := runOf(action, "1")
	failed.Result, _ = proto.Marshal(&repb.ActionResult{ExitCode: 1})
	unseen := runOf(action, "1")
	unseen.Root = nil
	garbled := runOf(action, "1")
	garbled.Result = []byte("\xff")
	badBlob := runOf(action, "1")
	badBlob.Blobs = []*repb.Digest{{Hash: "x"}}
	large := runOf(action, "1")
	large.Worker = string(bytes.Repeat([]byte{'w'}, MaxBytes))
	for name, test := range map[string]struct {
		grants digest.Digest
		r      *reuse.KeepRequest
		want   codes.Code
	}{
		"no grant":               {absent, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: runOf(action, "1")}, codes.PermissionDenied},
		"the grant of another":   {other, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: runOf(action, "1")}, codes.PermissionDenied},
		"a run of another":       {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: runOf(other, "1")}, codes.InvalidArgument},
		"a run that failed":      {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: failed}, codes.InvalidArgument},
		"a run that saw nothing": {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: unseen}, codes.InvalidArgument},
		"no result":              {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: garbled}, codes.InvalidArgument},
		"no blob":                {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: badBlob}, codes.InvalidArgument},
		"too large":              {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: large}, codes.InvalidArgument},
		"no run":                 {action, &reuse.KeepRequest{ActionDigest: action.Proto()}, codes.InvalidArgument},
		"no action":              {action, &reuse.KeepRequest{Run: runOf(action, "1")}, codes.InvalidArgument},
		"not in the storage":     {absent, &reuse.KeepRequest{ActionDigest: absent.Proto(), Run: runOf(absent, "1")}, codes.FailedPrecondition},
		"other circumstances":    {action, &reuse.KeepRequest{ActionDigest: action.Proto(), Run: runOf(action, "1"), Circumstances: []byte("x")}, codes.InvalidArgument},
		"instance name":          {action, &reuse.KeepRequest{InstanceName: "a/../b", ActionDigest: action.Proto(), Run: runOf(action, "1")}, codes.InvalidArgument},
	} {
		if test.r.Circumstances == nil {
			test.r.Circumstances = here
		}
		if test.r.InstanceName == "" {
			test.r.InstanceName = "i"
		}
		if _, err := s.Keep(s.granted("i", test.grants), test.r); status.Code(err) != test.want {
			t.Errorf("keep, %s: %v, want %s", name, err, test.want)
		}
	}
	if len(store.values) > 0 {
		t.Errorf("%d records were stored from refused requests", len(store.values))
	}
	_, err := s.Find(s.granted("i", other), &reuse.FindRequest{
		InstanceName: "i", ActionDigest: action.Proto(), ReducedActionDigest: reduced.Proto(), Circumstances: here,
	})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("find without a grant: %v", err)
	}
}

// TestMerge checks that the newest run comes first and replaces a run that read the same, and that
// the oldest runs are dropped.
func TestMerge(t *testing.T) {
	s := serve(t, &fakeStore{})
	var actions []digest.Digest
	var last *repb.Action
	for i := range MaxRuns + 2 {
		action, m := s.action("gcc", fmt.Sprint("root ", i), nil)
		actions, last = append(actions, action), m
		if err := s.keep(action, runOf(action, fmt.Sprint(max(i, 1)))); err != nil { // 0 and 1 read the same
			t.Fatal(err)
		}
		var want []string
		for _, a := range slices.Backward(actions) {
			if len(want) < MaxRuns && (i == 0 || a != actions[0]) {
				want = append(want, a.Hash())
			}
		}
		if found := s.find(action, last); !slices.Equal(found, want) {
			t.Errorf("after %d: found %v, want %v", i, found, want)
		}
	}
	for k, b := range s.store.values {
		b[len(b)/2] ^= 1
		s.store.values[k] = b
	}
	if found := s.find(actions[0], last); found != nil {
		t.Errorf("in a damaged record: %v", found)
	}
	if err := s.keep(actions[0], runOf(actions[0], "1")); err != nil || len(s.find(actions[0], last)) != 1 {
		t.Errorf("after a damaged record: %v", err)
	}
}

// TestKeptAtOnce has several callers add runs of one command concurrently: no run gets lost, and
// the limits hold.
func TestKeptAtOnce(t *testing.T) {
	store := &fakeStore{held: make(chan struct{}), puts: make(chan struct{}, maxKeeping+1)}
	s := serve(t, store)
	actions := make([]digest.Digest, MaxRuns)
	for i := range actions {
		actions[i], _ = s.action("gcc", fmt.Sprint("root ", i), nil)
	}
	var all sync.WaitGroup
	for i, action := range actions {
		all.Go(func() {
			if err := s.keep(action, runOf(action, fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	<-store.puts
	select {
	case <-store.puts:
		t.Error("two callers add to one record concurrently")
	case <-time.After(time.Second / 5): // give a wrong second Put the time to begin
	}
	close(store.held)
	all.Wait()
	action, m := s.action("gcc", "root", nil)
	if found := s.find(action, m); len(found) != MaxRuns {
		t.Errorf("%d runs are known, want %d", len(found), MaxRuns)
	}

	full := &service{options: Options{Store: store}, keeping: make(chan struct{}, 1)}
	full.keeping <- struct{}{}
	_, err := full.Keep(t.Context(), &reuse.KeepRequest{ActionDigest: action.Proto(), Circumstances: here, Run: runOf(action, "1")})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one caller above the limit: %v", err)
	}
	full.finding = make(chan struct{}, 1)
	full.finding <- struct{}{}
	left, leave := context.WithCancel(t.Context())
	leave()
	_, err = full.Find(left, &reuse.FindRequest{
		ActionDigest: action.Proto(), ReducedActionDigest: action.Proto(), Circumstances: here,
	})
	if status.Code(err) != codes.Canceled {
		t.Errorf("a caller that left while the limit was reached: %v", err)
	}
}
