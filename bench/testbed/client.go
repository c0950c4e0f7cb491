package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

// A Client sends actions to a farm and reads its storage. The caller of Dial closes Conn.
type Client struct {
	Conn    *grpc.ClientConn
	Storage *casclient.Client
}

// Dial connects to a farm at HOST:PORT, whose scheduler has the storage.
func Dial(address string) (*Client, error) {
	conn, err := dial.Dial(address)
	if err != nil {
		return nil, err
	}
	return &Client{Conn: conn, Storage: casclient.New(conn, casclient.Options{NoCompression: true})}, nil
}

// An Action is an action whose inputs are in the storage.
type Action struct {
	Command *repb.Command
	Root    digest.Digest
	Who     *repb.RequestMetadata
	// Platform is the platform of the workers that may run it; nil: workers without a platform.
	Platform client.Properties
}

// A Result has the duration and the reads of one action.
type Result struct {
	Action  digest.Digest
	Seconds float64 // of the whole Execute
	Ran     float64 // seconds of them in which the command ran without waiting for storage
	CPU     float64 // CPU seconds of the command and its descendants
	Use     *actionstats.InputRoot
	Ahead   *actionstats.Prefetch
}

// Execute runs an action even if its result is cached. The duration does not include the upload of
// the action's messages.
func (c *Client) Execute(ctx context.Context, a *Action) (r Result, err error) {
	inputs := &client.Inputs{Root: a.Root}
	if a.Root == (digest.Digest{}) {
		inputs = nil
	}
	began := time.Now()
	outcome, err := client.Execute(ctx, c.Conn, client.Request{
		Function: Function, Command: a.Command, Inputs: inputs, SkipCacheLookup: true, Metadata: a.Who,
		Platform: a.Platform.Proto(),
	})
	if err != nil {
		return r, err
	}
	r.Action = outcome.Action
	r.Seconds = (time.Since(began) - outcome.Upload).Seconds()
	if outcome.Status != nil || outcome.Result.GetExitCode() != 0 {
		said, _ := client.Output(ctx, c.Storage, Function, outcome.Result.GetStderrRaw(), outcome.Result.GetStderrDigest())
		return r, fmt.Errorf("%s: exit code %d: %.2000s: %w", a.Command.GetArguments()[0],
			outcome.Result.GetExitCode(), said, errors.Join(outcome.Status))
	}
	r.Ran = outcome.Result.GetExecutionMetadata().GetVirtualExecutionDuration().AsDuration().Seconds()
	r.Use, r.Ahead = &actionstats.InputRoot{}, &actionstats.Prefetch{}
	usage := &resourceusage.POSIXResourceUsage{}
	for _, packed := range outcome.Result.GetExecutionMetadata().GetAuxiliaryMetadata() {
		for _, known := range []proto.Message{r.Use, r.Ahead, usage} {
			if packed.MessageIs(known) {
				err = errors.Join(err, packed.UnmarshalTo(known))
			}
		}
	}
	r.CPU = (usage.GetUserTime().AsDuration() + usage.GetSystemTime().AsDuration()).Seconds()
	return r, err
}

// Function is the digest function of all blobs.
const Function = digest.SHA256
