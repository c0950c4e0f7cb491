package worker

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	historicalpb "github.com/forerunner-build/forerunner/proto/historical"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/historical"
)

// newFarmWithBrowser returns a farm whose storage pages of Buildbarn read.
func newFarmWithBrowser(t *testing.T) *farm {
	t.Helper()
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) {
		browser, err := historical.New("http://10.0.0.9:7984/pages")
		check(t, err)
		o.Browser = browser
	}})
}

// linkForm is the form of links that Buildbarn's pages accept.
var linkForm = regexp.MustCompile(
	`^Action details \(uncached result\): http://10\.0\.0\.9:7984/pages/blobs/sha256/historical_execute_response/([0-9a-f]{64})-([0-9]+)/$`)

// followed returns what the link in the message of a response leads to, and the rest of that
// message. Without a link it is nil.
func (f *farm) followed(t *testing.T, r *repb.ExecuteResponse) (*historicalpb.HistoricalExecuteResponse, string) {
	t.Helper()
	link, rest, _ := strings.Cut(r.GetMessage(), "\n")
	found := linkForm.FindStringSubmatch(link)
	if found == nil {
		return nil, r.GetMessage()
	}
	size, err := strconv.ParseInt(found[2], 10, 64)
	check(t, err)
	stored := &historicalpb.HistoricalExecuteResponse{}
	check(t, proto.Unmarshal([]byte(f.read(t, &repb.Digest{Hash: found[1], SizeBytes: size})), stored))
	return stored, rest
}

// TestUncachedResults: Buildbarn's pages show results that are not in the action cache, and no
// others.
func TestUncachedResults(t *testing.T) {
	f := newFarmWithBrowser(t)
	for _, c := range []struct {
		name    string
		spec    spec
		code    codes.Code
		stored  bool
		message string // besides the link
	}{
		{"success", spec{shell: "echo fine"}, codes.OK, false, ""},
		{"exit code", spec{shell: "echo made > out; echo broken >&2; exit 1", paths: []string{"out"}}, codes.OK, true, ""},
		{"do not cache", spec{shell: "echo fine", doNotCache: true}, codes.OK, true, ""},
		{"signal", spec{shell: "kill -9 $$"}, codes.OK, true, "command was ended by signal"},
		{"timeout", spec{shell: "exec sleep 1000", timeout: 50 * time.Millisecond}, codes.DeadlineExceeded, true, ""},
		{"missing input", spec{inputs: tree{"a": absent("gone")}, shell: "cat a; exit 0"}, codes.FailedPrecondition, true, ""},
		{"no command", spec{args: []string{}}, codes.InvalidArgument, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := f.start(t, c.spec)
			r := j.result(t)
			assertCode(t, r, c.code, "")
			stored, rest := f.followed(t, r)
			if (stored != nil) != c.stored || !strings.HasPrefix(rest, c.message) || c.message == "" && rest != "" {
				t.Fatalf("message %q", r.GetMessage())
			}
			if !c.stored {
				return
			}
			want := proto.CloneOf(r)
			want.Message = rest
			if !proto.Equal(stored.GetExecuteResponse(), want) {
				t.Errorf("stored is %v\nwant %v", stored.GetExecuteResponse(), want)
			}
			if !proto.Equal(stored.GetActionDigest(), j.digest.Proto()) {
				t.Errorf("stored is of action %v, want %s", stored.GetActionDigest(), j.digest)
			}
		})
	}
}

// TestUncachedResultThatIsNotStored has a storage that accepts nothing, and actions whose storage
// is unknown. Each ends as it would without pages.
func TestUncachedResultThatIsNotStored(t *testing.T) {
	f := newFarmWithBrowser(t)
	f.reads.misread(1 << 20)
	r := f.run(t, spec{shell: "exit 3"})
	f.reads.misread(0)
	if r.GetStatus() != nil || r.GetResult().GetExitCode() != 3 || r.GetMessage() != "" {
		t.Errorf("response is %v", r)
	}
	j := f.job(t, spec{shell: "exit 0"})
	j.desired.DigestFunction = repb.DigestFunction_MD5
	select {
	case f.scheduler.work <- j:
	case <-time.After(patience):
		t.Fatal("the worker does not ask for work")
	}
	r = j.result(t)
	assertCode(t, r, codes.InvalidArgument, "digest function")
	if r.GetMessage() != "" {
		t.Errorf("message %q", r.GetMessage())
	}
	f.assertGood(t)
}
