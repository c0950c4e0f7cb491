package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// toolName is the name of this client in request metadata.
	toolName = "forerunner"
)

// An execution is one call of Execute.
type execution struct {
	server   repb.ExecutionClient
	able     repb.CapabilitiesClient
	running  longrunningpb.OperationsClient
	streams  bytestream.ByteStreamClient
	storage  *casclient.Client
	req      Request
	blobs    []casclient.Blob // all blobs of the action
	action   digest.Digest
	metadata string // encoded RequestMetadata
	last     Stage  // the last reported stage
	outcome  *Outcome
}

// newExecution encodes the action of req.
func newExecution(conn grpc.ClientConnInterface, req Request) (*execution, error) {
	if req.Command == nil {
		return nil, errors.New("execute: the request has no command")
	}
	if req.Function == 0 {
		req.Function = digest.SHA256
	}
	if req.Inputs == nil {
		req.Inputs = &Inputs{Root: req.Function.Empty()}
	}
	if req.Progress == nil {
		req.Progress = func(Event) {}
	}
	if f := req.Inputs.Root.Function(); f != req.Function {
		return nil, fmt.Errorf("execute: the inputs were scanned with %s, not %s", f, req.Function)
	}
	storage := conn
	if req.Storage != nil {
		storage = req.Storage
	}
	x := &execution{
		server:  repb.NewExecutionClient(conn),
		able:    repb.NewCapabilitiesClient(conn),
		running: longrunningpb.NewOperationsClient(conn),
		streams: bytestream.NewByteStreamClient(conn),
		storage: casclient.New(storage, casclient.Options{
			InstanceName: req.Instance, Function: req.Function, Logger: req.Logger,
		}),
		req:   req,
		blobs: slices.Clone(req.Inputs.Blobs),
	}
	if err := x.encode(); err != nil {
		return nil, err
	}
	x.outcome = &Outcome{Action: x.action, Scan: req.Inputs.Took}
	return x, nil
}

// encode makes the Command, the Action and the RequestMetadata.
func (x *execution) encode() error {
	command := canonical(x.req.Command, x.req.Platform)
	d, err := x.add(command)
	if err != nil {
		return fmt.Errorf("encode command: %w", err)
	}
	action := &repb.Action{
		CommandDigest:   d.Proto(),
		InputRootDigest: x.req.Inputs.Root.Proto(),
		DoNotCache:      x.req.DoNotCache,
		//lint:ignore SA1019 canonical has sorted it
		Platform: command.GetPlatform(),
	}
	if x.req.Timeout > 0 {
		action.Timeout = durationpb.New(x.req.Timeout)
	}
	if x.action, err = x.add(action); err != nil {
		return fmt.Errorf("encode action: %w", err)
	}
	who := &repb.RequestMetadata{}
	if x.req.Metadata != nil {
		who = proto.CloneOf(x.req.Metadata)
	}
	if who.ToolDetails == nil {
		who.ToolDetails = &repb.ToolDetails{ToolName: toolName}
	}
	who.ActionId = cmp.Or(who.GetActionId(), x.action.Hash())
	who.ToolInvocationId = cmp.Or(who.GetToolInvocationId(), rand.Text())
	b, err := proto.Marshal(who)
	if err != nil {
		return fmt.Errorf("encode request metadata: %w", err)
	}
	x.metadata = string(b)
	return nil
}

// add encodes m and adds it to the blobs.
func (x *execution) add(m proto.Message) (digest.Digest, error) {
	d, b, err := digest.OfMessage(x.req.Function, m)
	if err != nil {
		return digest.Digest{}, err
	}
	x.blobs = append(x.blobs, casclient.BytesBlob(d, b))
	return d, nil
}

// canonical returns c with its lists in the order that REv2 requires, so that equal commands have
// equal digests. It also sets the platform, unless platform is nil: servers older than REv2 2.2
// look for it in the Command, not in the Action.
func canonical(c *repb.Command, platform *repb.Platform) *repb.Command {
	c = proto.CloneOf(c)
	if platform != nil {
		//lint:ignore SA1019 for older servers
		c.Platform = proto.CloneOf(platform)
	}
	slices.SortFunc(c.EnvironmentVariables, func(a, b *repb.Command_EnvironmentVariable) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	slices.Sort(c.OutputPaths)
	//lint:ignore SA1019 for older servers
	slices.SortFunc(c.GetPlatform().GetProperties(), func(a, b *repb.Platform_Property) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetValue(), b.GetValue()))
	})
	return c
}

// stage reports s unless it was the last reported stage.
func (x *execution) stage(s Stage) {
	if s != x.last {
		x.last = s
		x.req.Progress(Event{Stage: s})
	}
}

// uploading reports the progress of an upload.
func (x *execution) uploading(done, total int64) {
	x.last = Uploading
	x.req.Progress(Event{Stage: Uploading, DoneBytes: done, TotalBytes: total})
}

// upload uploads missing blobs.
func (x *execution) upload(ctx context.Context) error {
	start := time.Now()
	defer func() { x.outcome.Upload += time.Since(start) }()
	x.uploading(0, 0)
	ds := make([]digest.Digest, len(x.blobs))
	for i, b := range x.blobs {
		ds[i] = b.Digest
	}
	missing, err := x.storage.FindMissing(ctx, ds)
	if err != nil {
		return err
	}
	wanted := make(map[digest.Digest]struct{}, len(missing))
	var total int64
	for _, d := range missing {
		wanted[d] = struct{}{}
		total += d.SizeBytes()
	}
	blobs := slices.DeleteFunc(slices.Clone(x.blobs), func(b casclient.Blob) bool {
		_, want := wanted[b.Digest]
		return !want
	})
	if len(blobs) == 0 {
		return nil
	}
	x.uploading(0, total)
	var done int64
	err = x.storage.Upload(ctx, blobs, func(_ digest.Digest, bytes int64) {
		done += bytes
		x.uploading(done, total)
	})
	if err != nil {
		return err
	}
	x.outcome.UploadedBlobs += len(missing)
	x.outcome.UploadedBytes += total
	return nil
}
