package rot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/test/programs"
)

var errWrongResult = errors.New("wrong result")

const (
	rotToolFiles = 320 // files, enough for a metadata image
	rotHotTools  = 16  // of them, which are used most
	rotFileBytes = 4096
	rotReads     = 6 // tools that an action reads
	rotOwnBlobs  = 4 // that no other action has: root, input, Command and Action
)

// rotTools are files that all actions have.
type rotTools struct {
	content [][]byte
	dir     digest.Digest
	blobs   []casclient.Blob
}

func rotContent(seed, kind, number uint64) []byte {
	random := rand.New(rand.NewPCG(seed<<8|kind, number))
	b := make([]byte, rotFileBytes)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789+-.\n"[random.IntN(40)]
	}
	return b
}

// anyTool chooses one of those that all use, mostly.
func anyTool(random *rand.Rand) int {
	if random.IntN(4) > 0 {
		return random.IntN(rotHotTools)
	}
	return random.IntN(rotToolFiles)
}

func toolName(i int) string { return fmt.Sprintf("%03d", i) }

func newRotTools(seed uint64) *rotTools {
	t := &rotTools{}
	dir := &repb.Directory{}
	for i := range rotToolFiles {
		b := rotContent(seed, 1, uint64(i))
		d := digest.Of(digest.SHA256, b)
		t.content = append(t.content, b)
		t.blobs = append(t.blobs, casclient.BytesBlob(d, b))
		dir.Files = append(dir.Files, &repb.FileNode{Name: toolName(i), Digest: d.Proto()})
	}
	d, b, err := digest.OfMessage(digest.SHA256, dir)
	if err != nil {
		panic(err)
	}
	t.dir = d
	t.blobs = append(t.blobs, casclient.BytesBlob(d, b))
	return t
}

// A rotAction is an action whose outputs are known. If it reads an output of another action, the
// client does not have this output.
type rotAction struct {
	number  int
	before  *rotAction // nil: none
	own     []byte
	reads   []int
	request client.Request
	digest  digest.Digest // of the Action, once it was executed
	files   map[string][]byte
	printed string
}

// newAction makes an action, and by a model of it what comes of it.
func (t *rotTest) newAction(number int) *rotAction {
	random := rand.New(rand.NewPCG(t.seed, uint64(number)+1))
	a := &rotAction{number: number, own: rotContent(t.seed, 2, uint64(number))}
	prev := []byte("none\n")
	if number > 8 && random.IntN(2) == 0 {
		a.before = t.actions[number-8-random.IntN(min(number-8, 16))]
		prev = a.before.files["out/head"]
	}
	joined := append(bytes.Clone(prev), a.own...)
	var names []string
	for range rotReads {
		i := anyTool(random)
		a.reads = append(a.reads, i)
		joined = append(joined, t.tools.content[i]...)
		names = append(names, "tool/"+toolName(i))
	}
	sum := fmt.Sprintf("%x\n", sha256.Sum256(joined))
	a.files = map[string][]byte{
		"out/joined": joined, "out/sum": []byte(sum), "out/head": append([]byte(sum), a.own[:rotFileBytes-len(sum)]...),
	}
	a.printed = fmt.Sprintf("action %d: %s", number, sum)
	// Some last long enough for something to happen to their inputs, before or after they are read.
	first, last := "", ""
	switch number % 8 {
	case 0:
		first = "sleep 0.3; "
	case 1:
		last = "; sleep 0.3"
	}
	script := first + fmt.Sprintf("mkdir -p out; cat prev own %s >out/joined; sha256sum <out/joined | cut -c1-64 >out/sum; "+
		"{ cat out/sum; head -c %d own; } >out/head; echo action %d: $(cat out/sum)",
		strings.Join(names, " "), rotFileBytes-len(sum), number) + last
	outputs := []string{"out/joined", "out/sum", "out/head"}
	if number%4 == 0 {
		outputs = []string{"out"}
	}
	a.request = client.Request{
		Command: client.NewCommand([]string{"/bin/sh", "-ec", script}, outputs, "", map[string]string{"PATH": "/usr/bin:/bin"}, nil),
		Inputs:  t.inputs(a, prev),
	}
	return a
}

