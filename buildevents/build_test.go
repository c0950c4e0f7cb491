package buildevents

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/bazel"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

func result(label string, attempt int32, status bazel.TestStatus) *bazel.BuildEvent {
	return &bazel.BuildEvent{
		Id: &bazel.BuildEventId{Id: &bazel.BuildEventId_TestResult{TestResult: &bazel.BuildEventId_TestResultId{Label: label, Attempt: attempt}}},
		Payload: &bazel.BuildEvent_TestResult{TestResult: &bazel.TestResult{Status: status, TestAttemptDurationMillis: 500, TestActionOutput: []*bazel.File{
			{Name: "test.log", File: &bazel.File_Uri{Uri: fmt.Sprintf("bytestream://h/blobs/%s/%d", label, attempt)}}, {Name: "test.xml"},
		}}},
	}
}

func summary(label string, status bazel.TestStatus) *bazel.BuildEvent {
	return &bazel.BuildEvent{
		Id:      &bazel.BuildEventId{Id: &bazel.BuildEventId_TestSummary{TestSummary: &bazel.BuildEventId_TestSummaryId{Label: label}}},
		Payload: &bazel.BuildEvent_TestSummary{TestSummary: &bazel.TestSummary{OverallStatus: status}},
	}
}

func TestBuild(t *testing.T) {
	b := resumed(nil)
	for _, e := range []*bazel.BuildEvent{
		{Payload: &bazel.BuildEvent_Started{Started: &bazel.BuildStarted{Command: "test", BuildToolVersion: "4.2.3", StartTimeMillis: 1e12}}},
		{Id: &bazel.BuildEventId{Id: &bazel.BuildEventId_Pattern{Pattern: &bazel.BuildEventId_PatternExpandedId{Pattern: []string{"//..."}}}}},
		{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{
			ExplicitCmdLine: []string{"--keep_going", "--remote_header=authorization=Bearer x", "--test_env=TOKEN=y", "--test_env=HOME", "--bes_backend=grpc://ann:pw@h:1"},
			CmdLine:         []string{"--remote_instance_name=team"},
		}}},
		{Payload: &bazel.BuildEvent_WorkspaceStatus{WorkspaceStatus: &bazel.WorkspaceStatus{Item: []*bazel.WorkspaceStatus_Item{
			{Key: "BUILD_USER", Value: "ann"}, {Key: "BUILD_HOST", Value: "desk"}, {Key: "SECRET", Value: "z"},
		}}}},
		{Payload: &bazel.BuildEvent_Progress{Progress: &bazel.Progress{Stderr: "INFO: x\n\x1b[31m\x1b[1mERROR: \x1b[0mBUILD:3 no such thing\nother\n"}}},
		target("//a:ok", true), target("//a:bad", false),
		{
			Id:      &bazel.BuildEventId{Id: &bazel.BuildEventId_TargetCompleted{TargetCompleted: &bazel.BuildEventId_TargetCompletedId{Label: "//a:win"}}},
			Payload: &bazel.BuildEvent_Aborted{Aborted: &bazel.Aborted{Reason: bazel.Aborted_SKIPPED}},
		},
		{
			Id:      &bazel.BuildEventId{Id: &bazel.BuildEventId_UnconfiguredLabel{UnconfiguredLabel: &bazel.BuildEventId_UnconfiguredLabelId{Label: "//no"}}},
			Payload: &bazel.BuildEvent_Aborted{Aborted: &bazel.Aborted{Reason: bazel.Aborted_LOADING_FAILURE, Description: "no package"}},
		},
		{
			Id:      &bazel.BuildEventId{Id: &bazel.BuildEventId_ActionCompleted{ActionCompleted: &bazel.BuildEventId_ActionCompletedId{Label: "//a:bad"}}},
			Payload: &bazel.BuildEvent_Action{Action: &bazel.ActionExecuted{Type: "CppCompile", ExitCode: 1, Stderr: &bazel.File{Name: "stderr", File: &bazel.File_Uri{Uri: "bytestream://h/blobs/x/1"}}}},
		},
		{
			Id: &bazel.BuildEventId{Id: &bazel.BuildEventId_TargetCompleted{
				TargetCompleted: &bazel.BuildEventId_TargetCompletedId{Label: "//a:ok", Aspect: "lint"},
			}},
			Payload: &bazel.BuildEvent_Completed{Completed: &bazel.TargetComplete{Success: true}},
		},
		{Payload: &bazel.BuildEvent_Action{Action: &bazel.ActionExecuted{Success: true, Type: "Listed"}}}, // --build_event_publish_all_actions
		result("//a:flaky", 1, bazel.TestStatus_FAILED), result("//a:flaky", 2, bazel.TestStatus_PASSED),
		summary("//a:flaky", bazel.TestStatus_FLAKY), summary("//a:bad_test", bazel.TestStatus_TIMEOUT), summary("//a:none", bazel.TestStatus_NO_STATUS),
		{Payload: &bazel.BuildEvent_Finished{Finished: &bazel.BuildFinished{
			ExitCode: &bazel.BuildFinished_ExitCode{Name: "BUILD_FAILURE", Code: 1}, FinishTimeMillis: 1e12 + 5000, FailureDetail: &bazel.FailureDetail{Message: "it failed"},
		}}},
	} {
		b.take(e)
	}
	const want = `command:"test" version:"4.2.3" ` +
		`options:"--keep_going" options:"--remote_header=authorization=(hidden)" options:"--test_env=TOKEN=(hidden)" options:"--test_env=HOME" options:"--bes_backend=grpc://(hidden)@h:1" ` +
		`patterns:"//..." local_user:"ann" host:"desk" started:{seconds:1000000000} finished:{seconds:1000000005} exit_code:1 exit_name:"BUILD_FAILURE" failure:"it failed" ` +
		`targets_built:1 targets_failed:1 targets_skipped:1 targets:{label:"//a:ok"} targets:{label:"//a:bad" state:FAILED} targets:{label:"//a:win" state:SKIPPED message:"skipped"} ` +
		`tests_passed:1 tests_failed:1 ` +
		`tests:{label:"//a:flaky" status:"FLAKY" attempts:2 took:{seconds:1} logs:{name:"test.log" uri:"bytestream://h/blobs///a:flaky/1" status:"FAILED"} logs:{name:"test.log" uri:"bytestream://h/blobs///a:flaky/2" status:"PASSED"}} ` +
		`tests:{label:"//a:bad_test" status:"TIMEOUT"} tests:{label:"//a:none" status:"NO_STATUS"} ` +
		`failed_actions:{label:"//a:bad" mnemonic:"CppCompile" exit_code:1 logs:{name:"stderr" uri:"bytestream://h/blobs/x/1"}} ` +
		`errors:"ERROR: BUILD:3 no such thing" errors:"//no: loading failure: no package"`
	if got := strings.ReplaceAll(fmt.Sprint(b.Build), "  ", " "); got != want {
		t.Errorf("the build is\n%s\nwant\n%s", got, want)
	}
	if b.instance != "team" || b.outcome() != historypb.Outcome_FAILED {
		t.Errorf("instance name %q, outcome %v", b.instance, b.outcome())
	}
}

