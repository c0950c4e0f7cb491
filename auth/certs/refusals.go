package certs

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// refusalEvery is how often a log has a line about failed handshakes with the same remedy: everyone
// who reaches a port can cause thousands a second.
const refusalEvery = time.Minute

// remedies has what to do about a failed handshake, by a part of its error.
var remedies = []struct{ part, remedy string }{
	{"does not look like a TLS handshake", noTLS},
	{"an HTTP request to an HTTPS server", noTLS},
	{"unsupported versions", "the other side needs TLS 1.2 or newer"},
	{"protocol version", "the other side needs TLS 1.2 or newer"},
	{"unsupported application protocols", "the other side speaks another protocol: gRPC is at --listen, pages and metrics are at --http"},
	{"missing selected ALPN", "the other side does not speak gRPC, which is at --listen: pages and metrics are at --http"},
	{"signed by unknown authority", "the other side has a certificate of an authority that is not in --tls-client-ca"},
	{"expired or is not yet valid", "the other side has a certificate that has expired or is not valid yet, or this machine's clock is wrong"},
	{"incompatible key usage", "the other side has a certificate that is not for clients (extendedKeyUsage clientAuth)"},
	{"tls: bad certificate", refusesOurs},
	{"tls: unknown certificate", refusesOurs},
	{"tls: expired certificate", refusesOurs},
	{"tls: unsupported certificate", refusesOurs},
}

const refusesOurs = "the other side refuses --tls-cert: it may not trust its authority (--tls-ca there), " +
	"may call this machine by a name that is not in it, or it has expired"

const noTLS = "the other side uses no TLS: have it use grpcs:// or https://"

const otherRemedy = "compare the TLS settings of both sides"

// refusals log failed handshakes of a server. They may be used concurrently.
type refusals struct {
	log *zap.Logger // nil: nothing is logged

	mu   sync.Mutex
	kept map[string]*refused // by remedy; guarded by mu
}

// A refused is what the log has about handshakes with one remedy.
type refused struct {
	next  time.Time // when there may be a line again
	since int       // how many had none
}

// leaving are errors of a connection whose other side has closed it.
var leaving = []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE}

// note logs that a handshake failed, unless the other side just left, as programs do that only check
// whether a port is open.
func (r *refusals) note(peer string, err error) {
	if r.log == nil || slices.ContainsFunc(leaving, func(left error) bool { return errors.Is(err, left) }) {
		return
	}
	remedy := remedyFor(err.Error())
	if more, is := r.due(remedy, time.Now()); is {
		r.log.Warn("a TLS handshake failed", zap.String("peer", peer), zap.Error(err), zap.String("remedy", remedy), zap.Int("more_before", more))
	}
}

// due reports whether there may be a line, and how many had none since the last.
func (r *refusals) due(remedy string, now time.Time) (more int, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = map[string]*refused{}
	}
	k := r.kept[remedy]
	if k == nil {
		k = &refused{}
		r.kept[remedy] = k
	}
	if now.Before(k.next) {
		k.since++
		return 0, false
	}
	more, *k = k.since, refused{next: now.Add(refusalEvery)}
	return more, true
}

func remedyFor(failure string) string {
	for _, r := range remedies {
		if strings.Contains(failure, r.part) {
			return r.remedy
		}
	}
	return otherRemedy
}
