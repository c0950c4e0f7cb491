package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap/zaptest"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/rpctest"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/policy"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// patience bounds every wait of a test for another process.
const patience = 2 * time.Minute

// A farm is a Worker, with one position unless a test wants more, real storage and a
// fake scheduler.
type farm struct {
	storage   *disk.Store // clients upload to it
	actions   *disk.Actions
	local     *disk.Store // the worker's own
	roots     *vfs.FS
	profiles  *prefetch.Profiles // nil unless the test gave them
	scheduler *fakeScheduler
	reads     *readLog

	worker       *Worker
	drain, abort context.CancelFunc
	ended        chan struct{} // closed when Run has returned err
	err          error
}

func newFarm(t *testing.T) *farm {
	t.Helper()
	switch os.Getenv(rootsVariable) {
	case "memory":
		return newFarmOn(t, vfs.Options{Method: vfs.FUSE, UpperMemory: 64 << 20})
	case "links":
		return newFarmOn(t, vfs.Options{Method: vfs.HardLink})
	case "sandbox", "own":
		return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
			sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: os.Getenv(rootsVariable) == "own",
		})
	case "bare links":
		return newFarmOn(t, vfs.Options{Method: vfs.HardLink, DisableOverlay: true})
	}
	return newFarmOn(t, vfs.Options{Method: vfs.FUSE})
}

// rootsVariable lets tests run again with other input roots.
const rootsVariable = "FORERUNNER_TEST_ROOTS"

// newFarmOn is newFarm with input roots as o wants them.
func newFarmOn(t *testing.T, o vfs.Options) *farm { return newFarmThatRemembers(t, o, nil) }

func newFarmThatRemembers(t *testing.T, o vfs.Options, profiles *prefetch.Profiles) *farm {
	return newFarmWith(t, o, profiles, farmOptions{})
}

// farmOptions are options that few farms need.
type farmOptions struct {
	slot    *cgroup.Slot     // nil: no group
	sandbox *sandbox.Options // nil: none
	own     bool             // commands are root of user namespaces
	slots   int              // 0 is one
	disk    string           // folder for all the worker's data; empty: the test's own
	storage string           // storage's folder at the start; empty: a new one
	breaks  bool             // the disk does, so that the worker cannot clear it
	change  func(*Options)
}

