package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/comparison"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/printed"
	"github.com/forerunner-build/forerunner/web/stored"
	"github.com/forerunner-build/forerunner/web/text"
)

// A recordView is a completed operation.
type recordView struct {
	recordRow
	// Verdict describes the outcome in a sentence.
	Verdict string
	// Printed has the output streams, standard error first.
	Printed []printed.Text
	// Again is a shell command that runs the command again; empty if the command is unknown.
	Again string
	// NotMade are the declared outputs that a successful command did not make.
	NotMade []string
	Spans   []facts.Span
	Facts   []facts.Table
	// Compared compares it with an earlier run, if the viewer asked for it.
	Compared *compared
	// WorkerName is the name of the worker, WorkerPath its page.
	WorkerName, WorkerPath string
}

// template implements templated.
func (*recordView) template() string { return "record" }

// form is constant, because a completed operation does not change.
func (*recordView) form() string { return "completed" }

// Failed reports whether the operation ended without success.
func (v *recordView) Failed() bool { return v.Class() == "failed" }

// ActionPath returns the page of the action.
func (v *recordView) ActionPath() string {
	return fmt.Sprintf("/actions/%s/%s?%s", v.GetDigestFunction(), v.GetAction(),
		url.Values{"instance": {v.GetInstanceName()}, "mnemonic": {v.GetMnemonic()}}.Encode())
}

// ComparePath returns the page that explains why the operation ran.
func (v *recordView) ComparePath() string {
	return "/" + v.GetOperation() + "?compare=1#compared"
}

// Others returns the page with other runs of the same target.
func (v *recordView) Others() string { return runsPath(v.GetTarget()) }

// OutputPath returns the URL of an output.
func (v *recordView) OutputPath(o *historypb.Output) string {
	return blobPath(v.GetDigestFunction(), o.GetDigest(), v.GetInstanceName(), o.GetPath())
}

// FolderPath returns the page of an output folder.
func (v *recordView) FolderPath(o *historypb.Output) string {
	return folderPath(v.GetDigestFunction(), o.GetDigest(), v.GetInstanceName(), o.GetPath(), wholeTree)
}

// SizeOf returns the size of an output in bytes.
func (v *recordView) SizeOf(o *historypb.Output) (bytes int64) {
	_, size, _ := strings.Cut(o.GetDigest(), "/")
	bytes, _ = strconv.ParseInt(size, 10, 64)
	return bytes
}

// More returns the number of outputs that are not listed.
func (v *recordView) More() int { return int(v.GetAllOutputs()) - len(v.GetOutputs()) }

// A recordPages serves the pages of completed operations.
type recordPages struct {
	*answers.Source
	blobs    func(instance string, fn digest.Function) stored.Blobs
	prints   *printed.Reader
	comparer *comparer
}

// one returns the page of a completed operation, with a comparison if req asks for it.
func (p *recordPages) one(ctx context.Context, r *historypb.Record, req *http.Request) *recordView {
	v := p.viewOf(ctx, r)
	if req.FormValue("compare") != "" {
		v.Compared = p.comparer.compare(ctx, r)
	}
	return v
}

func (p *recordPages) viewOf(ctx context.Context, r *historypb.Record) *recordView {
	command := p.command(ctx, r)
	return &recordView{
		recordRow: rowOf(r), Verdict: verdictOf(r),
		Printed: []printed.Text{p.kept(ctx, r, "Standard error", r.GetStderr()), p.kept(ctx, r, "Standard output", r.GetStdout())},
		Again:   again(r, command), NotMade: facts.NotMade(r, command), Spans: facts.Spans(r.GetMetadata()), Facts: facts.Packed(r.GetMetadata().GetAuxiliaryMetadata()),
		WorkerName: dash(text.Machine(cmp.Or(r.GetWorker(), r.GetMetadata().GetWorker()))), WorkerPath: workerPath(r.GetWorker()),
	}
}

// verdictOf describes the outcome of an operation in a sentence.
func verdictOf(r *historypb.Record) string {
	if comparison.Skipped(r) {
		return "The run was skipped: it has the result of an earlier one"
	}
	switch r.GetOutcome() {
	case historypb.Outcome_SUCCEEDED:
		return "Succeeded"
	case historypb.Outcome_CACHED:
		return "The result was in the action cache"
	case historypb.Outcome_CANCELLED:
		return "Cancelled by its clients"
	case historypb.Outcome_OUT_OF_MEMORY:
		return "Failed: out of memory, the kernel killed processes of the command"
	case historypb.Outcome_TIMED_OUT:
		return "Failed: it exceeded its timeout"
	case historypb.Outcome_FAILED:
		return "Failed: " + facts.Exit(r)
	}
	return "Failed without a result: " + facts.Outcome(r)
}

// kept returns the stored part of an output stream.
func (p *recordPages) kept(ctx context.Context, r *historypb.Record, title string, stream *historypb.Stream) printed.Text {
	hash, size, _ := strings.Cut(stream.GetDigest(), "/")
	n, err := strconv.ParseInt(size, 10, 64)
	blob := &repb.Digest{Hash: hash, SizeBytes: n}
	if err != nil {
		blob = nil
	}
	op := &admin.Operation{DigestFunction: r.GetDigestFunction(), InstanceName: r.GetInstanceName()}
	of := p.prints.Stream(ctx, op, printed.Text{Title: title}, stream.GetRaw(), blob)
	if blob != nil {
		of.Path = blobPath(r.GetDigestFunction(), stream.GetDigest(), r.GetInstanceName(), strings.ToLower(strings.ReplaceAll(title, " ", "-"))+".txt")
	}
	of.HTML = p.prints.HTML(ctx, of.Text)
	return of
}

// command returns the command of an operation; nil if the storage has it no more, or the viewer may
// not read the content of the instance name, as some owners of operations may not.
func (p *recordPages) command(ctx context.Context, r *historypb.Record) *repb.Command {
	if !mayRead(ctx, r.GetInstanceName()) {
		return nil
	}
	command, _ := stored.Command(ctx, p.blobs, r)
	return command
}

// again returns a shell command that runs the command again in a copy of its inputs, such as Bazel's
// execution root. If the command is nil, it has the arguments of the record and no environment.
func again(r *historypb.Record, command *repb.Command) string {
	var line strings.Builder
	if dir := command.GetWorkingDirectory(); dir != "" {
		fmt.Fprintf(&line, "cd %s && ", printable.Command([]string{dir}))
	}
	if command != nil {
		line.WriteString("env -i ")
	}
	for _, e := range command.GetEnvironmentVariables() {
		fmt.Fprintf(&line, "%s ", printable.Command([]string{e.GetName() + "=" + e.GetValue()}))
	}
	args := command.GetArguments()
	if command == nil {
		args = r.GetArguments()
	}
	if len(args) == 0 {
		return ""
	}
	line.WriteString(printable.Command(args))
	if len(args) == len(r.GetArguments()) && r.GetArgumentsCut() {
		line.WriteString(" # the rest of the command line is not known any more")
	}
	return line.String()
}
