package web

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/stored"
	"github.com/forerunner-build/forerunner/web/text"
)

// A published has the build events of an invocation.
type published struct {
	*historypb.Build
	Invocation string
	// User and Instance own the build.
	User, Instance string
	// Ended is the time of the last stored event.
	Ended   time.Time
	outcome historypb.Outcome
	// known counts the failed actions with records, which the page already shows.
	known map[failedKind]int
}

// A failedKind is a key that both the record and the build event of a failed action have.
type failedKind struct{ target, mnemonic string }

// maxPublishers limits the users whose builds are searched for one invocation.
const maxPublishers = 10

// published returns the build events of an invocation, or nil if there are none. If several users
// published an invocation of that name, it returns the events of the user who ran these actions.
func (b *builder) published(ctx context.Context) (*published, error) {
	id := b.view.Invocation
	list, err := answers.Get(ctx, b.pages.Source, answers.KeyFor(ctx, "published "+id), func(ctx context.Context) (*admin.ListRecordsResponse, error) {
		return b.pages.Scheduler.ListRecords(ctx, &admin.ListRecordsRequest{Pattern: b.pattern(), Builds: true, PageSize: maxPublishers})
	})
	if err != nil || status.Code(err) == codes.Unimplemented {
		return nil, err
	}
	var found *historypb.Record
	for _, r := range list.GetRecords() {
		if r.GetInvocation() == id && r.GetBuild() != nil && (found == nil || found.GetUser() != b.view.User && r.GetUser() == b.view.User) {
			found = r
		}
	}
	if found == nil {
		return nil, nil
	}
	return publishedOf(found), nil
}

func publishedOf(r *historypb.Record) *published {
	return &published{
		Build: r.GetBuild(), Invocation: r.GetInvocation(), User: r.GetUser(), Instance: r.GetInstanceName(), Ended: r.GetEnded().AsTime(),
		outcome: r.GetOutcome(),
	}
}

// What describes the command and target patterns of the build.
func (p *published) What() string { return facts.Build(p.Build) }

// Who returns the user: the authenticated one or, if there is none, the one in the events.
func (p *published) Who() string { return facts.BuildUser(p.User, p.Build) }

// Word returns the short outcome for a list.
func (p *published) Word() string {
	return facts.BuildOutcome(p.outcome, p.Build, p.Ended)
}

// TargetCounts describes how many targets were built.
func (p *published) TargetCounts() string { targets, _ := facts.BuildCounts(p.Build); return targets }

// TestCounts describes how many tests passed.
func (p *published) TestCounts() string { _, tests := facts.BuildCounts(p.Build); return tests }

// Words returns the command line as the user typed it.
func (p *published) Words() []string {
	return slices.Concat([]string{"bazel", p.GetCommand()}, p.GetOptions(), p.GetPatterns())
}

// OtherFailures returns the failed actions without a record, which ran elsewhere. Each record
// accounts for one failed action.
func (p *published) OtherFailures() (others []*historypb.Build_FailedAction) {
	known := maps.Clone(p.known)
	for _, a := range p.GetFailedActions() {
		f := failedKind{a.GetLabel(), a.GetMnemonic()}
		if known[f] == 0 {
			others = append(others, a)
			continue
		}
		known[f]--
	}
	return others
}

// Class returns the CSS class of the outcome.
func (p *published) Class() string {
	if p.outcome == historypb.Outcome_OUTCOME_UNSPECIFIED {
		if p.GetEnded() {
			return "failed"
		}
		return "executing"
	}
	return outcomeClass(p.outcome)
}

// goesOn reports whether the build may still send events.
func (p *published) goesOn() bool {
	return p != nil && facts.BuildGoesOn(p.Build, p.Ended)
}

