package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/stored"
)

// A recordView is an operation that has ended.
type recordView struct {
	recordRow
	// Verdict says how it ended, in a sentence.
	Verdict string
	// Printed has its streams, standard error first.
	Printed []printed
	// Again is a command line that runs it again; empty: the command is not known any more.
	Again string
	Spans []span
	Facts []Facts
	// Compared is with the run before, if that was asked for.
	Compared *compared
	// WorkerName is that of its worker, WorkerPath where it is.
	WorkerName, WorkerPath string
}

// template implements templated.
func (*recordView) template() string { return "record" }

// form is that of a page that has nothing to wait for.
func (*recordView) form() string { return "completed" }

// Failed reports whether it ended, and not with success.
func (v *recordView) Failed() bool { return v.Class() == "failed" }

// ActionPath is where the page of the action is.
func (v *recordView) ActionPath() string {
	return fmt.Sprintf("/actions/%s/%s?%s", v.GetDigestFunction(), v.GetAction(),
		url.Values{"instance": {v.GetInstanceName()}, "mnemonic": {v.GetMnemonic()}}.Encode())
}

// ComparePath is where this says why it ran.
func (v *recordView) ComparePath() string {
	return "/" + v.GetOperation() + "?compare=1#compared"
}

// Others is where other runs of the same target are.
func (v *recordView) Others() string {
	return "/history?" + url.Values{"q": {"target=" + strings.ReplaceAll(v.GetTarget(), " ", "?")}}.Encode()
}

// OutputPath is where an output can be had.
func (v *recordView) OutputPath(o *historypb.Output) string {
	return blobPath(v.GetDigestFunction(), o.GetDigest(), v.GetInstanceName(), o.GetPath())
}

// More is how many outputs are not listed.
func (v *recordView) More() int { return int(v.GetAllOutputs()) - len(v.GetOutputs()) }

// record returns the page of an operation that has ended.
func (s *Site) record(ctx context.Context, req *admin.GetRecordRequest) (*recordView, error) {
	r, err := s.options.Scheduler.GetRecord(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.viewOf(ctx, r), nil
}

func (s *Site) viewOf(ctx context.Context, r *historypb.Record) *recordView {
	return &recordView{
		recordRow: rowOf(r), Verdict: verdictOf(r),
		Printed: []printed{s.kept(ctx, r, "Standard error", r.GetStderr()), s.kept(ctx, r, "Standard output", r.GetStdout())},
		Again:   s.again(ctx, r), Spans: spans(r.GetMetadata()), Facts: factsOf(r.GetMetadata().GetAuxiliaryMetadata()),
		WorkerName: workerText(cmp.Or(r.GetWorker(), r.GetMetadata().GetWorker())), WorkerPath: workerPath(r.GetWorker()),
	}
}

// verdictOf says how an operation ended.
func verdictOf(r *historypb.Record) string {
	switch r.GetOutcome() {
	case historypb.Outcome_SUCCEEDED:
		return "Succeeded"
	case historypb.Outcome_CACHED:
		return "The result was in the action cache: nothing ran"
	case historypb.Outcome_CANCELLED:
		return "Cancelled: its clients left, or ended it"
	case historypb.Outcome_OUT_OF_MEMORY:
		return "Failed: out of memory, the kernel killed processes of the command"
	case historypb.Outcome_TIMED_OUT:
		return "Failed: its time was over"
	case historypb.Outcome_FAILED:
		return "Failed: " + exitText(r.GetExitCode())
	}
	return "Failed without a result: " + OutcomeText(r)
}

// kept returns what is left of a stream.
func (s *Site) kept(ctx context.Context, r *historypb.Record, title string, stream *historypb.Stream) printed {
	hash, size, _ := strings.Cut(stream.GetDigest(), "/")
	n, err := strconv.ParseInt(size, 10, 64)
	blob := &repb.Digest{Hash: hash, SizeBytes: n}
	if err != nil {
		blob = nil
	}
	op := &admin.Operation{DigestFunction: r.GetDigestFunction(), InstanceName: r.GetInstanceName()}
	p := s.stream(ctx, op, printed{Title: title}, stream.GetRaw(), blob)
	if blob != nil {
		p.Path = blobPath(r.GetDigestFunction(), stream.GetDigest(), r.GetInstanceName(), strings.ToLower(strings.ReplaceAll(title, " ", "-"))+".txt")
	}
	p.HTML = rendered(p.Text)
	return p
}

// again returns a command line that runs the command again in a copy of its inputs, such as Bazel's execution root.
func (s *Site) again(ctx context.Context, r *historypb.Record) string {
	command := &repb.Command{Arguments: r.GetArguments()}
	fn, err := stored.Function(r.GetDigestFunction())
	if err != nil {
		return ""
	}
	if d, err := stored.Digest(fn, r.GetCommand()); err == nil {
		whole := &repb.Command{}
		if _, err := stored.Message(ctx, s.options.Blobs(r.GetInstanceName(), fn), d, stored.MaxBytes, whole); err == nil {
			command = whole
		}
	}
	if len(command.GetArguments()) == 0 {
		return ""
	}
	var line strings.Builder
	if dir := command.GetWorkingDirectory(); dir != "" {
		fmt.Fprintf(&line, "cd %s && ", quoted([]string{dir}))
	}
	if env := command.GetEnvironmentVariables(); len(env) > 0 {
		line.WriteString("env -i")
		for _, e := range env {
			fmt.Fprintf(&line, " %s", quoted([]string{e.GetName() + "=" + e.GetValue()}))
		}
		line.WriteString(" ")
	}
	line.WriteString(quoted(command.GetArguments()))
	if len(command.GetArguments()) == len(r.GetArguments()) && r.GetArgumentsCut() {
		line.WriteString(" # the rest of the command line is not known any more")
	}
	return line.String()
}

// maxDownload bounds what can be had from a page: it is read into memory.
const maxDownload = 32 << 20

// blobPath is where a blob can be had under a name.
func blobPath(function, hashAndSize, instance, name string) string {
	return fmt.Sprintf("/blobs/%s/%s?%s", function, hashAndSize, url.Values{"instance": {instance}, "name": {name}}.Encode())
}

// blobFile answers with a blob, to be saved as a file.
func (s *Site) blobFile(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	instance := r.FormValue("instance")
	d, err := digestOf(r)
	switch {
	case err != nil:
	case !auth.Allowed(ctx, auth.Read, instance):
		err = missing("file", digest.ErrNotFound)
	case d.SizeBytes() > maxDownload:
		err = status.Errorf(codes.FailedPrecondition, "files of more than %d MiB cannot be had here, but from the storage", maxDownload>>20)
	}
	var content []byte
	if err == nil {
		content, err = s.options.Blobs(instance, d.Function()).Read(ctx, d)
	}
	if err != nil {
		s.fail(w, r, "record", missing("file", err))
		return
	}
	name := r.FormValue("name")
	name = name[strings.LastIndexByte(name, '/')+1:]
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	asFile(w, name, "application/octet-stream") // whatever it is, a browser is not to run it
	_, _ = w.Write(content)
}

// asFile has a browser save what is written next as a file, for which it has a minute.
func asFile(w http.ResponseWriter, name, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
}
