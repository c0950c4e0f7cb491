package ahead

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/vfs"
)

// learnTimeout bounds the time that saving a profile may take.
const learnTimeout = 5 * time.Second

// A Spec says for which action, and with what.
type Spec struct {
	Action   prefetch.Action // without the tool
	Root     digest.Digest   // of the input root
	Inputs   *fetch.ReadThrough
	Profiles *prefetch.Profiles
	Limits   *prefetch.Limits
}

// A Fetch is what is known of what an action will read, and what is done about it. The methods of a nil
// Fetch do nothing.
type Fetch struct {
	spec     Spec
	action   prefetch.Action // without the tool until known is closed
	recorder prefetch.Recorder

	cancel context.CancelFunc
	known  chan struct{} // closed when the command has been read
	// found is closed when race is set, or never will be.
	found  chan struct{}
	race   atomic.Pointer[prefetch.Race]
	origin prefetch.Origin // valid once found is closed

	early   prefetch.Amount  // fetched before the race; valid once found is closed
	outcome prefetch.Outcome // valid after end
}

// Start begins to fetch what similar actions read, before anything else is known of this one. The caller ends
// it with End.
func Start(ctx context.Context, s Spec) *Fetch {
	f := &Fetch{spec: s, action: s.Action, known: make(chan struct{}), found: make(chan struct{})}
	ctx, f.cancel = context.WithCancel(ctx)
	same := prefetch.Action{Instance: f.action.Instance, Digest: f.action.Digest}
	go func() {
		defer close(f.found)
		profile, origin := s.Profiles.Find(ctx, same)
		if profile == nil {
			// Whatever there is to know of others, all reads begin with the root.
			came, _ := s.Inputs.PrefetchDirectories(ctx, []digest.Digest{s.Root})
			for _, d := range came {
				f.early = prefetch.Amount{Files: 1, Bytes: d.SizeBytes()}
			}
			select {
			case <-f.known:
				profile, origin = s.Profiles.Find(ctx, f.action)
			case <-ctx.Done():
			}
		}
		f.origin = origin
		if ctx.Err() == nil {
			f.race.Store(prefetch.Start(ctx, prefetch.Spec{
				Root: s.Root, Source: s.Inputs, Profile: profile, Origin: origin, Limits: s.Limits,
			}))
		}
	}()
	return f
}

// KnowTool says which program the action starts. It is called once.
func (f *Fetch) KnowTool(path string) {
	if f == nil {
		return
	}
	f.action.Tool = path
	close(f.known)
}

// Similar says which actions one is like. known is what the scheduler knows of it.
func Similar(instance string, fn digest.Function, action *repb.Action, known []*anypb.Any) prefetch.Action {
	s := prefetch.Action{
		Instance: instance,
		Digest:   digest.OfReduced(fn, action),
		Platform: platformText(action.GetPlatform()),
	}
	for _, packed := range known {
		var m repb.RequestMetadata
		if packed.MessageIs(&m) && packed.UnmarshalTo(&m) == nil {
			s.Mnemonic, s.Configuration = m.GetActionMnemonic(), m.GetConfigurationId()
		}
	}
	return s
}

// platformText writes a platform in one form, whatever the order of its properties:
// the text of a message may differ from one build of this program to the next.
func platformText(p *repb.Platform) string {
	lines := make([]string, 0, len(p.GetProperties()))
	for _, property := range p.GetProperties() {
		lines = append(lines, fmt.Sprintf("%q=%q\n", property.GetName(), property.GetValue()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Hook returns the OnFirstRead of the input root.
func (f *Fetch) Hook() func(string, vfs.Kind) {
	if f == nil {
		return nil
	}
	return f.read
}

func (f *Fetch) read(path string, kind vfs.Kind) {
	f.recorder.Read(path, kind)
	if race := f.race.Load(); race != nil {
		race.Opened(path, kind)
	}
}

// End stops what is fetched ahead, and sees what it was good for. It reports whether there was a race that has
// ended now: it may be called again.
func (f *Fetch) End() bool {
	if f == nil {
		return false
	}
	f.cancel()
	<-f.found
	race := f.race.Swap(nil)
	if race == nil {
		return false
	}
	blobs, bytes := f.spec.Inputs.Fetched()
	f.outcome = race.Outcome(f.recorder.Has, prefetch.Amount{
		Files: blobs - f.early.Files, Bytes: bytes - f.early.Bytes,
	})
	f.outcome.Directories.Files += f.early.Files
	f.outcome.Directories.Bytes += f.early.Bytes
	return true
}

// Forget forgets what the command read, which is run again.
func (f *Fetch) Forget() {
	if f != nil {
		f.recorder = prefetch.Recorder{}
	}
}

// Outcome is what it was good for; valid after End.
func (f *Fetch) Outcome() (o prefetch.Outcome) {
	if f != nil {
		o = f.outcome
	}
	return o
}

// Origin says where what was known came from; valid after End.
func (f *Fetch) Origin() prefetch.Origin { return f.origin }

// Learn remembers what the action read, which was successful.
func (f *Fetch) Learn(ctx context.Context) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	directories := prefetch.Directories(f.spec.Inputs.LocalDirectory, f.spec.Root, f.recorder.Has)
	f.spec.Profiles.Learn(ctx, f.action, f.recorder.Hashes(), directories)
}

// Metadata says what was fetched ahead; nil: nothing could be.
func (f *Fetch) Metadata() *actionstats.Prefetch {
	if f == nil {
		return nil
	}
	o := f.outcome
	return &actionstats.Prefetch{
		Profile:            f.origin.String(),
		DirectoriesFetched: o.Directories.Files,
		FilesFetched:       o.Files.Files, BytesFetched: o.Files.Bytes,
		HitFiles: o.Hits.Files, HitBytes: o.Hits.Bytes,
		WastedFiles: o.Waste.Files, WastedBytes: o.Waste.Bytes,
		MissedFiles: o.Misses.Files, MissedBytes: o.Misses.Bytes,
		HitRate: o.HitRate(),
	}
}

// Fields are for the log line of the action.
func (f *Fetch) Fields() []zap.Field {
	if f == nil {
		return nil
	}
	o := f.outcome
	return []zap.Field{
		zap.Stringer("profile", f.origin),
		zap.Int64("prefetched_files", o.Files.Files), zap.Int64("prefetched_bytes", o.Files.Bytes),
		zap.Int64("hits", o.Hits.Files), zap.Int64("waste", o.Waste.Files), zap.Int64("misses", o.Misses.Files),
		zap.Float64("hit_rate", o.HitRate()),
	}
}
