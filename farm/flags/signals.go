package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errSecondSignal is why abort ends.
var errSecondSignal = errors.New("second signal")

// Signals returns two contexts: drain ends at the first SIGTERM or SIGINT, abort
// at the second. release gives the signals back.
func Signals(parent context.Context) (drain, abort context.Context, release func()) {
	drain, cancelDrain := context.WithCancel(parent)
	abort, cancelAbort := context.WithCancelCause(context.WithoutCancel(parent))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-signals:
				if drain.Err() != nil {
					cancelAbort(errSecondSignal)
					continue
				}
				fmt.Fprintln(os.Stderr, "finishing what runs; interrupt once more to give up")
				cancelDrain()
			case <-done:
				return
			}
		}
	}()
	return drain, abort, func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancelDrain()
		cancelAbort(nil)
	}
}