// TestSecrets has options whose values, or parts of them, must not be stored.
func TestSecrets(t *testing.T) {
	for option, want := range map[string]string{
		"--oauth2_token=x":                        "--oauth2_token=(hidden)",
		"--//settings:api_token=x":                "--//settings:api_token=(hidden)",
		"--@rules//auth:client-secret=c2VjcmV0==": "--@rules//auth:client-secret=(hidden)",
		"--proxy=http://ann:p@ss@h:1/a@b":         "--proxy=http://(hidden)@h:1/a@b",
		"--remote_header=authorization=Bearer x":  "--remote_header=authorization=(hidden)",
		"--keep_going":                            "--keep_going",
		"--define=kind=token":                     "--define=kind=token",
		"--output=//a/b:c@d":                      "--output=//a/b:c@d",
	} {
		if got := withoutSecrets(option); got != want {
			t.Errorf("%s becomes %s, want %s", option, got, want)
		}
	}
}

// TestOutcome checks the stored outcome for each way in which a build ends.
func TestOutcome(t *testing.T) {
	b := resumed(nil)
	if got := b.outcome(); got != historypb.Outcome_OUTCOME_UNSPECIFIED {
		t.Errorf("before its end: %v", got)
	}
	for code, want := range map[int32]historypb.Outcome{
		0: historypb.Outcome_SUCCEEDED, 1: historypb.Outcome_FAILED, 3: historypb.Outcome_FAILED, 8: historypb.Outcome_CANCELLED,
	} {
		b.take(&bazel.BuildEvent{Payload: &bazel.BuildEvent_Finished{Finished: &bazel.BuildFinished{ExitCode: &bazel.BuildFinished_ExitCode{Code: code}}}})
		if got := b.outcome(); got != want {
			t.Errorf("exit code %d: %v, want %v", code, got, want)
		}
	}
}

