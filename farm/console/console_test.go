package console

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/names"
)

// lines returns what is written, less the times.
func lines(t *testing.T, b *bytes.Buffer) (list []string) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, err := time.Parse(time.TimeOnly, at); err != nil {
			t.Errorf("%q does not begin with a time", line)
		}
		list = append(list, strings.Join(strings.Fields(rest), " "))
	}
	return list
}

// ranOn is an action as a worker logs it.
func ranOn(target, outcome string, more ...zap.Field) []zap.Field {
	return append([]zap.Field{
		zap.String(names.TargetField, target), zap.String(names.MnemonicField, "CppCompile"), zap.String(names.ActionField, strings.Repeat("ab", 32)+"/7"),
		zap.String(names.OutcomeField, outcome), zap.Int32(names.ExitCodeField, 3), zap.Duration("accept", 2*time.Millisecond),
		zap.Duration("mount", 3*time.Millisecond), zap.Duration("execute", 1230*time.Millisecond),
		zap.Int64("files", 10), zap.Int64("foreseen", 3), zap.Int64("local", 6), zap.Int64("late", 1),
	}, more...)
}

func TestActions(t *testing.T) {
	var b bytes.Buffer
	log := zap.New(New(&b, Options{}))
	log.Info(names.ActionFinished, ranOn("//a:b", "ok")...)
	log.Info(names.ActionFinished, ranOn("//a:b", "exit_code")...)
	log.Info(names.ActionFinished, ranOn("", "out_of_memory")...)
	log.Info(names.ActionFinished, ranOn("//a:b", "Canceled")...)
	log.Info(names.ActionFinished, ranOn("//a:b", "NotFound", zap.String(names.ErrorField, "blob\n\x1b[2J is away"))...)
	operation := func(outcome string, fields ...zap.Field) {
		log.Info(names.OperationFinished, append(fields, zap.String(names.TargetField, "//a:b"), zap.String(names.OutcomeField, outcome))...)
	}
	operation("cached")
	operation("failed", zap.Int32(names.ExitCodeField, 4), zap.String(names.WorkerField, "data=/d,host=b-7"), zap.String(names.PositionField, "1"),
		zap.Duration(names.QueuedField, 2*time.Second), zap.Duration(names.RanField, time.Minute))
	for i, want := range []string{
		"ok //a:b CppCompile 1.23s fetch 5ms foreseen 3/4",
		"failed //a:b CppCompile 1.23s exit code 3 fetch 5ms foreseen 3/4",
		"failed abababababab CppCompile 1.23s out of memory fetch 5ms foreseen 3/4",
		"cancelled //a:b CppCompile 1.23s fetch 5ms foreseen 3/4",
		"failed //a:b CppCompile 1.23s blob[U+000A][U+001B][2J is away fetch 5m…",
		"cached //a:b",
		"failed //a:b 1m0s exit code 4 waited 2s b-7",
	} {
		if got := lines(t, &b)[i]; got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}

// TestColumns has names of any length. No line may be wider than the terminal, and the important
// parts must be shown.
func TestColumns(t *testing.T) {
	for _, columns := range []int{1, 40, 80, 120, 300} {
		var b bytes.Buffer
		log := zap.New(New(&b, Options{Columns: func() int { return columns }}))
		target := "//" + strings.Repeat("long/", 50) + ":ünd"
		log.Info(names.ActionFinished, ranOn(target, "SomethingElse", zap.String(names.ErrorField, strings.Repeat("w", 500)))...)
		line := strings.TrimSuffix(b.String(), "\n")
		if n := utf8.RuneCountInString(line); n > min(columns, MostColumns) || columns >= 80 && n != min(columns, MostColumns) {
			t.Errorf("in %d columns the line has %d: %q", columns, n, line)
		}
		b.Reset()
		log.Info(names.ActionFinished, ranOn("//"+strings.Repeat("建設/", 50), "ok")...)
		if n := printable.Columns(strings.TrimSuffix(b.String(), "\n")); n > min(columns, MostColumns) {
			t.Errorf("wide characters in %d columns: the line takes %d: %q", columns, n, b.String())
		}
		if columns >= 80 && (!strings.Contains(line, ":ünd ") || !strings.Contains(line, "1.23s  www")) {
			t.Errorf("in %d columns the line lacks something: %q", columns, line)
		}
	}
}

// TestOneLineForEach has a scheduler and a worker log together: an action has a line of either, and
// no ending is missing.
func TestOneLineForEach(t *testing.T) {
	type logged func(*zap.Logger)
	action := zap.String(names.ActionField, "ab/7")
	ran := func(worker, outcome string) logged {
		return func(log *zap.Logger) {
			machine, position, _ := strings.Cut(worker, " ")
			n, err := strconv.Atoi(position)
			if err != nil {
				t.Fatal(err)
			}
			log.With(zap.Int(names.PositionField, n)).Info(names.ActionFinished, ranOn("//a", outcome, action, zap.String(names.WorkerField, machine))...)
		}
	}
	operation := func(worker, outcome string, fields ...zap.Field) logged {
		return func(log *zap.Logger) {
			fields = append(fields, zap.String(names.TargetField, "//a"), action, zap.String(names.OutcomeField, outcome))
			if machine, position, isRun := strings.Cut(worker, " "); isRun {
				fields = append(fields, zap.String(names.WorkerField, machine), zap.String(names.PositionField, position))
			}
			log.Info(names.OperationFinished, fields...)
		}
	}
	ends := func(code codes.Code, why string) []zap.Field {
		return []zap.Field{zap.Stringer(names.CodeField, code), zap.String(names.ErrorField, why)}
	}
	const own, second, other = "host=a 0", "host=a 1", "host=b 0"
	for why, c := range map[string]struct {
		logged []logged
		want   []string
	}{
		"ran":       {[]logged{ran(own, "ok"), operation(own, "succeeded")}, []string{"ok"}},
		"failed":    {[]logged{ran(own, "exit_code"), operation(own, "failed")}, []string{"failed"}},
		"not begun": {[]logged{ran(own, "NotFound"), operation(own, "error", ends(codes.NotFound, "gone")...)}, []string{"failed"}},
		"reused":    {[]logged{ran(own, "ok"), operation(own, "cached")}, []string{"ok"}},
		"shared":    {[]logged{ran(own, "ok"), operation(own, "succeeded"), operation(own, "succeeded")}, []string{"ok"}},
		"cached":    {[]logged{ran(own, "ok"), operation(own, "succeeded"), operation("", "cached")}, []string{"ok", "cached"}},
		"elsewhere": {[]logged{operation(other, "failed"), operation(other, "succeeded")}, []string{"failed", "ok"}},
		"twice": {
			[]logged{ran(own, "ok"), ran(second, "exit_code"), operation(own, "succeeded"), operation(second, "failed")},
			[]string{"ok", "failed"},
		},
		"both":     {[]logged{ran(own, "ok"), operation(own, "succeeded"), operation(other, "succeeded")}, []string{"ok", "ok"}},
		"given up": {[]logged{operation(own, "error", ends(codes.Internal, "was given up")...)}, []string{"failed was given up"}},
		"given up, and ran before": {
			[]logged{ran(own, "ok"), operation(own, "succeeded"), operation(own, "error", ends(codes.Internal, "was given up")...)},
			[]string{"ok", "failed was given up"},
		},
		"killed":    {[]logged{operation(own, "error", ends(codes.Aborted, "hangs")...), ran(own, "Canceled")}, []string{"failed hangs"}},
		"cancelled": {[]logged{operation(own, "cancelled"), ran(own, "Canceled")}, []string{"cancelled"}},
		"moved":     {[]logged{ran(own, "Canceled"), operation(other, "succeeded")}, []string{"cancelled", "ok"}},
	} {
		var b bytes.Buffer
		screen := New(&b, Options{IsWhole: true})
		for _, log := range c.logged {
			log(zap.New(screen))
		}
		got := lines(t, &b)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", why, got, c.want)
			continue
		}
		failures := 0
		for i, line := range got {
			word, said, _ := strings.Cut(c.want[i], " ")
			if !strings.HasPrefix(line, word+" ") || !strings.Contains(line, said) {
				t.Errorf("%s: line %d is %q, want %q", why, i, line, c.want[i])
			}
			if word == failed {
				failures++
			}
		}
		if sum := screen.(*core).sum; sum.all != len(c.want) || sum.failed != failures {
			t.Errorf("%s: %+v are summed up", why, sum)
		}
	}
}

