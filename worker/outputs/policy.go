package outputs

import (
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// A Policy limits the files that one action may write and return. Unchanged inputs among its
// outputs do not count.
type Policy struct {
	// Bytes limits the total size of returned files, including holes, which are hashed and sent
	// like data. 0 is the capacity of the worker's store.
	Bytes int64
	Files int // 0 is defaultMaxOutputFiles
	// Scratch limits, in bytes, all data that the action writes: into its input root and its
	// folders for temporary files, each file and folder at least 4 KiB. 0 is the capacity of the
	// worker's store.
	Scratch int64
}

const (
	defaultMaxOutputFiles = 1_000_000
	// maxOutputNames limits the names in output directories, of any type.
	maxOutputNames = 2 * defaultMaxOutputFiles
	// maxOutputText bounds their names and the targets of symlinks, in bytes: the worker has
	// several times as many in memory while it makes their messages.
	maxOutputText = 32 << 20
	// maxUnchanged bounds the messages of input directories that are returned as they are, in
	// bytes.
	maxUnchanged = 256 << 20
)

// Validate checks p and fills in defaults for 0, for a store with this capacity.
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

// admitNames counts the names in directories.
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

// admitUnchanged counts an input directory that is returned as it is, once however often it occurs,
// before it is decoded: a small message may name millions of entries.
func (o *Outputs) admitUnchanged(d *tree.Directory) error {
	o.unchanged += len(d.Encoded())
	if o.unchangedNames += d.Len(); o.unchanged > maxUnchanged || o.unchangedNames > maxOutputNames {
		return tooMuch("the unchanged input directories among the outputs hold more than %d names or %d bytes",
			maxOutputNames, maxUnchanged)
	}
	return nil
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
	return tooMuchError{fault.Errorf(codes.FailedPrecondition, format, args...)}
}
