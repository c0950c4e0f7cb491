package intake

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Header returns the values of a header of a call, which the caller must not change. The name is in
// lower case: gRPC's own function looks through all headers for one that is not there.
func Header(ctx context.Context, name string) []string {
	if b := beginningOf(ctx); b != nil {
		return b.headers[name]
	}
	return metadata.ValueFromIncomingContext(ctx, name)
}