func newFarmWith(t *testing.T, o vfs.Options, profiles *prefetch.Profiles, few farmOptions) *farm {
	t.Helper()
	needRoot(t)
	log := zaptest.NewLogger(t)
	dir := t.TempDir()
	f := &farm{profiles: profiles, scheduler: newFakeScheduler(), reads: &readLog{}, ended: make(chan struct{})}

	// Before the first mount, as a launcher must be started.
	var launchers []*runner.Launcher
	for range max(1, few.slots) {
		launcher, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{
			Cgroup: few.slot, Sandbox: few.sandbox, Logger: log,
		})
		check(t, err)
		t.Cleanup(func() { check(t, launcher.Close(context.Background())) })
		launchers = append(launchers, launcher)
	}

	var users *policy.Users
	if few.own {
		users = policy.OwnUsers(1900000000, 1<<16, max(1, few.slots)+1) // one to spare
		namespaces, err := users.MakeNamespaces()
		unavailable(t, err)
		o.Namespaces = namespaces
	}
	f.storage = openStore(t, cmp.Or(few.storage, filepath.Join(dir, "storage")))
	var err error
	f.actions, err = disk.OpenActions(filepath.Join(dir, "actions"), disk.ActionsOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, f.actions.Close()) })
	dir = cmp.Or(few.disk, dir)
	f.local = openStore(t, filepath.Join(dir, "local"))
	o.MountDir, o.UpperDir, o.Logger = filepath.Join(dir, "mount"), filepath.Join(dir, "upper"), log
	o.Blobs = &vfs.BlobFolder{Dir: f.local.Dir(), Path: disk.BlobPath, Parse: disk.ParseBlobPath}
	if few.sandbox != nil {
		o.Ready = max(1, few.slots) + 1
	}
	roots, err := vfs.Open(o)
	unavailable(t, err)
	f.roots = roots
	t.Cleanup(func() {
		if err := roots.Close(); !few.breaks {
			check(t, err)
		}
		assertNoMounts(t, dir)
	})

	storageConn := serve(t, func(s *grpc.Server) {
		casserver.New(f.storage, f.actions, casserver.Options{AllowActionUpdates: true}).Register(s)
	}, grpc.MaxRecvMsgSize(casserver.MaxMessageBytes), grpc.UnaryInterceptor(f.reads.unary), grpc.StreamInterceptor(f.reads.stream))
	schedulerConn := serve(t, func(s *grpc.Server) { remoteworker.RegisterOperationQueueServer(s, f.scheduler) })
	fetches, err := fetch.NewGroup(f.local, fetch.Options{ArriveAbove: arriveAbove})
	check(t, err)
	t.Cleanup(fetches.Close)
	options := Options{
		ID: map[string]string{"host": "test"}, Scheduler: remoteworker.NewOperationQueueClient(schedulerConn),
		Store: f.local, Fetches: fetches, Storage: casclient.New(storageConn, casclient.Options{RetryFor: time.Second}),
		Roots: roots, Launchers: launchers, Profiles: f.profiles, Crew: crew.New(2 * len(launchers)),
		WorkDir: filepath.Join(dir, "work"), MaxOutputBytes: 1 << 20, Logger: log,
		Checks:    []health.Check{{What: "input roots", Try: roots.Check}},
		Isolation: policy.Defaults{Sandboxed: few.sandbox != nil, Users: users},
	}
	if few.change != nil {
		few.change(&options)
	}
	w, err := New(options)
	check(t, err)
	f.worker = w
	ctx, drain := context.WithCancel(context.Background())
	abortCtx, abort := context.WithCancel(context.Background())
	f.drain, f.abort = drain, abort
	go func() {
		defer close(f.ended)
		f.err = w.Run(ctx, abortCtx)
	}()
	t.Cleanup(func() {
		drain()
		abort()
		f.wait(t)
		assertNoMounts(t, filepath.Join(dir, "mount", "roots", "0-")) // of slot 0
		if !few.breaks {
			assertEmptyDir(t, filepath.Join(dir, "work"))
		}
	})
	return f
}

// wait returns when Run has.
func (f *farm) wait(t *testing.T) {
	t.Helper()
	select {
	case <-f.ended:
		check(t, f.err)
	case <-time.After(patience):
		t.Fatal("the worker did not end")
	}
}

// needRoot skips a test that cannot mount, or fails it where nothing may skip.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, errors.New("mounting input roots needs root"))
	}
}

func unavailable(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatal(err)
	case errors.Is(err, vfs.ErrUnavailable), os.Geteuid() != 0:
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 30})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// serve runs a gRPC server until the test ends and returns a connection to it.
func serve(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	s := grpc.NewServer(options...)
	register(s)
	return rpctest.Serve(t, s)
}

func assertNoMounts(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	check(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			t.Errorf("is still mounted: %s", line)
		}
	}
}

func assertEmptyDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left in %s", e.Name(), dir)
	}
}

// newMark returns an environment variable that no other run of the tests has.
func newMark(name string) string {
	return fmt.Sprintf("%s=%s-%d", markVariable, name, os.Getpid())
}

const markVariable = "WORKER_TEST_MARK"

func markEnv(mark string) map[string]string {
	_, value, _ := strings.Cut(mark, "=")
	return map[string]string{markVariable: value}
}

// marked reports whether a process has variable in its environment.
func marked(t *testing.T, variable string) bool {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	check(t, err)
	for _, name := range names {
		// A process that ends meanwhile, or a zombie, has none.
		env, _ := os.ReadFile(name)
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if string(v) == variable {
				return true
			}
		}
	}
	return false
}

