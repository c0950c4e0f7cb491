package worker

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
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/vfs"
)

// learnTimeout bounds the time that saving a profile may take.
const learnTimeout = 5 * time.Second

// foresight is what is known of what an action will read, and what is done
// about it. None of it can fail the action.
type foresight struct {
	action   prefetch.Action // without the tool until known is closed
	root     digest.Digest   // of the input root
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

// lookAhead begins to fetch what similar actions read, before anything else is
// known of this one. The caller ends it with endRace.
func (a *action) lookAhead(ctx context.Context) {
	o := &a.p.w.opts
	root, err := digest.FromProto(a.fn, a.message.GetInputRootDigest())
	if o.Profiles == nil || o.Roots.Method() == vfs.HardLink || err != nil {
		return
	}
	f := &foresight{action: a.similar(), root: root, known: make(chan struct{}), found: make(chan struct{})}
	ctx, f.cancel = context.WithCancel(ctx)
	a.ahead = f
	same := prefetch.Action{Instance: f.action.Instance, Digest: f.action.Digest}
	go func() {
		defer close(f.found)
		profile, origin := o.Profiles.Find(ctx, same)
		if profile == nil {
			// Whatever there is to know of others, all reads begin with the root.
			brought, _ := a.inputs.PrefetchDirectories(ctx, []digest.Digest{root})
			for _, d := range brought {
				f.early = prefetch.Amount{Files: 1, Bytes: d.SizeBytes()}
			}
			select {
			case <-f.known:
				profile, origin = o.Profiles.Find(ctx, f.action)
			case <-ctx.Done():
			}
		}
		f.origin = origin
		if ctx.Err() == nil {
			f.race.Store(prefetch.Start(ctx, prefetch.Spec{
				Root: root, Source: a.inputs, Profile: profile, Origin: origin, Limits: o.Limits,
			}))
		}
	}()
}

// knowTool says which program the action starts. It is called once.
func (f *foresight) knowTool(path string) {
	if f == nil {
		return
	}
	f.action.Tool = path
	close(f.known)
}

// similar says which actions this one is like.
func (a *action) similar() prefetch.Action {
	s := prefetch.Action{
		Instance: instance.Join(a.p.w.opts.InstancePrefix, a.task.desired.GetInstanceNameSuffix()),
		Digest:   digest.OfReduced(a.fn, a.message),
		Platform: platformText(a.message.GetPlatform()),
	}
	for _, packed := range a.task.desired.GetAuxiliaryMetadata() {
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

// hook returns the OnFirstRead of the input root.
func (f *foresight) hook() func(string, vfs.Kind) {
	if f == nil {
		return nil
	}
	return f.read
}

func (f *foresight) read(path string, kind vfs.Kind) {
	f.recorder.Read(path, kind)
	if race := f.race.Load(); race != nil {
		race.Opened(path, kind)
	}
}

// endRace stops what is fetched ahead, and sees what it was good for. It may be
// called again.
func (a *action) endRace() {
	f := a.ahead
	if f == nil {
		return
	}
	f.cancel()
	<-f.found
	race := f.race.Swap(nil)
	if race == nil {
		return
	}
	blobs, bytes := a.inputs.Fetched()
	f.outcome = race.Outcome(f.recorder.Has, prefetch.Amount{
		Files: blobs - f.early.Files, Bytes: bytes - f.early.Bytes,
	})
	f.outcome.Directories.Files += f.early.Files
	f.outcome.Directories.Bytes += f.early.Bytes
	a.p.w.metrics.observeRace(f.origin.String(), f.outcome)
}

// learn remembers what the action read, which was successful.
func (a *action) learn(ctx context.Context) {
	if a.ahead == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	recorder := &a.ahead.recorder
	directories := prefetch.Directories(a.inputs.LocalDirectory, a.ahead.root, recorder.Has)
	a.p.w.opts.Profiles.Learn(ctx, a.ahead.action, recorder.Hashes(), directories)
}

// appendRace says what was fetched ahead.
func (a *action) appendRace(list []*anypb.Any) []*anypb.Any {
	if a.ahead == nil {
		return list
	}
	o := a.ahead.outcome
	return pack(list, &actionstats.Prefetch{
		Profile:            a.ahead.origin.String(),
		DirectoriesFetched: o.Directories.Files,
		FilesFetched:       o.Files.Files, BytesFetched: o.Files.Bytes,
		HitFiles: o.Hits.Files, HitBytes: o.Hits.Bytes,
		WastedFiles: o.Waste.Files, WastedBytes: o.Waste.Bytes,
		MissedFiles: o.Misses.Files, MissedBytes: o.Misses.Bytes,
		HitRate: o.HitRate(),
	})
}

// raceFields are for the log line of the action.
func (a *action) raceFields() []zap.Field {
	if a.ahead == nil {
		return nil
	}
	o := a.ahead.outcome
	return []zap.Field{
		zap.Stringer("profile", a.ahead.origin),
		zap.Int64("prefetched_files", o.Files.Files), zap.Int64("prefetched_bytes", o.Files.Bytes),
		zap.Int64("hits", o.Hits.Files), zap.Int64("waste", o.Waste.Files), zap.Int64("misses", o.Misses.Files),
		zap.Float64("hit_rate", o.HitRate()),
	}
}
