package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server"
)

// A loser is a farm whose storage has lost an output of a cached result. Executing the action again
// restores it, unless it is lost permanently.
type loser struct {
	repb.UnimplementedExecutionServer
	repb.UnimplementedCapabilitiesServer
	store *disk.Store
	good  bool
	skips []bool // of the calls
}

const lostText = "an output"

func (l *loser) GetCapabilities(context.Context, *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	return &repb.ServerCapabilities{}, nil
}

func (l *loser) Execute(r *repb.ExecuteRequest, stream grpc.ServerStreamingServer[longrunningpb.Operation]) error {
	l.skips = append(l.skips, r.GetSkipCacheLookup())
	out := digest.Of(digest.SHA256, []byte(lostText))
	if r.GetSkipCacheLookup() && l.good {
		if err := l.store.PutBytes(stream.Context(), out, []byte(lostText)); err != nil {
			return err
		}
	}
	response, err := anypb.New(&repb.ExecuteResponse{
		Result: &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: "out", Digest: out.Proto()}}},
	})
	if err != nil {
		return err
	}
	return stream.Send(&longrunningpb.Operation{
		Name: "it", Done: true, Result: &longrunningpb.Operation_Response{Response: response},
	})
}

// TestLostOutputs: lost outputs of a result are made again, once.
func TestLostOutputs(t *testing.T) {
	for _, good := range []bool{true, false} {
		dir := t.TempDir()
		store, err := disk.Open(filepath.Join(dir, "blobs"), disk.Options{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		l := &loser{store: store, good: good}
		g := grpc.NewServer()
		server.New(store, nil, server.Options{}).Register(g)
		repb.RegisterExecutionServer(g, l)
		repb.RegisterCapabilitiesServer(g, l)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- g.Serve(listener) }()
		e := &execution{
			Remote: listener.Addr().String(), Outputs: []string{"out"}, Download: filepath.Join(dir, "got"), Quiet: true, Live: liveOff,
		}
		err = e.run(t.Context(), []string{"true"})
		if good && err != nil || !good && !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("fetched %t: %v", good, err)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "got", "out")); good != (string(got) == lostText) {
			t.Errorf("fetched %t: %q", good, got)
		}
		g.Stop()
		if err := errors.Join(<-served, store.Close()); err != nil {
			t.Error(err)
		}
		if !slices.Equal(l.skips, []bool{false, true}) {
			t.Errorf("executed without the cache: %v", l.skips)
		}
	}
}
