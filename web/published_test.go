package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// TestPublishedBuild shows the build events of an invocation, without actions and with them, and
// none that other users published under its name.
func TestPublishedBuild(t *testing.T) {
	b := newBrowser(t, false)
	hash := strings.Repeat("ab", 32)
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	mine := &historypb.Record{
		Invocation: "build-1", User: "ann", Outcome: historypb.Outcome_FAILED, Ended: timestamppb.New(start.Add(time.Minute)),
		Build: &historypb.Build{
			Command: "test", Options: []string{"--config=<x>"}, Patterns: []string{"//..."}, LocalUser: "ann", Host: "desk",
			Started: timestamppb.New(start), Finished: timestamppb.New(start.Add(90 * time.Second)), ExitCode: 3, ExitName: "TESTS_FAILED",
			TargetsBuilt: 300, TargetsFailed: 1, TargetsSkipped: 1, TestsPassed: 500, TestsFailed: 1, Ended: true, Incomplete: true, TooLarge: 2,
			Targets: []*historypb.Build_Target{
				{Label: "//a:ok"},
				{Label: "//a:win", State: historypb.Build_SKIPPED, Message: "skipped"},
				{Label: "//a:bad", State: historypb.Build_FAILED, Message: "<b>it</b>"},
			},
			Tests: []*historypb.Build_Test{
				{Label: "//a:passes", Status: "PASSED", Attempts: 1, Cached: 1},
				{Label: "//a:fails", Status: "FAILED", Attempts: 3, Took: durationpb.New(4 * time.Second), Logs: []*historypb.Build_Log{
					{Name: "test.log", Uri: "bytestream://farm:8980/team/a/blobs/" + hash + "/12", Status: "FAILED"},
					{Name: "elsewhere.log", Uri: "javascript:alert(1)"},
				}},
			},
			FailedActions: []*historypb.Build_FailedAction{{
				Label: "//a:bad", Mnemonic: "CppCompile", ExitCode: 1,
				Logs: []*historypb.Build_Log{{Name: "stderr", Uri: "bytestream://farm/blobs/blake3/" + hash + "/7"}},
			}},
			Errors: []string{"ERROR: <script>"},
		},
	}
	b.scheduler.ended = []*historypb.Record{mine}
	page := b.get("/builds/build-1", 200)
	expect(t, page, "Failed: exit code 3, tests failed", "took 1m30s", "by ann on desk", `bazel test <span class="whole">&#39;--config=&lt;x&gt;&#39;</span> //...`, "ERROR: &lt;script&gt;",
		"300 built, 1 failed, 1 skipped", "&lt;b&gt;it&lt;/b&gt;", "500 passed, 1 did not", "and 499 more", "This page is incomplete", "2 events were too large",
		`href="/blobs/sha256/`+hash+`/12?instance=team%2Fa&amp;name=test.log" download>test.log (failed)`, "elsewhere.log",
		`href="/blobs/blake3/`+hash+`/7?instance=&amp;name=stderr" download>stderr`)
	order := []string{"ERROR:", "Actions that failed the build", "//a:bad</a></th>", "//a:win</a></th>", "//a:ok", "//a:fails</a></th>", "//a:passes</a></th>"}
	for i := 1; i < len(order); i++ {
		if before := strings.Index(page, order[i-1]); before < 0 || before > strings.Index(page, order[i]) {
			t.Errorf("%q is not before %q", order[i-1], order[i])
		}
	}
	if strings.Contains(page, "javascript:") || strings.Contains(page, "data-live") {
		t.Error("a client can make links, or a build that has ended is followed")
	}

	forged := &historypb.Record{
		Invocation: "build-1", User: "eve", Ended: timestamppb.New(start.Add(time.Hour)), Build: &historypb.Build{Command: "forged"},
	}
	mine.Build.FailedActions = append(mine.Build.FailedActions, &historypb.Build_FailedAction{Label: "//a:b", Mnemonic: "CppCompile", Message: "told twice"})
	b.scheduler.ended = []*historypb.Record{mine}
	expect(t, b.get("/builds/build-1", 200), "told twice")
	action := failed(b)
	action.User = "ann"
	b.scheduler.ended = []*historypb.Record{forged, mine, action}
	page = b.get("/builds/build-1", 200)
	if strings.Contains(page, "told twice") {
		t.Error("an action that has a record is listed twice")
	}
	expect(t, page, "tests failed", "<dt>Actions</dt><dd>1</dd>", `href="/operations/1234"`)
	if strings.Contains(page, "forged") {
		t.Error("eve's events are on ann's page")
	}
	mine.Build.FailedActions = append(mine.Build.FailedActions, &historypb.Build_FailedAction{Label: "//a:b", Mnemonic: "CppCompile", Message: "ran locally"})
	b.scheduler.ended = []*historypb.Record{mine, action}
	page = b.get("/builds/build-1", 200)
	expect(t, page, "ran locally")
	if strings.Contains(page, "told twice") {
		t.Error("an action is listed twice because another one of its target failed")
	}
	mine.Build.FailedActions = nil
	for i := range maxNamed + 1 {
		another, target := failed(b), fmt.Sprintf("//many:%d", i)
		another.Operation, another.Target, another.User = target, target, "ann"
		mine.Build.FailedActions = append(mine.Build.FailedActions, &historypb.Build_FailedAction{Label: target, Mnemonic: "CppCompile", Message: "told twice"})
		b.scheduler.ended = append(b.scheduler.ended, another)
	}
	if strings.Contains(b.get("/builds/build-1", 200), "told twice") {
		t.Error("actions with records are listed as if they had none, because the list of records is limited")
	}

	goesOn := &historypb.Record{Invocation: "build-2", Ended: timestamppb.Now(), Build: &historypb.Build{Command: "build"}}
	b.scheduler.ended = []*historypb.Record{goesOn}
	expect(t, b.get("/builds/build-2", 200), "Not ended, or its last event is missing", "data-live")
}