// Verdict describes the outcome of the build.
func (p *published) Verdict() string {
	switch p.outcome {
	case historypb.Outcome_SUCCEEDED:
		return "Succeeded"
	case historypb.Outcome_CANCELLED:
		return "Interrupted"
	case historypb.Outcome_OUTCOME_UNSPECIFIED:
		if p.GetEnded() {
			return "Its end is not known"
		}
		return "Not ended, or its last event is missing"
	}
	return "Failed: exit code " + text.Count(p.GetExitCode()) + ", " + facts.BuildOutcome(p.outcome, p.Build, p.Ended)
}

// Took returns the duration of the build; 0 if unknown.
func (p *published) Took() time.Duration {
	if p.GetStarted() == nil || p.GetFinished() == nil {
		return 0
	}
	return p.GetFinished().AsTime().Sub(p.GetStarted().AsTime())
}

// Unbuilt returns the targets that were not built, failed ones first.
func (p *published) Unbuilt() []*historypb.Build_Target {
	list := slices.DeleteFunc(slices.Clone(p.GetTargets()), func(t *historypb.Build_Target) bool { return t.GetState() == historypb.Build_BUILT })
	slices.SortStableFunc(list, func(a, b *historypb.Build_Target) int { return int(a.GetState()) - int(b.GetState()) })
	return list
}

// Built returns the targets that were built.
func (p *published) Built() []*historypb.Build_Target {
	return slices.DeleteFunc(slices.Clone(p.GetTargets()), func(t *historypb.Build_Target) bool { return t.GetState() != historypb.Build_BUILT })
}

// A testRow is a test of a build.
type testRow struct {
	*historypb.Build_Test
	Links []link
}

// A link is a log; without a Path it is not available here.
type link struct{ Title, Path string }

// Rows returns the tests, failed ones first.
func (p *published) Rows() (rows []testRow) {
	for _, t := range p.GetTests() {
		rows = append(rows, testRow{t, p.links(t.GetLogs())})
	}
	slices.SortStableFunc(rows, func(a, b testRow) int { return rank(a.Class()) - rank(b.Class()) })
	return rows
}

func rank(class string) int {
	return slices.Index([]string{"failed", "executing", "queued", "completed"}, class)
}

// Class returns the CSS class of the status.
func (t testRow) Class() string {
	switch t.GetStatus() {
	case "PASSED":
		return "completed"
	case "FLAKY":
		return "queued"
	case "", "NO_STATUS":
		return "executing"
	}
	return "failed"
}

// Word returns the status as text.
func (t testRow) Word() string {
	if t.Class() == "executing" {
		return "not ended"
	}
	return strings.ToLower(strings.ReplaceAll(t.GetStatus(), "_", " "))
}

// MoreTests returns the number of tests that are not listed.
func (p *published) MoreTests() int {
	return max(int(p.GetTestsPassed()+p.GetTestsFailed())-len(p.GetTests()), 0)
}

// LogsOf returns the outputs of a failed action.
func (p *published) LogsOf(a *historypb.Build_FailedAction) []link { return p.links(a.GetLogs()) }

func (p *published) links(logs []*historypb.Build_Log) (list []link) {
	for _, l := range logs {
		title := l.GetName()
		if l.GetStatus() != "" && l.GetStatus() != "PASSED" {
			title += " (" + strings.ToLower(l.GetStatus()) + ")"
		}
		list = append(list, link{title, storedPath(l.GetUri(), l.GetName())})
	}
	return list
}

// storedPath returns the path from which a browser downloads the blob of a bytestream URI; empty if
// the URI names none.
func storedPath(uri, name string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "bytestream" {
		return ""
	}
	instance, rest, ok := strings.Cut(u.Path, "/blobs/")
	if !ok {
		return ""
	}
	fn := digest.SHA256
	if parts := strings.Split(rest, "/"); len(parts) == 3 {
		if fn, err = stored.Function(parts[0]); err != nil {
			return ""
		}
		rest = parts[1] + "/" + parts[2]
	}
	d, err := stored.Digest(fn, rest)
	if err != nil {
		return ""
	}
	return blobPath(fn.String(), d.String(), strings.Trim(instance, "/"), name)
}
