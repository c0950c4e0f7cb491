package buildevents

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/proto/bazel"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A test is an entry of the list.
type test struct {
	*historypb.Build_Test
	taken int // bytes of build.left, which it gives back when it is removed
}

// test returns the entry of a label, nil if there is no space for it. A failed test replaces a
// passed one.
func (b *build) test(label string, passed bool) *test {
	label = bounded.Text(label, maxLabel)
	if t := b.tests[label]; t != nil {
		return t
	}
	if !passed && (len(b.Tests) >= maxTests || b.left < 8<<10) {
		for i := len(b.Tests) - 1; i >= 0; i-- {
			if old := b.tests[b.Tests[i].GetLabel()]; isPassed(old.GetStatus()) {
				b.left += old.taken
				delete(b.tests, old.GetLabel())
				b.Tests = append(b.Tests[:i], b.Tests[i+1:]...)
				break
			}
		}
	}
	had := b.left
	if len(b.Tests) >= maxTests || !b.fits(label, maxLabel) {
		return nil
	}
	t := &test{&historypb.Build_Test{Label: label}, had - b.left}
	b.tests[label] = t
	b.Tests = append(b.Tests, t.Build_Test)
	return t
}

func isPassed(status string) bool { return status == bazel.TestStatus_PASSED.String() }

// attempt takes over the result of one attempt of a run of a shard.
func (b *build) attempt(id *bazel.BuildEventId_TestResultId, m *bazel.TestResult) {
	passed := m.GetStatus() == bazel.TestStatus_PASSED
	t := b.test(id.GetLabel(), passed)
	if t == nil {
		return
	}
	had := b.left
	defer func() { t.taken += had - b.left }()
	t.Attempts++
	b.isUrgent = b.isUrgent || !passed && len(t.GetLogs()) < maxLogs
	if m.GetCachedLocally() || m.GetExecutionInfo().GetCachedRemotely() {
		t.Cached++
	}
	took := m.GetTestAttemptDuration().AsDuration()
	if m.GetTestAttemptDuration() == nil {
		took = time.Duration(m.GetTestAttemptDurationMillis()) * time.Millisecond
	}
	t.Took = durationpb.New(t.GetTook().AsDuration() + took)
	if !passed && t.Details == "" {
		t.Details = b.text(m.GetStatusDetails(), maxMessage)
	}
	for _, f := range m.GetTestActionOutput() {
		if f.GetName() != "test.log" || len(t.Logs) >= maxLogs || len(f.GetUri()) > maxMessage || !b.fits(f.GetUri(), maxMessage) {
			continue
		}
		t.Logs = append(t.Logs, &historypb.Build_Log{Name: f.GetName(), Uri: f.GetUri(), Status: m.GetStatus().String()})
	}
}

// summary applies the result of a test.
func (b *build) summary(label string, m *bazel.TestSummary) {
	status := m.GetOverallStatus()
	passed := status == bazel.TestStatus_PASSED
	switch status {
	case bazel.TestStatus_NO_STATUS:
	case bazel.TestStatus_PASSED, bazel.TestStatus_FLAKY:
		b.TestsPassed++
	default:
		b.TestsFailed++
	}
	if t := b.test(label, passed); t != nil {
		b.isUrgent = b.isUrgent || !passed && t.GetStatus() != status.String()
		t.Status, t.Attempts = status.String(), max(t.GetAttempts(), m.GetTotalRunCount())
		t.Cached = max(t.GetCached(), m.GetTotalNumCached())
	}
}
