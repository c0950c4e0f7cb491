package fetch

import (
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// A wrongStream has each message that it sends changed.
type wrongStream struct{ grpc.ServerStream }

func (s wrongStream) SendMsg(m any) error {
	if data := m.(*bytestream.ReadResponse).GetData(); len(data) > 0 {
		data[0] ^= 1
	}
	return s.ServerStream.SendMsg(m)
}

// thenFail has the first stream of a server send wrong bytes, and the others end with code.
func thenFail(code codes.Code) grpc.StreamServerInterceptor {
	var streams atomic.Int32
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, call grpc.StreamHandler) error {
		switch {
		case path.Base(info.FullMethod) != "Read":
			return call(srv, s)
		case streams.Add(1) == 1:
			return call(srv, wrongStream{s})
		}
		return status.Error(code, "as the test wants")
	}
}

// TestLastAttemptCounts: a blob that arrived wrong once and then not at all fails with the reason
// of the last attempt, even if blobs of the same call fail for other reasons.
func TestLastAttemptCounts(t *testing.T) {
	for _, c := range []struct {
		code    codes.Code
		missing bool
	}{{codes.NotFound, true}, {codes.Unavailable, false}, {codes.PermissionDenied, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := servertest.Start(t, servertest.Config{Stream: thenFail(c.code)})
			d := f.Put(t, digest.SHA256, servertest.Bytes(1, cas.StreamAbove+1))
			r := storeOpen(t, t.TempDir(), storeOptions{}).Through(clientOf(f, client.Options{NoCompression: true, RetryFor: time.Second}))
			err := r.Load(t.Context(), []digest.Digest{d})
			if missing := errors.Is(err, cas.ErrNotFound); err == nil || missing != c.missing || errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%s: %v", c.code, err)
			}
			if !c.missing && status.Code(err) != c.code {
				t.Errorf("%s: the code is %s", c.code, status.Code(err))
			}
		})
	}
}

// TestWhyNotFetched: Fetch's error about a blob has priority over the error of the sink, unless the
// sink found the blob wrong.
func TestWhyNotFetched(t *testing.T) {
	d, other := digest.Of(digest.SHA256, []byte("text")), digest.Of(digest.SHA256, []byte("other"))
	full, away := errors.New("disk is full"), errors.New("server is away")
	named := func(d digest.Digest, err error) error { return &cas.FetchError{Blobs: map[digest.Digest]error{d: err}} }
	missing := &cas.MissingError{Digests: []digest.Digest{d}}
	for name, c := range map[string]struct {
		refused   refusal
		err, want error
	}{
		"not sent":                  {refusal{}, nil, cas.ErrNotFound},
		"full, then missing":        {refusal{full, true}, missing, full},
		"wrong":                     {refusal{cas.ErrCorrupt, true}, nil, cas.ErrCorrupt},
		"wrong each time":           {refusal{cas.ErrCorrupt, true}, named(d, cas.ErrCorrupt), cas.ErrCorrupt},
		"wrong, then missing":       {refusal{cas.ErrCorrupt, true}, missing, cas.ErrNotFound},
		"wrong, then full":          {refusal{full, true}, named(d, full), full},
		"wrong, then away":          {refusal{cas.ErrCorrupt, true}, away, away},
		"wrong, other fails":        {refusal{cas.ErrCorrupt, true}, named(other, away), cas.ErrNotFound},
		"wrong later":               {refusal{cas.ErrCorrupt, false}, named(other, away), cas.ErrCorrupt},
		"wrong later, other absent": {refusal{cas.ErrCorrupt, false}, &cas.MissingError{Digests: []digest.Digest{other}}, cas.ErrCorrupt},
	} {
		if err := whyNotFetched(d, c.refused, c.err); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
