package certs

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// alertPatience is how long a failed write waits for the reason.
const alertPatience = time.Second

// An opening is a client's connection whose server may not have seen the client's certificate yet:
// in TLS 1.3 the client's handshake ends before that. If the server refuses it, the client may
// notice that it can no longer write before it reads why, and its errors say why.
type opening struct {
	net.Conn
	answered atomic.Bool   // the server has answered
	deaf     chan struct{} // closed when the first read has failed
	failed   sync.Once
	why      error // of that read; set before deaf is closed
}

// Read implements net.Conn.
func (o *opening) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	switch {
	case n > 0:
		if !o.answered.Load() {
			o.answered.Store(true)
		}
	case err != nil && !o.answered.Load():
		o.failed.Do(func() { o.why = err; close(o.deaf) })
	}
	return n, err
}

// Write implements net.Conn.
func (o *opening) Write(p []byte) (int, error) {
	n, err := o.Conn.Write(p)
	if err == nil || o.answered.Load() {
		return n, err
	}
	patience := time.NewTimer(alertPatience)
	defer patience.Stop()
	select {
	case <-o.deaf:
		if isAlert(o.why) {
			return n, o.why
		}
	case <-patience.C:
	}
	return n, err
}

// isAlert reports whether the other side said what is wrong, in a TLS alert.
func isAlert(err error) bool {
	told := (*net.OpError)(nil)
	return errors.As(err, &told) && told.Op == "remote error"
}
