package testbed

import (
	"context"
	"fmt"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// StoreVariants uploads n actions without inputs to a storage. They differ only in their
// environment.
func StoreVariants(ctx context.Context, storage *casclient.Client, n int, command *repb.Command) ([]digest.Digest, error) {
	var actions []digest.Digest
	var u Upload
	given := command.GetEnvironmentVariables()
	for i := range n {
		command.EnvironmentVariables = append(slices.Clone(given),
			&repb.Command_EnvironmentVariable{Name: "SALT", Value: fmt.Sprint(i)})
		cd, err := u.Message(command)
		if err != nil {
			return nil, err
		}
		action, err := u.Action(cd, Function.Empty())
		if err != nil {
			return nil, err
		}
		actions = append(actions, action)
	}
	return actions, u.To(ctx, storage)
}