// inputs makes the input root of an action. Outputs of other actions are not among its blobs.
func (t *rotTest) inputs(a *rotAction, prev []byte) *client.Inputs {
	own, before := digest.Of(digest.SHA256, a.own), digest.Of(digest.SHA256, prev)
	root, encoded, err := digest.OfMessage(digest.SHA256, &repb.Directory{
		Files:       []*repb.FileNode{{Name: "own", Digest: own.Proto()}, {Name: "prev", Digest: before.Proto()}},
		Directories: []*repb.DirectoryNode{{Name: "tool", Digest: t.tools.dir.Proto()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs := append([]casclient.Blob{casclient.BytesBlob(root, encoded), casclient.BytesBlob(own, a.own)}, t.tools.blobs...)
	if a.before == nil {
		blobs = append(blobs, casclient.BytesBlob(before, prev))
	}
	return &client.Inputs{Root: root, Blobs: blobs}
}

// build gets the result of an action as a build tool does: it uploads or makes again what the farm
// lacks, and repeats requests that failed temporarily.
func (t *rotTest) build(ctx context.Context, a *rotAction) {
	ctx, cancel := context.WithTimeout(ctx, rotPatience)
	defer cancel()
	var last error
	for n := range rotAgain {
		if last = t.once(ctx, a, n); last == nil {
			return
		}
		if errors.Is(last, errWrongResult) || ctx.Err() != nil {
			break
		}
		why := status.Code(last)
		t.mu.Lock()
		t.again[why.String()]++
		t.mu.Unlock()
		switch why {
		case codes.NotFound, codes.FailedPrecondition, codes.DataLoss, codes.Unavailable, codes.Aborted, codes.Unknown:
			pause := min(time.Duration(n)*100*time.Millisecond, time.Second)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		break
	}
	t.Errorf("seed %d, action %d: somebody has to look at: %v", t.seed, a.number, last)
}

// once tries to get the result of an action.
func (t *rotTest) once(ctx context.Context, a *rotAction, n int) error {
	if n > 0 {
		t.redone.Add(1)
	}
	outcome, err := client.Execute(ctx, t.conn, a.request)
	if err == nil {
		err = outcome.Status
	}
	if err != nil {
		if a.before != nil && programs.Lacks(err, digest.Of(digest.SHA256, a.before.files["out/head"])) {
			t.build(ctx, a.before) // its output is lost
		}
		return fmt.Errorf("execute: %w", err)
	}
	if a.number >= 2*rotClients { // before, the tools come for the first time
		fresh := 0
		if n == 0 {
			fresh = rotOwnBlobs
		}
		t.healed.Add(int64(max(outcome.UploadedBlobs-fresh, 0)))
	}
	if outcome.Cached {
		t.cached.Add(1)
	}
	t.mu.Lock()
	a.digest = outcome.Action
	t.mu.Unlock()
	return a.compare(ctx, t, outcome.Result)
}

// compare fetches all that a result names, and compares it with the model.
func (a *rotAction) compare(ctx context.Context, t *rotTest, r *repb.ActionResult) error {
	printed, err := client.Output(ctx, t.client, digest.SHA256, r.GetStdoutRaw(), r.GetStdoutDigest())
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if r.GetExitCode() != 0 || string(printed) != a.printed {
		return fmt.Errorf("%w: exit code %d, printed %q, want %q; standard error %q", errWrongResult, r.GetExitCode(), printed, a.printed, r.GetStderrRaw())
	}
	dir, err := os.MkdirTemp(t.Dir, "got-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := client.Download(ctx, t.client, digest.SHA256, r, dir); err != nil {
		return fmt.Errorf("outputs: %w", err)
	}
	for name, want := range a.files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%w: %s has %d bytes, which differ from the %d of the model: %v", errWrongResult, name, len(got), len(want), err)
		}
	}
	return nil
}

// isGone reports whether err says that a blob is missing or damaged, upon which a build tool makes
// it again.
func isGone(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) ||
		status.Code(err) == codes.NotFound || status.Code(err) == codes.DataLoss
}
