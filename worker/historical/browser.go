package historical

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	historicalpb "github.com/forerunner-build/forerunner/proto/historical"
)

const (
	// maxBytes bounds a blob: Buildbarn's examples have pages read messages of 2 MiB
	// (maximumMessageSizeBytes).
	maxBytes = 2 << 20
	// patience bounds how long the client of an action waits for its link.
	patience = 5 * time.Second
	// prefix begins a message with a link: Buildbarn's pages interpret the following text as one.
	prefix = "Action details (uncached result): "
)

// A Browser is the address of Buildbarn's pages for the same storage. It may be used concurrently.
type Browser struct {
	base     string // without a slash at its end
	patience time.Duration
}

// New returns a Browser at an http:// or https:// address, which may have a path.
func New(address string) (*Browser, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not of the form http://HOST or https://HOST", address)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("the address, which everybody is shown, must not have a user, a query or a fragment")
	}
	return &Browser{base: strings.TrimRight(u.String(), "/"), patience: patience}, nil
}

// Store uploads the response of an action, and returns its message with a link to its page above.
// It waits for 5 s at most, and rejects responses that Buildbarn's pages cannot read. The response
// does not change.
func (b *Browser) Store(
	ctx context.Context, storage *casclient.Client, action digest.Digest, response *repb.ExecuteResponse,
) (message string, err error) {
	d, blob, err := digest.OfMessage(storage.Function(), &historicalpb.HistoricalExecuteResponse{
		ActionDigest: action.Proto(), ExecuteResponse: response,
	})
	if err != nil {
		return "", err
	}
	if len(blob) > maxBytes {
		return "", fmt.Errorf("it has %d bytes, of which pages read at most %d", len(blob), maxBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	if err := storage.Upload(ctx, []casclient.Blob{casclient.BytesBlob(d, blob)}, nil); err != nil {
		return "", err
	}
	return strings.TrimSpace(prefix + b.link(storage.InstanceName(), d) + "\n" + response.GetMessage()), nil
}

// link returns the address of a stored response's page. The instance name is the storage's, which
// pages use.
func (b *Browser) link(instance string, d digest.Digest) string {
	var s strings.Builder
	s.WriteString(b.base)
	if instance != "" {
		for segment := range strings.SplitSeq(instance, "/") {
			s.WriteString("/" + url.PathEscape(segment))
		}
	}
	fmt.Fprintf(&s, "/blobs/%s/historical_execute_response/%s-%d/", d.Function(), d.Hash(), d.SizeBytes())
	return s.String()
}
