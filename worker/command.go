package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/worker/outputs"
)

// A command is a checked Command message.
type command struct {
	args, env []string
	outputs.Spec
}

// parseCommand checks everything about m that needs no file system.
func parseCommand(m *repb.Command) (*command, error) {
	if len(m.GetArguments()) == 0 {
		return nil, errors.New("has no arguments")
	}
	c := &command{args: m.GetArguments()}
	for _, arg := range c.args {
		if strings.ContainsRune(arg, 0) {
			return nil, fmt.Errorf("argument %.80q contains NUL", arg)
		}
	}
	for _, v := range m.GetEnvironmentVariables() {
		if v.GetName() == "" || strings.ContainsAny(v.GetName(), "=\x00") || strings.ContainsRune(v.GetValue(), 0) {
			return nil, fmt.Errorf("environment variable %.80q is malformed", v.GetName())
		}
		c.env = append(c.env, v.GetName()+"="+v.GetValue())
	}
	var err error
	c.Spec, err = outputs.ParseSpec(m)
	return c, err
}

// mostCommandBytes is how large a Command may be that comes with its action.
const mostCommandBytes = 64 << 10

// takeCommand removes the Command from the metadata of an action, nil if there is none: it is not
// part of the metadata of the result.
func takeCommand(desired *remoteworker.DesiredState_Executing) []byte {
	i := slices.IndexFunc(desired.GetAuxiliaryMetadata(), func(m *anypb.Any) bool { return m.GetTypeUrl() == names.CommandType })
	if i < 0 {
		return nil
	}
	command := desired.AuxiliaryMetadata[i].GetValue()
	desired.AuxiliaryMetadata = slices.Delete(desired.AuxiliaryMetadata, i, i+1)
	return command
}

// readCommand returns the encoded Command: the one that came with the action, if its digest is
// right, or the one in storage.
func (a *action) readCommand(ctx context.Context, d digest.Digest) ([]byte, error) {
	if came := a.task.command; int64(len(came)) == d.SizeBytes() && digest.Of(a.fn, came) == d {
		return came, nil
	}
	return a.inputs.ReadMessage(ctx, d)
}
