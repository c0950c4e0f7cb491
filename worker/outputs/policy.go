package outputs

import (
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/worker/fault"
)

// A Policy bounds what one action may write and return. Inputs that it returns
// unchanged do not count.
type Policy struct {
	// Bytes bounds the sizes of all files that it returns, holes included, for those are hashed and
	// sent like the rest. 0 is what the worker's store may hold.
	Bytes int64
	Files int // 0 is defaultMaxOutputFiles
	// Scratch bounds, in bytes, what the action writes at all: into its input root and
	// its folders for temporary files, each file and folder at least 4 KiB. 0 is what the worker's
	// store may hold.
	Scratch int64
}

const (
	defaultMaxOutputFiles = 1_000_000
	// maxOutputNames bounds what output directories hold, whatever it is.
	maxOutputNames = 2 * defaultMaxOutputFiles
	// maxOutputText bounds their names and the targets of symlinks, in bytes: the worker has several times as many in memory
	// while it makes their messages.
	maxOutputText = 32 << 20
)

// Validate checks p and fills in what is 0, for a store that may hold so much.
func (p *Policy) Validate(storeBytes int64) error {
	if p.Bytes < 0 || p.Files < 0 || p.Scratch < 0 {
		return fmt.Errorf("outputs have a negative bound: %+v", *p)
	}
	if p.Bytes == 0 {
		p.Bytes = storeBytes
	}
	if p.Scratch == 0 {
		p.Scratch = storeBytes
	}
	if p.Files == 0 {
		p.Files = defaultMaxOutputFiles
	}
	return nil
}

// admit counts a file that the command made, before anybody reads it.
func (o *Outputs) admit(size int64) error {
	policy := o.opts.Policy
	if o.madeFiles++; o.madeFiles > policy.Files {
		return tooMuch("the outputs are more than the %d files that an action may return (tuning.max_output_files)", policy.Files)
	}
	if size > policy.Bytes-o.madeBytes { // a difference, for size may be near the largest number
		return tooMuch("it has %d bytes, the outputs before it have %d: more than the %d bytes that an action may return "+
			"(tuning.max_output_bytes)", size, o.madeBytes, policy.Bytes)
	}
	o.madeBytes += size
	o.patience.grant(1, size)
	return nil
}

// admitNames counts what directories hold.
func (o *Outputs) admitNames(entries []fs.DirEntry) error {
	if o.names += len(entries); o.names > maxOutputNames {
		return tooMuch("the output directories hold more than %d names", maxOutputNames)
	}
	o.patience.grant(len(entries), 0)
	n := 0
	for _, e := range entries {
		n += len(e.Name())
	}
	return o.admitText(n)
}

// admitText counts bytes of names and targets.
func (o *Outputs) admitText(n int) error {
	if o.text += n; o.text > maxOutputText {
		return tooMuch("the names in output directories and the targets of symlinks have more than %d bytes", maxOutputText)
	}
	return nil
}

// ErrTooMuch is wrapped by errors of actions that return more than their Policy allows.
var ErrTooMuch = errors.New("more outputs than an action may return")

// A tooMuchError is ErrTooMuch with a text for the client.
type tooMuchError struct{ error }

// Is implements errors.Is.
func (e tooMuchError) Is(target error) bool { return target == ErrTooMuch }

// Unwrap implements errors.Unwrap.
func (e tooMuchError) Unwrap() error { return e.error }

func tooMuch(format string, args ...any) error {
	return tooMuchError{fault.Errorf(codes.ResourceExhausted, format, args...)}
}
