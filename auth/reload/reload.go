package reload

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// checkEvery is how old the result of Get may be, besides the time to read the files.
const checkEvery = time.Second

// A Value is derived from some files. It may be used concurrently.
type Value[T any] struct {
	paths   []string
	parse   func(contents [][]byte) (T, error)
	log     *zap.Logger
	current atomic.Pointer[T]
	// next is when the files are checked again, in nanoseconds of Unix time.
	next     atomic.Int64
	checking atomic.Bool

	// These belong to the goroutine that has set checking.
	contents [][]byte
	failure  string // the last logged one
}

// New reads the files and derives a value from their contents, which are in the order of paths; the
// content for an empty path is nil. parse must keep nothing else, and may be called by every caller
// of Get. Without a logger nothing is logged.
func New[T any](log *zap.Logger, parse func(contents [][]byte) (T, error), paths ...string) (*Value[T], error) {
	if log == nil {
		log = zap.NewNop()
	}
	v := &Value[T]{paths: paths, parse: parse, log: log}
	if err := v.load(); err != nil {
		return nil, err
	}
	v.next.Store(time.Now().Add(checkEvery).UnixNano())
	return v, nil
}

// Get returns the value, and derives it again if a check is due and files have changed.
func (v *Value[T]) Get() T {
	if now := time.Now(); now.UnixNano() >= v.next.Load() && v.checking.CompareAndSwap(false, true) {
		v.check()
		v.next.Store(now.Add(checkEvery).UnixNano())
		v.checking.Store(false)
	}
	return *v.current.Load()
}

func (v *Value[T]) check() {
	err := v.load()
	if err == nil {
		v.failure = ""
		return
	}
	if text := err.Error(); text != v.failure {
		v.failure = text
		v.log.Warn("changed files cannot be loaded; their earlier content stays in force", zap.Strings("files", v.files()), zap.Error(err))
	}
}

// load reads the files and, if they have changed, makes the value of them.
func (v *Value[T]) load() error {
	contents := make([][]byte, len(v.paths))
	changed := v.contents == nil
	for i, path := range v.paths {
		if path == "" {
			continue
		}
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			return err
		}
		changed = changed || !bytes.Equal(contents[i], v.contents[i])
	}
	if !changed {
		return nil
	}
	value, err := v.parse(contents)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(v.files(), ", "), err)
	}
	if v.contents != nil {
		v.log.Info("changed files are in force", zap.Strings("files", v.files()))
	}
	v.contents = contents
	v.current.Store(&value)
	return nil
}

func (v *Value[T]) files() (names []string) {
	for _, path := range v.paths {
		if path != "" {
			names = append(names, path)
		}
	}
	return names
}
