package buildevents

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/bazel"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// The limits of a stored build, in bytes and numbers.
const (
	maxBuild   = 40 << 10
	maxLabel   = 512
	maxMessage = 1 << 10
	maxOption  = 1 << 10
	maxOptions = 8 << 10
	maxTargets = 200
	maxTests   = 200
	maxLogs    = 4
	maxActions = 20
	maxErrors  = 20
	// entryBytes is the size of a list entry besides its texts.
	entryBytes = 16
)

// A build is the present state of one.
type build struct {
	*historypb.Build
	instance string // the instance name for execution, from the build tool
	left     int    // bytes that lists may still grow by
	tests    map[string]*test
	isUrgent bool // it has changed in what people look for: it is written within a second
}

// resumed continues from the last record of a build; nil: there is none.
func resumed(r *historypb.Record) *build {
	m := r.GetBuild()
	if m == nil {
		m = &historypb.Build{}
	}
	b := &build{Build: m, instance: r.GetInstanceName(), left: maxBuild - proto.Size(m), tests: map[string]*test{}}
	for _, t := range m.GetTests() {
		b.tests[t.GetLabel()] = &test{t, proto.Size(t)}
	}
	return b
}

// outcome is how the build ended, as far as it has.
func (b *build) outcome() historypb.Outcome {
	const interrupted = 8
	switch {
	case b.GetFinished() == nil:
		return historypb.Outcome_OUTCOME_UNSPECIFIED
	case b.GetExitCode() == 0:
		return historypb.Outcome_SUCCEEDED
	case b.GetExitCode() == interrupted:
		return historypb.Outcome_CANCELLED
	}
	return historypb.Outcome_FAILED
}

// take applies an event.
func (b *build) take(e *bazel.BuildEvent) {
	id := e.GetId()
	switch p := e.GetPayload().(type) {
	case *bazel.BuildEvent_Started:
		b.start(p.Started)
	case *bazel.BuildEvent_OptionsParsed:
		b.options(p.OptionsParsed.GetExplicitCmdLine(), p.OptionsParsed.GetCmdLine())
	case *bazel.BuildEvent_WorkspaceStatus:
		for _, item := range p.WorkspaceStatus.GetItem() {
			switch item.GetKey() {
			case "BUILD_USER":
				b.LocalUser, b.isUrgent = b.text(item.GetValue(), maxLabel), true
			case "BUILD_HOST":
				b.Host, b.isUrgent = b.text(item.GetValue(), maxLabel), true
			}
		}
	case *bazel.BuildEvent_Progress:
		b.printed(p.Progress.GetStderr())
	case *bazel.BuildEvent_Completed:
		b.target(id.GetTargetCompleted(), p.Completed)
	case *bazel.BuildEvent_Action:
		b.action(id.GetActionCompleted().GetLabel(), p.Action)
	case *bazel.BuildEvent_TestResult:
		b.attempt(id.GetTestResult(), p.TestResult)
	case *bazel.BuildEvent_TestSummary:
		b.summary(id.GetTestSummary().GetLabel(), p.TestSummary)
	case *bazel.BuildEvent_Aborted:
		b.aborted(id, p.Aborted)
	case *bazel.BuildEvent_Finished:
		b.finish(p.Finished)
	}
	b.wants(id)
}

// announced applies the first event's announcements: the event with the targets of a build may be
// too large.
func (b *build) announced(encoded []byte) {
	m := &bazel.Announcements{}
	if intake.Known(encoded, m) > mostDecoded || (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, m) != nil {
		return
	}
	for _, id := range m.GetChildren() {
		b.wants(id)
	}
}

// wants sets the patterns of the build, if an event has them and they are still unknown.
func (b *build) wants(id *bazel.BuildEventId) {
	if len(b.Patterns) > 0 {
		return
	}
	for _, pattern := range id.GetPattern().GetPattern() {
		if len(b.Patterns) < maxTargets && b.fits(pattern, maxLabel) {
			b.Patterns, b.isUrgent = append(b.Patterns, bounded.Text(pattern, maxLabel)), true
		}
	}
}

// text returns a text, cut, or nothing where there is no room.
func (b *build) text(s string, most int) string {
	if s = bounded.Text(s, most); !b.fits(s, most) {
		return ""
	}
	return s
}

// fits reserves room for an entry with a text of at most that many bytes, and reports whether there
// was room.
func (b *build) fits(s string, most int) bool {
	n := min(len(s), most) + entryBytes
	if b.left < n {
		b.Incomplete = true
		return false
	}
	b.left -= n
	return true
}

func (b *build) start(m *bazel.BuildStarted) {
	b.Command, b.Version = b.text(m.GetCommand(), maxLabel), b.text(m.GetBuildToolVersion(), maxLabel)
	b.Workspace = b.text(m.GetWorkspaceDirectory(), maxLabel)
	b.Started, b.isUrgent = timeOf(m.GetStartTime(), m.GetStartTimeMillis()), true
}

// timeOf is the time that newer or older versions send.
func timeOf(t *timestamppb.Timestamp, millis int64) *timestamppb.Timestamp {
	if t == nil && millis > 0 {
		t = timestamppb.New(time.UnixMilli(millis))
	}
	if !t.IsValid() {
		return nil
	}
	return t
}

const instanceFlag = "--remote_instance_name="