// TestCachedTests counts attempts that were taken from a cache, here or there, or are said to be at
// the end.
func TestCachedTests(t *testing.T) {
	b := resumed(nil)
	local, remote := result("//a:b", 1, bazel.TestStatus_PASSED), result("//a:b", 2, bazel.TestStatus_PASSED)
	local.GetTestResult().CachedLocally = true
	remote.GetTestResult().ExecutionInfo = &bazel.TestResult_ExecutionInfo{CachedRemotely: true}
	for i, e := range []*bazel.BuildEvent{local, remote, result("//a:b", 3, bazel.TestStatus_PASSED)} {
		b.take(e)
		if got, want := b.Tests[0].GetCached(), min(int32(i)+1, 2); got != want {
			t.Errorf("after attempt %d: %d are cached, want %d", i+1, got, want)
		}
	}
	end := summary("//a:b", bazel.TestStatus_PASSED)
	end.GetTestSummary().TotalNumCached = 7
	b.take(end)
	if got := b.Tests[0].GetCached(); got != 7 {
		t.Errorf("in the end %d are cached, want 7", got)
	}
}

// TestLargeBuild has more of everything than is stored. Failures must replace successes, and all
// must be counted.
func TestLargeBuild(t *testing.T) {
	long := strings.Repeat("x", 5000)
	b := resumed(nil)
	b.take(&bazel.BuildEvent{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{ExplicitCmdLine: strings.Split(strings.Repeat("--x="+long+" ", 50), " ")}}})
	for i := range 1000 {
		label := fmt.Sprintf("//a/%s:%d", strings.Repeat("d", i%300), i)
		b.take(target(label, true))
		b.take(result(label, 1, bazel.TestStatus_PASSED))
		b.take(summary(label, bazel.TestStatus_PASSED))
		b.take(&bazel.BuildEvent{Payload: &bazel.BuildEvent_Progress{Progress: &bazel.Progress{Stderr: "ERROR: " + long + "\n"}}})
		b.take(&bazel.BuildEvent{Payload: &bazel.BuildEvent_Action{Action: &bazel.ActionExecuted{ExitCode: 1, FailureDetail: &bazel.FailureDetail{Message: long}}}})
	}
	b.take(target("//the:failure", false))
	b.take(result("//the:test", 1, bazel.TestStatus_FAILED))
	b.take(summary("//the:test", bazel.TestStatus_FAILED))
	if n := proto.Size(b.Build); n > maxBuild+maxBuild/4 || !b.GetIncomplete() {
		t.Errorf("it has %d bytes, incomplete: %t", n, b.GetIncomplete())
	}
	if b.GetTargetsBuilt() != 1000 || b.GetTargetsFailed() != 1 || b.GetTestsPassed() != 1000 || b.GetTestsFailed() != 1 {
		t.Errorf("it counts %d, %d, %d, %d", b.GetTargetsBuilt(), b.GetTargetsFailed(), b.GetTestsPassed(), b.GetTestsFailed())
	}
	all := fmt.Sprint(b.Build)
	if !strings.Contains(all, `label:"//the:failure"`) || !strings.Contains(all, `label:"//the:test"`) {
		t.Errorf("what failed is not listed")
	}
}

// TestRoomThatIsGivenBack has tests that make room for others give back no more than they have
// taken, however often: the bound of a build holds.
func TestRoomThatIsGivenBack(t *testing.T) {
	odd := bazel.TestStatus(1 << 30) // many digits
	b := resumed(nil)
	for i := range 5 * maxBuild {
		label := fmt.Sprint(i)
		b.take(&bazel.BuildEvent{
			Id: &bazel.BuildEventId{Id: &bazel.BuildEventId_TestResult{TestResult: &bazel.BuildEventId_TestResultId{Label: label}}},
			Payload: &bazel.BuildEvent_TestResult{TestResult: &bazel.TestResult{
				Status: odd, TestActionOutput: slices.Repeat([]*bazel.File{{Name: "test.log"}}, maxLogs),
			}},
		})
		b.take(summary(label, bazel.TestStatus_PASSED))
		if i%10 == 0 {
			b.take(&bazel.BuildEvent{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{ExplicitCmdLine: []string{"--x"}}}})
		}
	}
	if n := proto.Size(b.Build); n > 2*maxBuild {
		t.Errorf("the build has %d bytes", n)
	}
}
