package core

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

var update = flag.Bool("update", false, "rewrite the expected output of scripts and golden files")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScripts runs the histories of testdata/*.txt. A line that starts with ">" is an event with
// its time. The lines after it, up to an empty line, a comment or the next event, are the answer of
// State.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			diffLines(t, file, got, string(want))
		})
	}
}

func diffLines(t *testing.T, file, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("%s:%d:\n got: %s\nwant: %s", file, i+1, a, b)
		}
	}
}

func runScript(t *testing.T, text string) string {
	var out strings.Builder
	h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
	skip := false
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, ">"):
			fmt.Fprintln(&out, line)
			out.WriteString(h.run(strings.Fields(line[1:])))
			skip = true
		case line == "" || line[0] == '#':
			fmt.Fprintln(&out, line)
			skip = false
		case !skip:
			t.Fatalf("neither an event nor its output: %s", line)
		}
	}
	return out.String()
}

// A history feeds scripted events to a State and prints what comes out.
type history struct {
	t     *testing.T
	cfg   tuning.Config
	state *State
	out   strings.Builder
	next  time.Time
	// calls tell whose a call is, actions which name a digest has.
	calls   map[uint64]string
	actions map[string]string
	call    uint64
	lastOf  map[string]uint64
	sizes   *sizeclass.Analyzer
	// seen, if not nil, gets each event and the answer of State.
	seen func(time.Time, event.Event, event.Out)
}

func (h *history) run(words []string) string {
	h.out.Reset()
	if words[0] == "config" {
		for _, w := range words[1:] {
			h.configure(w)
		}
		return ""
	}
	if h.state == nil {
		var err error
		if h.state, err = NewState(h.cfg); err != nil {
			h.t.Fatal(err)
		}
		h.lastOf = map[string]uint64{}
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		h.t.Fatal(err)
	}
	h.event(epoch.Add(at), words[1], words[2:])
	return h.named(h.out.String())
}

func (h *history) configure(word string) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "level":
		h.level(value)
		return
	case "sizes":
		h.declare(value)
		return
	case "label": // NAME:PROPERTIES
		label, properties, _ := strings.Cut(value, ":")
		l := quota.Label{Name: label, Properties: map[string]string{}}
		for _, p := range parsePlatform(properties).Properties {
			l.Properties[p.Name] = p.Value
		}
		h.cfg.Quotas.Labels = append(h.cfg.Quotas.Labels, l)
		return
	case "cohort": // NAME:LABEL,…[:UNIT]
		words := strings.Split(value, ":")
		c := quota.Cohort{Name: words[0], Labels: strings.Split(words[1], ",")}
		if len(words) > 2 {
			c.Unit = quota.Unit(words[2])
		}
		h.cfg.Quotas.Cohorts = append(h.cfg.Quotas.Cohorts, c)
		return
	}
	f := reflect.ValueOf(&h.cfg).Elem().FieldByName(name)
	if d, err := time.ParseDuration(value); err == nil {
		f.SetInt(int64(d))
	} else if n, err := strconv.Atoi(value); err == nil {
		f.SetInt(int64(n))
	} else if b, err := strconv.ParseBool(value); err == nil {
		f.SetBool(b)
	} else if f.Kind() == reflect.String {
		f.SetString(value)
	} else {
		h.t.Fatalf("config %s", word)
	}
}

// level adds a level to the only configuration of queues; "level=none" is one that
// has none. The rest is "KEY[:NAME][,sticky=TIME][,BRANCH*WEIGHT…]".
func (h *history) level(value string) {
	if len(h.cfg.Queues) == 0 {
		h.cfg.Queues = make([]levels.QueueConfig, 1)
	}
	if value == "none" {
		return
	}
	words := strings.Split(value, ",")
	l := levels.Level{Weights: map[string]float64{}}
	key, name, _ := strings.Cut(words[0], ":")
	l.Key, l.Name = levels.Key(key), name
	for _, word := range words[1:] {
		if t, ok := strings.CutPrefix(word, "sticky="); ok {
			l.Stickiness, _ = time.ParseDuration(t)
			continue
		}
		branch, weight, _ := strings.Cut(word, "*")
		l.Weights[branch], _ = strconv.ParseFloat(weight, 64)
	}
	h.cfg.Queues[0].Levels = append(h.cfg.Queues[0].Levels, l)
}

// declare declares classes of workers without properties: "CLASS,…[,startup=TIME][,patience=TIME]".
func (h *history) declare(value string) {
	var c tuning.Sizes
	for word := range strings.SplitSeq(value, ",") {
		if t, ok := strings.CutPrefix(word, "patience="); ok {
			c.Patience, _ = time.ParseDuration(t)
		} else if t, ok := strings.CutPrefix(word, "startup="); ok {
			c.Startup, _ = time.ParseDuration(t)
		} else {
			c.Classes = append(c.Classes, uint32(h.number(word)))
		}
	}
	h.cfg.Sizes = append(h.cfg.Sizes, c)
}

// event carries out a line: an event of State, or a question.
func (h *history) event(now time.Time, verb string, args []string) {
	if e := h.parse(verb, args); e != nil {
		h.step(now, e)
	} else {
		h.ask(now, verb, args)
	}
	if problem := h.state.Check(); problem != "" {
		h.t.Fatalf("after %s %v at %s: %s", verb, args, now.Sub(epoch), problem)
	}
}

// step tells State of an event, and prints what it answers.
func (h *history) step(now time.Time, e event.Event) event.Out {
	out := h.state.Step(now, e)
	if h.seen != nil {
		h.seen(now, e, out)
	}
	attach, attached := e.(event.Attach)
	_, kill := e.(Kill)
	switch {
	case errors.Is(out.Err, event.ErrUnknown):
		fmt.Fprintf(&h.out, "unknown\n")
	case out.Err != nil:
		fmt.Fprintf(&h.out, "refused: %v\n", out.Err)
	case attached:
		st, _ := h.state.View().Operation(attach.Name)
		fmt.Fprintf(&h.out, "attached: %s\n", h.status(st))
	case kill:
		fmt.Fprintf(&h.out, "killed %d\n", out.Killed)
	}
	h.print(out)
	return out
}

// parse reads an event; nil: the line is none.
func (h *history) parse(verb string, args []string) event.Event {
	switch verb {
	case "submit":
		return event.Submit{Operation: h.operation(args)}
	case "attach":
		return event.Attach{Name: args[0]}
	case "detach":
		return event.Detach{Name: args[0], Now: len(args) > 1 && args[1] == "now"}
	case "cancel":
		return event.Cancel{Name: args[0]}
	case "kill":
		return Kill{Names: strings.Split(args[0], ","), Reason: "out of paper"}
	case "sync":
		return h.report(args)
	case "settle":
		return event.Settle{}
	case "hangup":
		return event.Hangup{Worker: args[0], Call: h.lastOf[args[0]]}
	case "disconnect":
		return event.Disconnect{Connection: h.number(args[0])}
	case "drain":
		return Drain{Record: drain.Record{Pattern: h.pattern(args[0])}}
	case "undrain":
		return Undrain{Pattern: h.pattern(args[0])}
	case "quota":
		return h.quota(args)
	case "tick":
		return event.Tick{}
	}
	return nil
}

// ask carries out what is no event.
func (h *history) ask(now time.Time, verb string, args []string) {
	switch verb {
	case "quotas":
		h.quotas()
	case "run":
		// Ticks at each time that State asks for, up to now.
		for !h.next.IsZero() && !h.next.After(now) {
			fmt.Fprintf(&h.out, "at %s\n", h.next.Sub(epoch))
			h.step(h.next, event.Tick{})
		}
	case "restart": // "held": the actions of workers are remembered
		held := h.state.View().Held(now, 100)
		slices.SortFunc(held, func(a, b event.Held) int { return strings.Compare(a.Name, b.Name) })
		h.state, _ = NewState(h.cfg)
		h.next = time.Time{}
		for _, one := range held[:len(held)*len(args)] {
			h.step(now, event.Restore{Held: one})
		}
	case "alike":
		fmt.Fprintf(&h.out, "%q\n", h.state.View().Circumstances(h.operation(args), 3))
	case "queues":
		queues := queuesOf(h.state, 0)
		for _, q := range queues {
			fmt.Fprintf(&h.out, "class %d: %d workers, %d queued", q.SizeClass, q.Workers.All, q.Queued)
			if q.Why != "" {
				fmt.Fprintf(&h.out, ": %s", q.Why)
			}
			fmt.Fprintln(&h.out)
		}
	case "learned":
		h.learned(args)
	case "counts":
		fmt.Fprintf(&h.out, "%+v\n", h.state.View().Counts())
	case "tally":
		fmt.Fprintf(&h.out, "%+v\n", h.state.View().Tally())
	default:
		h.t.Fatalf("unknown event %q", verb)
	}
}

// quota reads "put INSTANCE COHORT [min=N] [max=N] [preempt]" or "delete INSTANCE COHORT".
func (h *history) quota(args []string) event.Event {
	k := quota.Key{Cohort: args[2], Instance: args[1]}
	if args[0] == "delete" {
		return DeleteQuota{Key: k}
	}
	e := PutQuota{Record: quota.Record{Key: k}}
	for _, a := range args[3:] {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "min":
			e.Min, _ = strconv.ParseInt(value, 10, 64)
		case "max":
			e.Max, _ = strconv.ParseInt(value, 10, 64)
		case "preempt":
			e.Preempt = true
		}
	}
	return e
}

func (h *history) quotas() {
	for _, c := range h.state.View().Cohorts() {
		fmt.Fprintf(&h.out, "%s: %d of %d used, %d guaranteed, %d stopped\n", c.Name, c.Used,
			c.Capacity, c.Minimums, c.Preemptions)
		for _, u := range c.Uses {
			fmt.Fprintf(&h.out, "  %q uses %d of %d to %d, %d wait\n", u.Instance, u.Used, u.Min, u.Max, u.Waiting)
		}
	}
	queues := queuesOf(h.state, 100)
	for _, q := range queues {
		for _, b := range q.Root.Children {
			if b.Why != "" {
				fmt.Fprintf(&h.out, "%q in class %d is %s\n", b.Key, q.SizeClass, b.Why)
			}
		}
	}
}

func (h *history) pattern(s string) pattern.Pattern {
	p, err := pattern.Parse(s)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *history) number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *history) digest(name string) digest.Digest {
	d := digest.Of(digest.SHA256, []byte(name))
	h.actions[d.String()] = name
	return d
}

// named replaces digests by the names that the script has for them.
func (h *history) named(s string) string {
	for d, name := range h.actions {
		s = strings.ReplaceAll(s, d, name)
	}
	return s
}

// operation reads "NAME ACTION [option…]".
func (h *history) operation(args []string) *request.Operation {
	op := &request.Operation{Name: args[0], Digest: h.digest(args[1]), Action: &repb.Action{}}
	for _, a := range args[2:] {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "instance":
			op.Instance = value
		case "platform":
			op.Platform = request.NewPlatform(parsePlatform(value))
		case "private":
			op.Private = true
		case "client":
			op.Client = value
		case "user":
			op.User = value
		case "priority":
			n, _ := strconv.Atoi(value)
			op.Priority = int32(n)
		case "expected":
			op.Expected, _ = time.ParseDuration(value)
		case "size": // CLASS,TIMEOUT[,EXPECTED][,hedge] or learned
			if value == "learned" {
				h.choose(op)
				continue
			}
			words := append(strings.Split(value, ","), "", "")
			op.Size = request.Size{Class: uint32(h.number(words[0])), Reason: "guess"}
			op.Size.Timeout, _ = time.ParseDuration(words[1])
			op.Size.Expected, _ = time.ParseDuration(words[2])
			op.Size.Hedge = slices.Contains(words, "hedge")
		case "build":
			op.Request.Correlated = value
		case "invocation":
			op.Request.ToolInvocation = value
		default:
			h.t.Fatalf("submit: %s", a)
		}
	}
	return op
}

// learned has the analyzer know of a run: "ACTION class=CLASS took=TIME cpu=TIME".
func (h *history) learned(args []string) {
	r, class := sizeclass.Run{}, uint32(0)
	for _, a := range args[1:] {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "class":
			class = uint32(h.number(value))
		case "took":
			r.Duration, _ = time.ParseDuration(value)
		case "cpu":
			r.CPU, _ = time.ParseDuration(value)
		}
	}
	r.CPUs = float64(class)
	_, learner := h.analyze(args[0]).Select(conditions([]sizeclass.Class{{Size: class}}))
	h.sizes.Learn(h.t.Context(), learner.Succeeded(r))
}

// choose submits an operation to the class that the analyzer chooses.
func (h *history) choose(op *request.Operation) {
	var classes []sizeclass.Class
	for _, c := range h.state.View().SizeClasses(op) {
		classes = append(classes, sizeclass.Class(c))
	}
	choice, _ := h.analyze(h.actions[op.Digest.String()]).Select(conditions(classes))
	op.Size = request.Size{Class: choice.Class, Expected: choice.Expected, Reason: choice.Reason}
	if choice.Timeout < time.Hour {
		op.Size.Timeout = choice.Timeout
	}
	for _, c := range classes {
		fmt.Fprintf(&h.out, "class %d: wait %s\n", c.Size, c.Wait)
	}
}

func (h *history) analyze(action string) *sizeclass.Selector {
	if h.sizes == nil {
		h.sizes = must(sizeclass.NewAnalyzer(sizeStore{}, sizeclass.Options{}))
	}
	d := h.digest(action)
	return h.sizes.Analyze(h.t.Context(), sizeclass.Action{Digest: d, Reduced: d, Timeout: time.Hour})
}

// report reads "WORKER idle|executing|completed [ACTION] [option…]".
func (h *history) report(args []string) *event.Report {
	h.call++
	h.calls[h.call] = args[0]
	h.lastOf[args[0]] = h.call
	r := &event.Report{Call: h.call, Worker: args[0], ID: map[string]string{"name": args[0]}}
	rest := args[2:]
	switch args[1] {
	case "idle":
		r.Doing = event.Idle
	case "executing":
		r.Doing, r.Action, rest = event.Executing, h.digest(rest[0]), rest[1:]
	case "completed":
		r.Doing, r.Action, rest = event.Completed, h.digest(rest[0]), rest[1:]
		r.Response = &repb.ExecuteResponse{Result: &repb.ActionResult{}}
	default:
		h.t.Fatalf("sync: %s", args[1])
	}
	for _, a := range rest {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "prefix":
			r.Prefix = value
		case "platform":
			r.Platform = request.NewOffer(parsePlatform(value), r.Platform.Required(), r.Platform.Implied())
		case "require":
			r.Platform = request.NewOffer(r.Platform.Proto(), parsePlatform(value), r.Platform.Implied())
		case "implied":
			r.Platform = request.NewOffer(r.Platform.Proto(), r.Platform.Required(), parsePlatform(value))
		case "running":
			r.Stage = event.Running
		case "class":
			r.SizeClass = uint32(h.number(value))
		case "drain":
			r.PreferIdle = true
		case "uploading":
			r.Stage = event.Uploading
		case "instance":
			r.Instance, r.Named = value, true
		case "boot":
			r.Boot = value
		case "at":
			r.Address = value
		case "like": // workers whose runs it may reuse
			r.Circumstances = value
		case "over":
			r.Connection = h.number(value)
		case "exit":
			n, _ := strconv.Atoi(value)
			r.Response.Result.ExitCode = int32(n)
		case "of": // the program that it is a position of
			r.ID = map[string]string{names.HostKey: value, names.PositionKey: args[0]}
		case "error":
			r.Response = &repb.ExecuteResponse{Status: &spb.Status{Code: int32(codes.Unavailable), Message: value}}
		case "code":
			r.Response.Status.Code = int32(h.number(value))
		case "timed": // like those of Forerunner's workers
			r.Response.Result.ExecutionMetadata = &repb.ExecutedActionMetadata{WorkerCompletedTimestamp: &timestamppb.Timestamp{}}
		case "timedout":
			r.Response.Status = &spb.Status{Code: int32(codes.DeadlineExceeded), Message: "timed out"}
		case "nothing":
			r.Response = &repb.ExecuteResponse{}
		default:
			h.t.Fatalf("sync: %s", a)
		}
	}
	return r
}

// parsePlatform reads "name=value,…".
func parsePlatform(s string) *repb.Platform {
	m := &repb.Platform{}
	for p := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(p, "=")
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	return m
}

func (h *history) print(out event.Out) {
	for _, r := range out.Replies {
		fmt.Fprintf(&h.out, "%s", h.calls[r.Call])
		switch r.Do {
		case event.Continue:
			fmt.Fprintf(&h.out, " continue")
		case event.BeIdle:
			fmt.Fprintf(&h.out, " be idle")
		case event.Superseded:
			fmt.Fprintf(&h.out, " superseded\n")
			continue
		case event.Execute:
			fmt.Fprintf(&h.out, " execute %s", r.Run.Digest)
			if r.Suffix != "" {
				fmt.Fprintf(&h.out, " suffix=%s", r.Suffix)
			}
			if r.SizeAttempt > 0 {
				fmt.Fprintf(&h.out, " for %s (class %d, attempt %d: %s)", r.Timeout, r.SizeClass,
					r.SizeAttempt, r.SizeReason)
			}
		}
		fmt.Fprintf(&h.out, ", call by %s\n", r.NextSync.Sub(epoch))
	}
	for _, w := range out.Wakes {
		fmt.Fprintf(&h.out, "wake %s\n", w)
	}
	for _, st := range out.Notices {
		fmt.Fprintln(&h.out, h.status(st))
	}
	for _, st := range out.Left {
		fmt.Fprintln(&h.out, "left:", h.status(st))
	}
	for _, e := range out.Ended {
		fmt.Fprintf(&h.out, "learn of %s on class %d of %d, again %t", e.Name, e.Class, e.Largest, e.Again)
		if e.Late {
			fmt.Fprintf(&h.out, ", late")
		}
		fmt.Fprintln(&h.out)
	}
	for _, r := range out.Retries {
		fmt.Fprintf(&h.out, "%s again: %s had %s: %s\n", r.Name, r.Worker, r.Code, r.Message)
	}
	for _, x := range out.Taken {
		fmt.Fprintf(&h.out, "%s taken from %s: %s\n", x.Name, x.Worker, x.Why.Label())
	}
	for _, s := range out.Suspensions {
		fmt.Fprintf(&h.out, "%v suspended until %s: %d in a row failed, %d of the last 16, last %s\n",
			s.ID, s.Until.Sub(epoch), s.Row, s.Failures, s.Last)
	}
	for _, d := range out.Departures {
		fmt.Fprintf(&h.out, "%s departed", d.Worker)
		if d.Action != "" {
			fmt.Fprintf(&h.out, " with %s", d.Action)
		}
		if d.Drained {
			fmt.Fprintf(&h.out, ", drained")
		}
		fmt.Fprintln(&h.out)
	}
	h.next = out.NextTick
}

func (h *history) status(st event.Status) string {
	s := st.Name + " " + st.Stage.String()
	if st.Worker != "" {
		s += fmt.Sprintf(" %s#%d", st.Worker, st.Attempts)
	}
	if st.Away {
		s += " away"
	}
	if !st.Done() {
		return s
	}
	if e := st.Response.GetStatus(); e != nil {
		s = fmt.Sprintf("%s %s: %s", s, codes.Code(e.GetCode()), e.GetMessage())
	} else {
		s = fmt.Sprintf("%s exit %d", s, st.Response.GetResult().GetExitCode())
	}
	if note := st.Response.GetMessage(); note != "" {
		s += " " + strconv.Quote(note)
	}
	return s
}
