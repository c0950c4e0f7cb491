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
	var blobs []casclient.Blob
	given := command.GetEnvironmentVariables()
	for i := range n {
		command.EnvironmentVariables = append(slices.Clone(given),
			&repb.Command_EnvironmentVariable{Name: "SALT", Value: fmt.Sprint(i)})
		cd, raw, err := digest.OfMessage(Function, command)
		if err != nil {
			return nil, err
		}
		ad, rawAction, err := digest.OfMessage(Function, &repb.Action{
			CommandDigest: cd.Proto(), InputRootDigest: Function.Empty().Proto(), DoNotCache: true,
		})
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, casclient.BytesBlob(cd, raw), casclient.BytesBlob(ad, rawAction))
		actions = append(actions, ad)
	}
	return actions, storage.Upload(ctx, blobs, nil)
}
