package scrub

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/pause"
)

const (
	// pieceBytes is how much is read at once.
	pieceBytes = 256 << 10
	// waitStep is how long a wait may be before the pace is checked again.
	waitStep = time.Second
)

// ErrGone ends Copy when no caller needs the file any more.
var ErrGone = errors.New("the file is gone")

// A Reader reads files in pieces, at the pace of a pass.
type Reader struct {
	pace  func() float64 // bytes in a second
	piece []byte
	bytes int64 // read of the present file
	// debt is the cost of reads without a pause yet, in bytes. last is when it was settled.
	debt float64
	last time.Time
}

// Copy copies size bytes of file, or less if that ends before, to w. needed is asked between
// pieces: when it reports false, Copy ends with ErrGone.
func (r *Reader) Copy(ctx context.Context, w io.Writer, file *os.File, needed func() bool) (n int64, err error) {
	if r.piece == nil {
		r.piece = make([]byte, pieceBytes)
	}
	// Random access loads only the requested pages. With read-ahead it would be unknown which
	// reader loaded the others.
	fd := int(file.Fd())
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	for {
		cold := nothingCached(fd, n)
		m, err := io.ReadFull(file, r.piece)
		if cold && m > 0 {
			_ = unix.Fadvise(fd, n, int64(m+os.Getpagesize()-1)&^int64(os.Getpagesize()-1), unix.FADV_DONTNEED)
		}
		if _, err := w.Write(r.piece[:m]); err != nil {
			return n, err
		}
		n += int64(m)
		r.bytes += int64(m)
		r.debt += float64(m)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if err := r.rest(ctx, needed); err != nil {
			return n, err
		}
	}
}

// nothingCached reports whether the kernel says that no part of a piece is in memory.
func nothingCached(fd int, offset int64) bool {
	var st unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: pieceBytes}, &st, 0)
	return err == nil && st.Cache == 0
}

// settle charges the cost of a file beyond its bytes, and returns its total cost.
func (r *Reader) settle(v Verdict) int64 {
	if v == Passed && r.bytes == 0 {
		return 0
	}
	cost := max(r.bytes, fileCost)
	r.debt += float64(cost - r.bytes)
	return cost
}

// rest pauses for the reads so far, as the pace demands. It does not pause for less than a piece:
// so short pauses, which timers do not keep, do not add up.
func (r *Reader) rest(ctx context.Context, needed func() bool) error {
	if r.debt < pieceBytes {
		return ctx.Err()
	}
	for r.debt > 0 {
		pace := r.pace()
		now := time.Now()
		// The time of the read itself counts. Idle time is not made up for.
		if past := now.Sub(r.last); past < waitStep {
			r.debt -= past.Seconds() * pace
		}
		r.last = now
		if r.debt <= 0 {
			break
		}
		step := max(time.Duration(min(r.debt/pace, waitStep.Seconds())*float64(time.Second)), time.Microsecond)
		if err := pause.For(ctx, step); err != nil {
			return err
		}
		r.debt -= step.Seconds() * pace
		r.last = time.Now()
		if needed != nil && !needed() {
			return ErrGone
		}
	}
	r.debt = max(r.debt, -pieceBytes)
	return ctx.Err()
}
