package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/secrets"
)

// Grants say who may write the result of one action where callers are not known by name:
// who was given that action to run. A grant is a code of the action under a key that only
// this storage and the scheduler beside it have. It does not expire: who had it could have
// written the result at once. Grants may be used concurrently.
type Grants struct{ key []byte }

// OpenGrants reads the key from a file, which is made if it is not there: what a worker
// was granted holds when storage is started again.
func OpenGrants(file string) (*Grants, error) {
	key, err := secrets.OfOwn(file)
	if err != nil {
		return nil, fmt.Errorf("key of grants: %w", err)
	}
	return &Grants{[]byte(key)}, nil
}

// Of returns the grant to write the result of an action under an instance name.
func (g *Grants) Of(instance string, action digest.Digest) string {
	code := hmac.New(sha256.New, g.key)
	// No digest has a line break in it, and the first one ends it.
	fmt.Fprintf(code, "%s\n%s\n%s", action.Function(), action, instance)
	return hex.EncodeToString(code.Sum(nil))
}

// Given reports whether the caller of ctx shows the grant for an action. No Grants: nobody does.
func (g *Grants) Given(ctx context.Context, instance string, action digest.Digest) bool {
	if g == nil {
		return false
	}
	shown := metadata.ValueFromIncomingContext(ctx, names.GrantHeader)
	return len(shown) == 1 && hmac.Equal([]byte(shown[0]), []byte(g.Of(instance, action)))
}