// readLog remembers which blobs were read from storage, by hash. It can hold up
// calls.
type readLog struct {
	mu     sync.Mutex
	hashes map[string]int
	held   map[string]chan struct{} // closed when they may go on: uploads, or reads of a hash
	free   map[string]bool          // hashes that allReads does not hold up
	lies   map[string]int           // by hash, how often to send wrong bytes
	waited map[string]chan struct{} // closed when it has come
	parts  map[string][]span.Span   // of large blobs, in the order in which they were asked for; to the end has no To
}

// Calls that can be held up, besides reads of a hash.
const (
	uploads  = "uploads"
	asking   = "asking"    // the search for missing blobs
	allReads = "all reads" // of small blobs
)

// wholeOf is what to hold for reads of a whole large blob.
func wholeOf(hash string) string { return "whole of " + hash }

// hold has small uploads, or reads of the small blob of a hash, wait until release
// is called.
func (l *readLog) hold(what string) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := make(chan struct{})
	l.held = map[string]chan struct{}{what: until}
	return sync.OnceFunc(func() { close(until) })
}

func (l *readLog) wait(ctx context.Context, what string) {
	l.mu.Lock()
	held := l.held[what]
	if held == nil && what != uploads && what != asking && !strings.HasPrefix(what, wholeOf("")) && !l.free[what] {
		held = l.held[allReads]
	}
	l.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
}

// tells returns a channel that is closed when something that can be held up has come.
func (l *readLog) tells(what string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited = map[string]chan struct{}{what: make(chan struct{})}
	return l.waited[what]
}

func (l *readLog) told(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.waited[what]; c != nil {
		close(c)
		delete(l.waited, what)
	}
}

func (l *readLog) add(hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hashes == nil {
		l.hashes = map[string]int{}
	}
	l.hashes[hash]++
}

func (l *readLog) count(d digest.Digest) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hashes[d.Hash()]
}

// partsOf returns which parts of a large blob were asked for, in that order.
func (l *readLog) partsOf(d digest.Digest) []span.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.parts[d.Hash()])
}

func (l *readLog) addPart(hash string, r *bytestream.ReadRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts == nil {
		l.parts = map[string][]span.Span{}
	}
	part := span.Span{From: r.GetReadOffset()}
	if limit := r.GetReadLimit(); limit > 0 {
		part.To = part.From + limit
	}
	l.parts[hash] = append(l.parts[hash], part)
}

func (l *readLog) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.hashes {
		n += times
	}
	return n
}

func (l *readLog) unary(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	switch r := request.(type) {
	case *repb.BatchReadBlobsRequest:
		for _, d := range r.GetDigests() {
			l.add(d.GetHash())
			l.wait(ctx, d.GetHash())
		}
	case *repb.BatchUpdateBlobsRequest:
		l.wait(ctx, uploads)
		if l.lying(uploads) {
			r.GetRequests()[0].GetData()[0] ^= 1
		}
	case *repb.FindMissingBlobsRequest:
		l.told(asking)
		l.wait(ctx, asking)
	}
	return next(ctx, request)
}

func (l *readLog) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &loggedStream{ServerStream: s, log: l})
}

type loggedStream struct {
	grpc.ServerStream
	log  *readLog
	hash string // of the blob being read; empty: none
}

// misread makes that many batches of small uploads arrive with a wrong byte.
func (l *readLog) misread(times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies = map[string]int{uploads: times}
}

// lie has storage that does not verify blobs send a wrong first byte in that many pieces of a large
// blob.
func (l *readLog) lie(d digest.Digest, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lies == nil {
		l.lies = map[string]int{}
	}
	l.lies[d.Hash()] = times
}

func (l *readLog) lying(hash string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lies[hash] == 0 {
		return false
	}
	l.lies[hash]--
	return true
}

func (s *loggedStream) SendMsg(m any) error {
	if r, ok := m.(*bytestream.ReadResponse); ok && len(r.GetData()) > 0 && s.log.lying(s.hash) {
		data := bytes.Clone(r.GetData())
		data[0] ^= 1
		m = &bytestream.ReadResponse{Data: data}
	}
	return s.ServerStream.SendMsg(m)
}

