package worker

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestRangesComeFirst has a command read a few parts of a large input on one worker, and again on
// another one that knows of the first run. The second worker must request these parts before the
// rest, and before the command reads them, unless the command waits for another file sooner: then
// nothing is prefetched. The whole input must still be verified, and a storage that
// sends wrong bytes must be detected.
func TestRangesComeFirst(t *testing.T) {
	profiles := prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{})
	content := inputOf(20<<20, "ranges")
	places := []int64{3 << 20, 11 << 20, 17 << 20}
	read := filepath.Join(t.TempDir(), "read")
	s := spec{
		inputs: tree{"large": content, "gate": "gate", "lib/small": "small"},
		shell:  "cat gate lib/small; for at in 3 11 17; do dd if=large bs=65536 skip=$((at * 16)) count=1 status=none; done | sha256sum; touch " + read,
	}

	f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE}, profiles)
	d := f.blob(t, content)
	// Reads are seen until the whole file has come.
	come := f.reads.hold(wholeOf(d.Hash()))
	defer come()
	j := f.start(t, s)
	launchertest.Eventually(t, "all parts are read", func() bool {
		_, err := os.Stat(read)
		return err == nil
	})
	come()
	r := j.result(t)
	assertOK(t, r)
	first := string(r.GetResult().GetStdoutRaw())
	f.drain()
	f.wait(t)

	f = newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE}, profiles)
	release := f.reads.hold(digestOfBytes("gate").Hash())
	defer release()
	j = f.start(t, s)
	var asked []span.Span
	for began := time.Now(); len(asked) < len(places); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Second {
			release()
		}
		if asked = f.reads.partsOf(d); time.Since(began) > patience {
			t.Fatalf("asked for %v only", asked)
		}
	}
	for _, at := range places {
		found := false
		for _, part := range asked[:len(places)] {
			found = found || part.From <= at && at+65536 <= part.To && part.To <= at+2<<20
		}
		if !found {
			t.Errorf("the first that was asked for are %v, without %d", asked, at)
		}
	}
	release()
	r = j.result(t)
	assertOK(t, r)
	if again := string(r.GetResult().GetStdoutRaw()); again != first {
		t.Errorf("printed %q, want %q", again, first)
	}
	if !f.local.Contains(d) {
		t.Error("the result is out, and not all of what was read has come")
	}
	f.drain()
	f.wait(t)

	f = newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE}, profiles)
	f.reads.lie(f.blob(t, content), math.MaxInt)
	j = f.start(t, s)
	assertCode(t, j.result(t), codes.DataLoss, d.Hash())
	f.assertNotCached(t, j)
	for _, part := range f.reads.partsOf(d)[:len(places)] {
		if part.To == 0 {
			t.Errorf("asked for all first: %v", f.reads.partsOf(d))
		}
	}
}
