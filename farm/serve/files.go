package serve

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/settings"
)

// raiseFiles says how to raise the limit of open files.
const raiseFiles = "raise it with ulimit -n, or LimitNOFILE= of a systemd service"

// fileLimit returns how many files and connections this process may have open. Go raises the soft
// limit to the hard one when a program starts.
func fileLimit() (int64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return int64(min(limit.Cur, 1<<40)), nil
}

// fewestBytes is how large files a program must be allowed to write: blobs, records, and its log. A
// larger one then fails, and what needs it.
const fewestBytes = 256 << 20

// CheckFiles returns an error if this process may not have as many open files as it needs, or not
// write large ones.
func CheckFiles(needed int64) error {
	var size unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &size); err != nil {
		return fmt.Errorf("limit of file sizes: %w", err)
	}
	if size.Cur < fewestBytes {
		return settings.Wrong("this process may write only %d bytes into a file, and needs at least %d: "+
			"raise it with ulimit -f, or LimitFSIZE= of a systemd service", size.Cur, fewestBytes)
	}

	limit, err := fileLimit()
	if err != nil {
		return err
	}
	if limit < needed {
		return settings.Wrong("this process may have only %d open files and connections, and needs %d: %s", limit, needed, raiseFiles)
	}
	return nil
}

// fewestPages is the number of connections that there always may be over HTTP.
const fewestPages = 8

// limitConnections leaves a good third of the open files to other things than connections: one that
// is closed for a new one is better than one that cannot be accepted. Half are for gRPC unless
// another number was chosen, an eighth for pages.
func limitConnections(b intake.Bounds, chosen int) intake.Bounds {
	limit, err := fileLimit()
	if err != nil {
		limit = 1 << 40
	}
	b.Pages = int(min(int64(b.Pages), max(fewestPages, limit/8)))
	if chosen > 0 {
		return b.WithConnections(chosen)
	}
	if most := max(1, limit/2); int64(b.Connections) > most {
		return b.WithConnections(int(most))
	}
	return b
}

// faultAge is how long a connection that could not be accepted counts: gRPC tries again within a
// second.
const faultAge = 3 * time.Second

// An acceptor is a listener that remembers why it could not accept the last connection.
type acceptor struct {
	net.Listener
	log *zap.Logger

	mu     sync.Mutex
	err    error     // of the last attempt; guarded by mu, as is failed
	failed time.Time // when that was
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil || !errors.Is(err, net.ErrClosed) {
		a.note(err)
	}
	return conn, err
}

func (a *acceptor) note(err error) {
	a.mu.Lock()
	isNew := err != nil && a.faultLocked() == nil
	if errors.Is(err, unix.EMFILE) {
		if limit, limitErr := fileLimit(); limitErr == nil {
			err = fmt.Errorf("%w (this process may have %d: %s)", err, limit, raiseFiles)
		}
	}
	a.err, a.failed = err, time.Now()
	a.mu.Unlock()
	if isNew {
		a.log.Warn("cannot accept connections; trying again", zap.Error(err))
	}
}

// fault returns why no connection can be accepted now; nil: they can.
func (a *acceptor) fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.faultLocked()
}

func (a *acceptor) faultLocked() error {
	if time.Since(a.failed) > faultAge { // it waits for a connection
		return nil
	}
	return a.err
}