// TestPairsAreBounded has more workers come than are kept.
func TestPairsAreBounded(t *testing.T) {
	p := pairs{}
	for i := range 2*mostPairs + 1 {
		v := values{names.WorkerField: strconv.Itoa(i), names.ActionField: "ab/7", names.OutcomeField: "ok"}
		if p.isSecond(v, false) || len(p) > mostPairs {
			t.Fatalf("worker %d: %d are kept", i, len(p))
		}
	}
}

func TestOtherLines(t *testing.T) {
	var b bytes.Buffer
	log := zap.New(New(&b, Options{Level: zapcore.WarnLevel})).With(zap.String("of", "all"))
	log.Info("not shown")
	log.Warn("something is wrong", zap.Any("worker", map[string]string{"host": "b-7"}), zap.String("name", "a b"), zap.String("evil", "\x1b[2J"),
		zap.Duration("for", 90*time.Second), zap.Strings("list", []string{"a"}))
	log.Error("worse", zap.Error(errors.New("it broke")))
	want := []string{
		`WARN something is wrong of=all worker=host=b-7 name="a b" evil="\x1b[2J" for=1m30s list=[a]`,
		`ERROR worse of=all error=it broke`,
	}
	got := lines(t, &b)
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if got[i] != strings.ReplaceAll(want[i], "worker=host=b-7", `worker="host=b-7"`) {
			t.Errorf("line %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestColours(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		log := zap.New(New(&b, Options{Colour: colour}))
		log.Info(names.ActionFinished, ranOn("//a:b", "exit_code")...)
		log.Warn("hm", zap.Int("n", 1))
		if got := strings.Count(b.String(), "\x1b["); got > 0 != colour || strings.Count(b.String(), "\x1b[0m")*2 != got {
			t.Errorf("with colours %t: %q", colour, b.String())
		}
	}
}

func TestSumOfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := zap.New(New(&b, Options{}))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if b.Len() > 0 {
			t.Errorf("nothing has run: %q", b.String())
		}
		log.Info(names.ActionFinished, ranOn("//a:b", "ok")...)
		time.Sleep(30 * time.Second)
		log.Info(names.ActionFinished, ranOn("//a:b", "exit_code")...)
		log.Info(names.OperationFinished, zap.String(names.OutcomeField, "cached"))
		time.Sleep(31 * time.Second)
		log.Info(names.OperationFinished, zap.String(names.OutcomeField, "cached"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		var sums []string
		for _, line := range lines(t, &b) {
			if strings.HasPrefix(line, "INFO") {
				sums = append(sums, line)
			}
		}
		want := []string{"INFO 3 actions in a minute: 1 failed, 1 cached; they ran for 1.23s on average", "INFO 1 action in a minute: 0 failed, 1 cached"}
		if strings.Join(sums, "|") != strings.Join(want, "|") {
			t.Errorf("%q, want %q", sums, want)
		}
	})
}
