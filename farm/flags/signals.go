package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// abortPatience is how long a program may run after the second signal before it is ended: with
	// the time for an exit on a busy machine, two seconds.
	abortPatience = 800 * time.Millisecond
	// sayPatience is how long its last message may take.
	sayPatience = 100 * time.Millisecond
	// lastWords is how long each of the final steps for others may take after the second signal:
	// sign off, write what was learned.
	lastWords = 300 * time.Millisecond
)

// errSecondSignal is why abort ends.
var errSecondSignal = errors.New("second signal")

// Signals returns two contexts: drain ends at the first SIGTERM or SIGINT, abort at the second. A
// process that still runs abortPatience after that is ended; the next one with its data removes the
// leftovers. What it says is written as its log is. release restores the signals' default actions.
func (l Logging) Signals(parent context.Context) (drain, abort context.Context, release func()) {
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
				if abort.Err() != nil {
					continue
				}
				if drain.Err() != nil {
					cancelAbort(errSecondSignal)
					time.AfterFunc(abortPatience, l.giveUp)
					continue
				}
				cancelDrain()
				l.say("finishing what runs; interrupt once more to give up")
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

// giveUp ends the process. Launchers see that it is gone and kill its commands; mounts and groups
// are for the next process to remove.
func (l Logging) giveUp() {
	said := l.say(fmt.Sprintf("gave up after %s; the next start with the same folders removes the leftovers", abortPatience))
	select {
	case <-said:
	case <-time.After(sayPatience):
	}
	os.Exit(1)
}

// say shows the user a message without waiting: an unread pipe, or a stopped terminal, may lose it.
// said is closed once the message is written.
func (l Logging) say(text string) (said <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Form().Print(os.Stderr, "warn", text, nil)
	}()
	return done
}

// Lastly returns a context for a final step: it ends after most, or when abort ends. A step that
// begins after that has lastWords.
func Lastly(abort context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if abort.Err() != nil {
		return context.WithTimeout(context.WithoutCancel(abort), min(most, lastWords))
	}
	return context.WithTimeout(abort, most)
}
