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

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/vfs"
)

// learnTimeout bounds the time that saving a profile may take.
const learnTimeout = 5 * time.Second

// A Spec describes the action of a Fetch, and has the Fetch's dependencies.
type Spec struct {
	Action   prefetch.Action // without the tool
	Root     digest.Digest   // of the input root
	Inputs   *fetch.ReadThrough
	Profiles *prefetch.Profiles
	Limits   *prefetch.Limits
	// Held: nothing is fetched before Go, because the action may not run.
	Held bool
	// Here: the storage has no blob that the store lacks. Reads are remembered, for workers with
	// other stores, but there is nothing to fetch.
	Here bool
}

// A Fetch has the profile of an action, and prefetches its files. The methods of a nil Fetch do
// nothing.
type Fetch struct {
	spec     Spec
	action   prefetch.Action // without the tool until known is closed
	recorder prefetch.Recorder
	tally    prefetch.Tally
	parts    prefetch.PartReads

	cancel context.CancelFunc
	known  chan struct{} // closed when the command is known
	// command is valid once known is closed.
	command prefetch.Command
	begun   chan struct{} // closed when inputs may be fetched
	run     bool          // begun is closed
	// found is closed when race is set, or never will be.
	found  chan struct{}
	race   atomic.Pointer[prefetch.Race]
	origin prefetch.Origin // valid once found is closed

	early int64 // directories that were fetched before the race; valid once found is closed
	// These are valid after End.
	ended       bool
	directories int64 // that were fetched ahead
	forecast    prefetch.Forecast
	figures     prefetch.Figures
}

// Start begins to fetch the files of the profile, before the action itself is read; if the Fetch is
// Held, Start only looks up the profile. The caller ends it with End.
func Start(ctx context.Context, s Spec) *Fetch {
	f := &Fetch{
		spec: s, action: s.Action,
		known: make(chan struct{}), begun: make(chan struct{}), found: make(chan struct{}),
	}
	if !s.Held {
		f.Go()
	}
	ctx, f.cancel = context.WithCancel(ctx)
	if s.Here {
		close(f.found)
		return f
	}
	same := prefetch.Action{Instance: f.action.Instance, Digest: f.action.Digest}
	go func() {
		defer close(f.found)
		profile, origin := s.Profiles.Find(ctx, same)
		select {
		case <-f.begun:
		case <-ctx.Done():
			return
		}
		if profile == nil {
			// Whatever the profile, all reads begin with the root.
			came, _ := s.Inputs.PrefetchDirectories(ctx, []digest.Digest{s.Root})
			f.early = int64(len(came))
			select {
			case <-f.known:
				profile, origin = s.Profiles.Find(ctx, f.action)
			case <-ctx.Done():
			}
		}
		f.origin = origin
		if ctx.Err() == nil {
			f.start(ctx, profile, origin)
		}
	}()
	return f
}

// start starts the race, and tells it the command when that is known.
func (f *Fetch) start(ctx context.Context, profile *prefetch.Profile, origin prefetch.Origin) {
	race := prefetch.Start(ctx, prefetch.Spec{
		Root: f.spec.Root, Source: f.spec.Inputs, Profile: profile, Origin: origin, Limits: f.spec.Limits,
		Contents: f.spec.Inputs.LocalBlob,
	})
	f.race.Store(race)
	select {
	case <-f.known:
		race.KnowCommand(f.command)
	case <-ctx.Done():
	}
}

// KnowCommand sets the action's command line and its working directory, relative to the input root.
// It is called once.
func (f *Fetch) KnowCommand(args []string, workingDirectory string) {
	if f == nil {
		return
	}
	f.action.Tool = kind.ToolOf(args)
	f.command = prefetch.Command{Args: args, WorkingDirectory: workingDirectory}
	close(f.known)
}

// Go tells a Held Fetch that the action will run. It is called at most once.
func (f *Fetch) Go() {
	if f != nil {
		f.run = true
		close(f.begun)
	}
}

// Similar returns the kind of similar actions. known is what the scheduler knows of the action.
func Similar(instance string, fn digest.Function, action *repb.Action, known []*anypb.Any) prefetch.Action {
	s := prefetch.Action{
		Instance: instance,
		Digest:   digest.OfReduced(fn, action),
		Kind:     kind.Kind{Platform: platformText(action.GetPlatform())},
	}
	for _, packed := range known {
		var m repb.RequestMetadata
		if packed.MessageIs(&m) && packed.UnmarshalTo(&m) == nil {
			s.Mnemonic, s.Configuration = m.GetActionMnemonic(), m.GetConfigurationId()
		}
	}
	return s
}

// platformText formats a platform canonically, whatever the order of its properties: the text of a
// message may differ between builds of this program.
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

