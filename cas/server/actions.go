package server

import (
	"context"
	"errors"
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// inlineBytes limits the inline contents of a GetActionResult answer.
const inlineBytes = 1 << 20

// actionService is REv2's ActionCache.
type actionService struct {
	repb.UnimplementedActionCacheServer
	s *Server
}

// Lookup returns the result of the action d under an instance name. The result must be known, its
// exit code 0, and the instance name must have every blob that it refers to: files, stdout and
// stderr, Trees and their content, root directories and everything below. Otherwise the error is
// ErrNotFound. A lookup counts all these blobs as used. The caller must not change the result; it
// holds nothing inline.
func (s *Server) Lookup(ctx context.Context, instance string, d digest.Digest) (*repb.ActionResult, error) {
	r, err := s.actions.Get(ctx, instance, d)
	if err != nil {
		return nil, err
	}
	if code := r.GetExitCode(); code != 0 { // Server takes none
		return nil, fmt.Errorf("action result %s has exit code %d: %w", d, code, cas.ErrNotFound)
	}
	missing, err := s.catalog(instance).missingOf(ctx, d.Function(), r, false)
	err = errors.Join(err, s.options.WaitForMemory(ctx, 0)) // Execute looks, and continues
	if err != nil {
		return nil, fmt.Errorf("check action result %s: %w", d, err)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("action result %s: %w", d, &cas.MissingError{Digests: missing})
	}
	return r, nil
}

// GetActionResult answers a lookup. It adds requested inline contents, as long as they are small.
func (v *actionService) GetActionResult(
	ctx context.Context, r *repb.GetActionResultRequest,
) (*repb.ActionResult, error) {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	d, err := digest.FromProto(fn, r.GetActionDigest())
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	result, err := v.s.Lookup(ctx, r.GetInstanceName(), d)
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	result = proto.CloneOf(result)
	if err := v.inline(ctx, fn, r, result); err != nil {
		return nil, v.s.readStatus(err)
	}
	return result, nil
}

// inline adds the inline contents that r requests, in that order, while there is room.
func (v *actionService) inline(
	ctx context.Context, fn digest.Function, r *repb.GetActionResultRequest, result *repb.ActionResult,
) error {
	left := int64(inlineBytes)
	blobs := v.s.content(r.GetInstanceName())
	fill := func(to *[]byte, m *repb.Digest) error {
		d, err := digest.FromProto(fn, m)
		if m == nil || err == nil && d.SizeBytes() > left {
			return nil
		}
		if err != nil {
			return err
		}
		left -= d.SizeBytes()
		*to, err = blobs.ReadBlob(ctx, d)
		return err
	}
	if r.GetInlineStdout() {
		if err := fill(&result.StdoutRaw, result.GetStdoutDigest()); err != nil {
			return err
		}
	}
	if r.GetInlineStderr() {
		if err := fill(&result.StderrRaw, result.GetStderrDigest()); err != nil {
			return err
		}
	}
	wanted := make(map[string]struct{}, len(r.GetInlineOutputFiles()))
	for _, path := range r.GetInlineOutputFiles() {
		wanted[path] = struct{}{}
	}
	for _, f := range result.GetOutputFiles() {
		if _, ok := wanted[f.GetPath()]; ok {
			if err := fill(&f.Contents, f.GetDigest()); err != nil {
				return err
			}
		}
	}
	return nil
}

// UpdateActionResult stores the result of a successful action whose action, command and outputs
// have been uploaded. Its inline contents become blobs.
func (v *actionService) UpdateActionResult(
	ctx context.Context, r *repb.UpdateActionResultRequest,
) (*repb.ActionResult, error) {
	result, err := v.update(ctx, r)
	if err != nil {
		return nil, v.s.writeStatus(err)
	}
	return result, nil
}

func (v *actionService) update(ctx context.Context, r *repb.UpdateActionResultRequest) (*repb.ActionResult, error) {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return nil, err
	}
	d, err := digest.FromProto(fn, r.GetActionDigest())
	if err != nil {
		return nil, fmt.Errorf("action_digest: %w", err)
	}
	return v.s.putFor(ctx, r.GetInstanceName(), d, r.GetActionResult())
}

