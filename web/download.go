package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/web/stored"
)

// blobPath returns the path from which a browser downloads a blob, as a file of that name.
func blobPath(function, hashAndSize, instance, name string) string {
	return fmt.Sprintf("/blobs/%s/%s?%s", function, hashAndSize, url.Values{"instance": {instance}, "name": {name}}.Encode())
}

// A downloads serves blobs from the storage.
type downloads struct {
	*renderer
	blobs func(instance string, fn digest.Function) stored.Blobs
}

// serve sends a blob as a file to save.
func (p *downloads) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	instance := r.FormValue("instance")
	d, err := digestOf(r)
	switch {
	case err != nil:
	case !auth.Allowed(ctx, auth.Read, instance):
		err = missing("file", digest.ErrNotFound)
	case d.SizeBytes() > p.budget.file: // the whole blob is in memory
		err = status.Errorf(codes.FailedPrecondition, "files of more than %d MiB are not available here: get them from the storage", p.budget.file>>20)
	}
	if err == nil && !p.budget.answer(w, r, d.SizeBytes(), func(w http.ResponseWriter) { p.send(ctx, w, r, d) }) {
		err = errNoMemory
	}
	if err != nil {
		p.fail(w, r, "record", missing("file", err))
	}
}

// send sends a blob.
func (p *downloads) send(ctx context.Context, w http.ResponseWriter, r *http.Request, d digest.Digest) {
	content, err := p.blobs(r.FormValue("instance"), d.Function()).Read(ctx, d)
	if err != nil {
		p.fail(w, r, "record", missing("file", err))
		return
	}
	name := r.FormValue("name")
	name = name[strings.LastIndexByte(name, '/')+1:]
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	asFile(w, name, "application/octet-stream") // a browser must never render or run the content
	_, _ = w.Write(content)
}

// asFile makes a browser save the answer as a file. The client has a minute to read it.
func asFile(w http.ResponseWriter, name, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
}

// digestOf returns the digest in the path of a page.
func digestOf(r *http.Request) (digest.Digest, error) {
	fn, err := stored.Function(r.PathValue("function"))
	n, sizeErr := strconv.ParseInt(r.PathValue("size"), 10, 64)
	if err != nil || sizeErr != nil {
		return digest.Digest{}, status.Error(codes.InvalidArgument, "an action's page is /actions/FUNCTION/HASH/SIZE")
	}
	d, err := digest.Parse(fn, r.PathValue("hash"), n)
	if err != nil {
		return d, status.Error(codes.InvalidArgument, err.Error())
	}
	return d, nil
}

func missing(what string, err error) error {
	if errors.Is(err, digest.ErrNotFound) || status.Code(err) == codes.NotFound {
		return status.Errorf(codes.NotFound, "the storage does not have the %s", what)
	}
	return err
}