// Opened is called for each input file that the command opens, with the presence of its blob.
func (f *Fetch) Opened(d digest.Digest, was cas.Presence) {
	if f != nil {
		f.tally.Opened(d, was)
		if was == cas.Local {
			f.parts.Unseen(d)
		}
		if race := f.race.Load(); race != nil {
			race.Came(d, was)
		}
	}
}

// ReadPart is called for each read of a large file that was arriving when the command opened it.
func (f *Fetch) ReadPart(d digest.Digest, off, n int64) {
	if f != nil {
		f.parts.Read(d, off, n)
	}
}

// Used is called for each blob that the command may read, including those that the kernel opens
// without Opened.
func (f *Fetch) Used(d digest.Digest) {
	if f != nil {
		f.tally.Used(d)
	}
}

// End stops prefetching, and computes the figures. It may be called again. It reports whether this
// call ended prefetching, and prefetching was possible.
func (f *Fetch) End() bool {
	if f == nil || f.ended {
		return false
	}
	f.ended = true
	f.cancel()
	<-f.found
	f.directories = f.early
	var fetched []digest.Digest
	if race := f.race.Swap(nil); race != nil {
		f.directories += race.Stop().Directories.Files
		fetched, f.forecast = race.Fetched(), race.Forecast()
	}
	f.figures = f.tally.Figures(fetched)
	return f.run
}

// Forget forgets the reads of a command that runs again.
func (f *Fetch) Forget() {
	if f != nil {
		f.recorder = prefetch.Recorder{}
		f.parts = prefetch.PartReads{}
	}
}

// Figures returns the prefetch figures; valid after End.
func (f *Fetch) Figures() (figures prefetch.Figures) {
	if f != nil {
		figures = f.figures
	}
	return figures
}

// Origin returns the kind of the profile; valid after End.
func (f *Fetch) Origin() prefetch.Origin { return f.origin }

// Judge compares the profile with the reads of an action that has run and failed.
func (f *Fetch) Judge(ctx context.Context) {
	if f != nil && f.run {
		f.judge(ctx, true)
	}
}

// judge compares the profile with the reads of an action that has run.
func (f *Fetch) judge(ctx context.Context, failed bool) prefetch.Verdict {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	return f.spec.Profiles.Judge(ctx, f.action, prefetch.Run{
		Local: f.spec.Inputs.LocalDirectory, Root: f.spec.Root, Read: f.recorder.Has, Failed: failed,
		Forecast: f.forecast,
	})
}

// Learn compares the profile with the reads of a successful action, and remembers them.
func (f *Fetch) Learn(ctx context.Context) {
	if f == nil || !f.run {
		return
	}
	v := f.judge(ctx, false)
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	local, root, paths := f.spec.Inputs.LocalDirectory, f.spec.Root, f.recorder.Hashes()
	in := prefetch.Inputs{
		Directories: prefetch.Directories(local, root, f.recorder.Has),
		First:       f.recorder.FirstFiles(local, root),
	}
	v.Learn(ctx, paths, in, f.parts.Seen(local, root, f.recorder.Has)...)
}

// Metadata returns the prefetch figures; nil: prefetching was not possible.
func (f *Fetch) Metadata() *actionstats.Prefetch {
	if f == nil {
		return nil
	}
	of := func(a prefetch.Amount) *actionstats.Files { return &actionstats.Files{Files: a.Files, Bytes: a.Bytes} }
	m := &actionstats.Prefetch{
		Profile: f.origin.String(), DirectoriesFetched: f.directories,
		Files: of(f.figures.Files()), Foreseen: of(f.figures.Foreseen), Late: of(f.figures.Late),
		Missed: of(f.figures.Missed), Local: of(f.figures.Local), Unused: of(f.figures.Unused),
	}
	if rate, ok := f.figures.HitRate(); ok {
		m.HitRate = &rate
	}
	return m
}

// Fields returns fields for the log line of the action, none if prefetching was not possible.
func (f *Fetch) Fields() []zap.Field {
	if f == nil || !f.run {
		return nil
	}
	fields := []zap.Field{
		zap.Stringer("profile", f.origin),
		zap.Int64("files", f.figures.Files().Files), zap.Int64("foreseen", f.figures.Foreseen.Files),
		zap.Int64("late", f.figures.Late.Files), zap.Int64("missed", f.figures.Missed.Files),
		zap.Int64("local", f.figures.Local.Files),
		zap.Int64("unused", f.figures.Unused.Files), zap.Int64("unused_bytes", f.figures.Unused.Bytes),
	}
	if rate, ok := f.figures.HitRate(); ok {
		fields = append(fields, zap.Float64("hit_rate", rate))
	}
	return fields
}