// TestBuildsOfHistory lists builds instead of operations.
func TestBuildsOfHistory(t *testing.T) {
	b := newBrowser(t, false)
	expect(t, b.get("/history?show=builds", 200), "No build was published", "--bes_backend")
	expect(t, b.get("/history?show=builds&q=user%3Dann", 200), "No matching build is known", `href="/history?q=user%3Dann&amp;show=recent">Search operations</a>`)
	expect(t, b.get("/history?show=failed&q=//only:built", 200), `href="/history?q=%2F%2Fonly%3Abuilt&amp;show=builds">Search builds</a>`)
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	over := &historypb.Record{
		Invocation: "build-1", Outcome: historypb.Outcome_FAILED, Ended: timestamppb.New(start.Add(time.Hour)), Build: &historypb.Build{
			Command: "test", Patterns: []string{"//<a>", "//b", "//c", "//d", "//e"}, LocalUser: "ann", Host: "desk", ExitCode: 3, ExitName: "TESTS_FAILED",
			Started: timestamppb.New(start), Finished: timestamppb.New(start.Add(90 * time.Second)), TargetsBuilt: 30, TestsPassed: 4, TestsFailed: 2,
		},
	}
	goesOn := &historypb.Record{Invocation: "build-2", User: "known", Ended: timestamppb.Now(), Build: &historypb.Build{LocalUser: "claimed"}}
	b.scheduler.ended = []*historypb.Record{goesOn, over, failed(b)}
	page := b.get("/history?show=builds&q=command%3Dtest", 200)
	expect(t, page, `href="/builds/build-1">test //&lt;a&gt; //b //c and 2 more</a>`, `<span class="state failed">tests failed</span>`,
		"<td>30 built</td><td>4 passed, 2 failed</td>", "1m30s", "<td>ann</td><td>desk</td>",
		`href="/builds/build-2">build</a>`, `<span class="state executing">goes on</span>`, "<td>known</td>")
	if strings.Contains(page, "claimed") || strings.Contains(page, "//a:b") {
		t.Error("a user who is known is shown as he says he is, or operations are shown")
	}
	if told := b.scheduler.told; told[len(told)-1] != `records map[command:test] "" [] false` {
		t.Errorf("asked %q", told)
	}
}
