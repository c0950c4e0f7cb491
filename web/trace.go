package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// traceSuffix follows the path of a build's page in the path of its trace.
const traceSuffix = ".trace.json"

// tracePath returns the path of the trace of an invocation.
func tracePath(invocation string) string { return "/builds/" + url.PathEscape(invocation+traceSuffix) }

// trace sends the completed operations of an invocation as a Chrome trace: a process for each
// machine, a thread for each position.
func (b *builder) trace(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	leave, err := b.pages.budget.make(r, "build")
	if err == nil {
		err = b.read(ctx, b.pattern())
		leave()
	}
	if err == nil && b.view.Total == 0 {
		err = status.Errorf(codes.NotFound, "nothing of invocation %q has ended, or it ended too long ago", b.view.Invocation)
	}
	if err == nil && !b.pages.budget.answer(w, r, b.view.held(), b.events) {
		err = errNoMemory
	}
	if err != nil {
		b.pages.fail(w, r, "build", err)
	}
}

// events writes the trace.
func (b *builder) events(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	asFile(w, b.view.Invocation+traceSuffix, "application/json")
	out := bufio.NewWriterSize(w, 64<<10)
	before := `{"displayTimeUnit":"ms","traceEvents":[` + "\n"
	for e := range b.line.Events {
		line, err := json.Marshal(e)
		if err != nil {
			continue // every field can be encoded
		}
		_, _ = out.WriteString(before)
		if _, err := out.Write(line); err != nil {
			return // the viewer may have left
		}
		before = ",\n"
	}
	if before != ",\n" { // no event was written
		_, _ = out.WriteString(before)
	}
	_, _ = out.WriteString("\n]}\n")
	_ = out.Flush()
}