func (s *loggedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if r, ok := m.(*bytestream.ReadRequest); ok && err == nil {
		parts := strings.Split(r.GetResourceName(), "/")
		if len(parts) >= 2 {
			s.hash = parts[len(parts)-2]
			s.log.add(s.hash)
			s.log.addPart(s.hash, r)
			if r.GetReadOffset() == 0 && r.GetReadLimit() == 0 {
				s.log.wait(s.Context(), wholeOf(s.hash))
			}
		}
	}
	return err
}

// The values of a tree, besides string, which is a file.
type (
	executable string
	symlink    string
	// subtree is a directory whose digest alone is known.
	subtree digest.Digest
	// absent is a file whose content storage lacks.
	absent string
)

// A tree is an input root: paths with their content. Parents may be omitted. A path that ends in a
// slash, with a nil value, is an empty directory.
type tree map[string]any

// put uploads a tree and returns the digest of its root.
func (f *farm) put(t *testing.T, in tree) digest.Digest {
	t.Helper()
	m := &repb.Directory{}
	below := map[string]tree{}
	for name, v := range in {
		if head, rest, nested := strings.Cut(name, "/"); nested {
			if below[head] == nil {
				below[head] = tree{}
			}
			if rest != "" {
				below[head][rest] = v
			}
			continue
		}
		switch v := v.(type) {
		case string:
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: f.blob(t, v).Proto()})
		case executable:
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: f.blob(t, string(v)).Proto(), IsExecutable: true})
		case absent:
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(v)).Proto()})
		case symlink:
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: string(v)})
		case subtree:
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: digest.Digest(v).Proto()})
		default:
			t.Fatalf("%s: unknown kind of input %T", name, v)
		}
	}
	for name, sub := range below {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: f.put(t, sub).Proto()})
	}
	sortDirectory(m)
	return f.message(t, m)
}

func (f *farm) blob(t *testing.T, content string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(content))
	check(t, f.storage.PutBytes(t.Context(), d, []byte(content)))
	return d
}

func (f *farm) message(t *testing.T, m proto.Message) digest.Digest {
	t.Helper()
	d, raw, err := digest.OfMessage(digest.SHA256, m)
	check(t, err)
	check(t, f.storage.PutBytes(t.Context(), d, raw))
	return d
}

// read returns a blob of storage.
func (f *farm) read(t *testing.T, m *repb.Digest) string {
	t.Helper()
	d, err := digest.FromProto(digest.SHA256, m)
	check(t, err)
	b, err := f.storage.ReadBlob(t.Context(), d)
	check(t, err)
	return string(b)
}

// falsify changes the bytes of a blob in storage but not their number.
func (f *farm) falsify(t *testing.T, d digest.Digest) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.storage.Dir(), "*", "*", d.Hash()+"*"))
	check(t, err)
	if len(names) != 1 {
		t.Fatalf("files of %s: %q", d, names)
	}
	file, err := os.OpenFile(names[0], os.O_RDWR, 0)
	check(t, err)
	_, err = io.WriteString(file, "LIE")
	check(t, errors.Join(err, file.Close()))
}

// assertOK fails the test unless the action ended by itself with exit code 0.
func assertOK(t *testing.T, r *repb.ExecuteResponse) {
	t.Helper()
	if r.GetStatus().GetCode() != 0 || r.GetResult().GetExitCode() != 0 {
		t.Fatalf("status %v, exit code %d, stderr %q", r.GetStatus(), r.GetResult().GetExitCode(), r.GetResult().GetStderrRaw())
	}
}

// assertCode fails the test unless the action ended with code and a text that holds want.
func assertCode(t *testing.T, r *repb.ExecuteResponse, code codes.Code, want string) {
	t.Helper()
	if got := codes.Code(r.GetStatus().GetCode()); got != code {
		t.Fatalf("code %v, want %v; status %v, exit code %d, stderr %q",
			got, code, r.GetStatus(), r.GetResult().GetExitCode(), r.GetResult().GetStderrRaw())
	}
	if !strings.Contains(r.GetStatus().GetMessage(), want) {
		t.Errorf("message %q does not say %q", r.GetStatus().GetMessage(), want)
	}
}
