package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/secrets"
)

// Grants decide without authentication who may write the result of an action: the worker that runs
// it. A grant is an authentication code of the action under a key that only this storage and its
// scheduler have. It does not expire, because its holder could have written the result at once.
// Grants may be used concurrently.
type Grants struct{ key []byte }

// OpenGrants reads the key from a file, and creates the file if it is missing: so grants stay valid
// when the storage restarts.
func OpenGrants(file string) (*Grants, error) {
	key, err := secrets.OfOwn(file)
	if err != nil {
		return nil, fmt.Errorf("key of grants: %w", err)
	}
	return &Grants{[]byte(key)}, nil
}

// Of returns the grant that permits writing the result of an action under an instance name.
func (g *Grants) Of(instance string, action digest.Digest) string {
	code := hmac.New(sha256.New, g.key)
	// No digest has a line break in it, and the first one ends it.
	fmt.Fprintf(code, "%s\n%s\n%s", action.Function(), action, instance)
	return hex.EncodeToString(code.Sum(nil))
}

// Given reports whether the caller of ctx presents the grant for an action. For nil Grants it is
// false.
func (g *Grants) Given(ctx context.Context, instance string, action digest.Digest) bool {
	if g == nil {
		return false
	}
	shown := intake.Header(ctx, names.GrantHeader)
	return len(shown) == 1 && hmac.Equal([]byte(shown[0]), []byte(g.Of(instance, action)))
}
