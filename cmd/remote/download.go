package remote

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Download writes the outputs of result into dir, which it creates if needed.
// fn is the digest function that client uses.
func Download(
	ctx context.Context, client *cas.Client, fn digest.Function, result *repb.ActionResult, dir string,
) error {
	return errors.New("download: not built yet")
}

// Output returns a stream that an ActionResult holds inline as raw or names by
// d; without either it is empty. fn is the digest function that client uses.
func Output(
	ctx context.Context, client *cas.Client, fn digest.Function, raw []byte, d *repb.Digest,
) ([]byte, error) {
	return nil, errors.New("output: not built yet")
}
