package storage

import (
	"context"
	"errors"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// TestResultsElsewhere has an external storage return results, one of which has inline bytes that
// do not match the digest.
func TestResultsElsewhere(t *testing.T) {
	right, wrong := digest.Of(digest.SHA256, []byte("right")), digest.Of(digest.SHA256, []byte("wrong"))
	f := servertest.Start(t, servertest.Config{Unary: func(
		ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler,
	) (any, error) {
		asked, ok := r.(*repb.GetActionResultRequest)
		if !ok {
			return call(ctx, r)
		}
		if hash := asked.GetActionDigest().GetHash(); hash != right.Hash() && hash != wrong.Hash() {
			return call(ctx, r)
		}
		return &repb.ActionResult{StdoutRaw: []byte("right"), StdoutDigest: asked.GetActionDigest()}, nil
	}})
	storage := elsewhere{casclient.New(f.Conn, casclient.Options{})}
	if r, err := storage.GetActionResult(t.Context(), right); err != nil || string(r.GetStdoutRaw()) != "right" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := storage.GetActionResult(t.Context(), wrong); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("a result that contradicts itself: %v, %v", r, err)
	}
	if _, err := storage.GetActionResult(t.Context(), digest.Of(digest.SHA256, nil)); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("no result: %v", err)
	}
}

// TestContradictingResults has the scheduler store a result with inline bytes that do not match the
// digest, of a record that a worker made. No storage may take it.
func TestContradictingResults(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Unary: func(
		ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler,
	) (any, error) {
		if update, ok := r.(*repb.UpdateActionResultRequest); ok {
			return update.GetActionResult(), nil // as a storage that checks nothing
		}
		return call(ctx, r)
	}})
	command := f.PutMessage(t, &repb.Command{Arguments: []string{"true"}})
	action := f.PutMessage(t, &repb.Action{CommandDigest: command.Proto()})
	for name, view := range map[string]View{
		"embedded": embedded{served: f.Server}, "external": elsewhere{casclient.New(f.Conn, casclient.Options{})},
	} {
		for content, want := range map[string]codes.Code{"right": codes.OK, "wrong": codes.InvalidArgument} {
			err := view.PutActionResult(t.Context(), action, &repb.ActionResult{OutputFiles: []*repb.OutputFile{{
				Path: "out", Digest: digest.Of(digest.SHA256, []byte("right")).Proto(), Contents: []byte(content),
			}}})
			if status.Code(err) != want {
				t.Errorf("%s, the content is %s: %v, want %s", name, content, err, want)
			}
		}
	}
}

// TestContradictions has settings that contradict each other.
func TestContradictions(t *testing.T) {
	for want, test := range map[string]struct {
		settings Settings
		guarded  bool
	}{
		"tuning.action_cache: it is embedded":           {settings: Settings{ActionCache: "grpc://h:1"}},
		"--cache-writes: where callers are known":       {settings: Settings{CacheWrites: Clients}, guarded: true},
		"--cache-writes: the action cache is external":  {settings: Settings{CacheWrites: Clients, Location: "grpc://h:1"}},
		"--isolate-content works with embedded storage": {settings: Settings{Isolate: true, Location: "grpc://h:1"}},
	} {
		_, err := test.settings.Open(t.Context(), Options{Data: t.TempDir(), Guarded: test.guarded})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", test, err, want)
		}
	}
}