// putFor is putActionResult for the caller of ctx, if it may write that result.
func (s *Server) putFor(
	ctx context.Context, instance string, d digest.Digest, given *repb.ActionResult,
) (*repb.ActionResult, error) {
	if !s.options.AllowActionUpdates && !s.options.Grants.Given(ctx, instance, d) {
		return nil, status.Errorf(codes.PermissionDenied, "action result %s: only the worker that ran the action may write it "+
			"(in Bazel: --noremote_upload_local_results; see docs/SECURITY.md)", d)
	}
	return s.putActionResult(ctx, instance, d, given)
}

// PutGranted is UpdateActionResult by the caller of ctx, which reports the result in another call.
func (s *Server) PutGranted(ctx context.Context, instance string, d digest.Digest, result *repb.ActionResult) error {
	_, err := s.putFor(ctx, instance, d, result)
	return s.writeStatus(err)
}

// PutActionResult stores the result of an action under an instance name, for a caller that may
// write it. It has the conditions and errors of UpdateActionResult, and verifies the blobs of the
// result.
func (s *Server) PutActionResult(ctx context.Context, instance string, d digest.Digest, result *repb.ActionResult) error {
	_, err := s.putActionResult(ctx, instance, d, result)
	return s.writeStatus(err)
}

// putActionResult returns the result as stored, with blobs instead of inline contents. Some of its
// errors are gRPC statuses.
func (s *Server) putActionResult(
	ctx context.Context, instance string, d digest.Digest, given *repb.ActionResult,
) (*repb.ActionResult, error) {
	fn := d.Function()
	switch {
	case given == nil:
		return nil, status.Errorf(codes.InvalidArgument, "action result %s is not set", d)
	case given.GetExitCode() != 0:
		return nil, status.Errorf(codes.InvalidArgument, "action result %s has exit code %d: failures are not cached", d, given.GetExitCode())
	}
	if err := checkResult(fn, given); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "action result %s: %v", d, err)
	}
	own := s.catalog(instance)
	if err := own.checkAction(ctx, d); err != nil {
		return nil, err
	}
	result := proto.CloneOf(given)
	if err := s.storeInline(ctx, own, fn, result); err != nil {
		return nil, fmt.Errorf("action result %s: %w", d, err)
	}
	missing, err := own.missingOf(ctx, fn, result, true)
	if err != nil {
		return nil, fmt.Errorf("action result %s: %w", d, err)
	}
	if len(missing) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition,
			"action result %s: upload its outputs first: %v", d, &cas.MissingError{Digests: missing})
	}
	if err := s.actions.Put(ctx, instance, d, result); err != nil {
		return nil, fmt.Errorf("store action result %s: %w", d, err)
	}
	return result, nil
}

// checkAction fails unless the action d and its command exist.
func (c catalog) checkAction(ctx context.Context, d digest.Digest) error {
	action := new(repb.Action)
	err := c.readMessage(ctx, d, action)
	if errors.Is(err, cas.ErrNotFound) {
		return status.Errorf(codes.FailedPrecondition, "upload action %s before its result", d)
	}
	if err != nil {
		return err
	}
	command, err := digest.FromProto(d.Function(), action.GetCommandDigest())
	if err != nil {
		return fmt.Errorf("action %s: command: %w", d, err)
	}
	if !c.Contains(command) {
		return status.Errorf(codes.FailedPrecondition, "upload command %s of action %s before its result", command, d)
	}
	return nil
}

// storeInline turns the inline contents of result into blobs.
func (s *Server) storeInline(ctx context.Context, blobs cas.Content, fn digest.Function, result *repb.ActionResult) error {
	store := func(raw *[]byte, m **repb.Digest) error {
		if len(*raw) == 0 {
			return nil
		}
		d := digest.Of(fn, *raw)
		if *m != nil && !proto.Equal(*m, d.Proto()) {
			return fmt.Errorf("%w: inline content of %s has the digest %s", cas.ErrCorrupt, (*m).GetHash(), d)
		}
		if err := s.uploads.givingWay(func() error { return blobs.PutBytes(ctx, d, *raw) }); err != nil {
			return err
		}
		*raw, *m = nil, d.Proto()
		return nil
	}
	if err := store(&result.StdoutRaw, &result.StdoutDigest); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	if err := store(&result.StderrRaw, &result.StderrDigest); err != nil {
		return fmt.Errorf("stderr: %w", err)
	}
	for _, f := range result.GetOutputFiles() {
		if err := store(&f.Contents, &f.Digest); err != nil {
			return fmt.Errorf("output file %q: %w", f.GetPath(), err)
		}
	}
	return nil
}