func (b *build) options(typed, all []string) {
	for _, o := range all {
		if name, ok := strings.CutPrefix(o, instanceFlag); ok && len(name) <= maxName {
			b.instance = name
		}
	}
	bytes := 0
	for _, o := range typed {
		o = bounded.Text(withoutSecrets(o), maxOption)
		if bytes += len(o); bytes > maxOptions || !b.fits(o, maxOption) {
			break
		}
		b.Options, b.isUrgent = append(b.Options, o), true
	}
}

// printed keeps the lines with errors.
func (b *build) printed(stderr string) {
	for line := range strings.Lines(stderr) {
		if len(b.Errors) >= maxErrors {
			return
		}
		line = strings.TrimSpace(plain(line))
		if strings.HasPrefix(line, "ERROR:") || strings.HasPrefix(line, "FATAL:") {
			b.fail(line)
		}
	}
}

func (b *build) fail(text string) {
	if text = bounded.Text(text, maxMessage); len(b.Errors) < maxErrors && b.fits(text, maxMessage) {
		b.Errors, b.isUrgent = append(b.Errors, text), true
	}
}

func (b *build) target(id *bazel.BuildEventId_TargetCompletedId, m *bazel.TargetComplete) {
	if id.GetAspect() != "" && m.GetSuccess() {
		return // the target has an event of its own
	}
	state := historypb.Build_FAILED
	if m.GetSuccess() {
		state = historypb.Build_BUILT
	}
	b.addTarget(id.GetLabel(), state, m.GetFailureDetail().GetMessage())
}

// addTarget counts a target, and lists it if there is space: a failed target replaces a built one.
func (b *build) addTarget(label string, state historypb.Build_State, message string) {
	switch state {
	case historypb.Build_BUILT:
		b.TargetsBuilt++
	case historypb.Build_SKIPPED:
		b.TargetsSkipped++
	default:
		b.TargetsFailed++
	}
	t := &historypb.Build_Target{Label: bounded.Text(label, maxLabel), State: state, Message: bounded.Text(message, maxMessage)}
	if state == historypb.Build_FAILED {
		for i := len(b.Targets) - 1; i >= 0 && (len(b.Targets) >= maxTargets || b.left < maxLabel+maxMessage); i-- {
			if old := b.Targets[i]; old.GetState() != historypb.Build_FAILED {
				b.left += len(old.GetLabel()) + len(old.GetMessage()) + entryBytes
				b.Targets = append(b.Targets[:i], b.Targets[i+1:]...)
			}
		}
	}
	if len(b.Targets) < maxTargets && b.fits(t.Label+t.Message, maxLabel+maxMessage) {
		b.Targets = append(b.Targets, t)
		b.isUrgent = b.isUrgent || state == historypb.Build_FAILED
	}
}

func (b *build) aborted(id *bazel.BuildEventId, m *bazel.Aborted) {
	reason := strings.ToLower(strings.ReplaceAll(m.GetReason().String(), "_", " "))
	if m.GetDescription() != "" {
		reason += ": " + m.GetDescription()
	}
	label := ""
	switch {
	case id.GetTargetCompleted() != nil:
		if m.GetReason() == bazel.Aborted_SKIPPED || m.GetReason() == bazel.Aborted_NO_BUILD {
			b.addTarget(id.GetTargetCompleted().GetLabel(), historypb.Build_SKIPPED, reason)
		} else {
			b.addTarget(id.GetTargetCompleted().GetLabel(), historypb.Build_FAILED, reason)
		}
		return
	case id.GetConfiguredLabel() != nil:
		label = id.GetConfiguredLabel().GetLabel()
	case id.GetUnconfiguredLabel() != nil:
		label = id.GetUnconfiguredLabel().GetLabel()
	case id.GetPattern() != nil:
		label = strings.Join(id.GetPattern().GetPattern(), " ")
	default:
		return // the build reports the results of others itself
	}
	b.fail(bounded.Text(label, maxLabel) + ": " + reason)
}

func (b *build) action(label string, m *bazel.ActionExecuted) {
	if m.GetSuccess() || len(b.FailedActions) >= maxActions {
		return
	}
	if label == "" {
		label = m.GetLabel()
	}
	a := &historypb.Build_FailedAction{
		Label: b.text(label, maxLabel), Mnemonic: b.text(m.GetType(), maxLabel), ExitCode: m.GetExitCode(),
		Message: b.text(m.GetFailureDetail().GetMessage(), maxMessage),
	}
	for _, f := range []*bazel.File{m.GetStderr(), m.GetStdout()} {
		if uri := f.GetUri(); uri != "" && len(uri) <= maxMessage && b.fits(uri, maxMessage) {
			a.Logs = append(a.Logs, &historypb.Build_Log{Name: bounded.Text(f.GetName(), maxLabel), Uri: uri})
		}
	}
	if b.fits("", 0) {
		b.FailedActions, b.isUrgent = append(b.FailedActions, a), true
	}
}

func (b *build) finish(m *bazel.BuildFinished) {
	b.Finished, b.isUrgent = timeOf(m.GetFinishTime(), m.GetFinishTimeMillis()), true
	if b.Finished == nil {
		b.Finished = timestamppb.Now()
	}
	b.ExitCode, b.ExitName = m.GetExitCode().GetCode(), bounded.Text(m.GetExitCode().GetName(), 64)
	b.Failure = b.text(m.GetFailureDetail().GetMessage(), maxMessage)
}
