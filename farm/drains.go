package farm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
)

// drainsFile is where a scheduler keeps which workers are drained, in its data folder.
const drainsFile = "drains.json"

// A keeper keeps one text.
type keeper interface {
	// read returns nil if there is none.
	read(ctx context.Context) ([]byte, error)
	// write keeps all of text or nothing of it.
	write(ctx context.Context, text []byte) error
}

// keptDrains returns where drains are kept.
func (s *Scheduler) keptDrains(records kv.Store) keeper {
	if s.Lease == "" {
		return keptFile(filepath.Join(s.Data, drainsFile))
	}
	return keptRecord{records, kv.Key{Bucket: names.DrainsBucket, Digest: digest.Of(digest.SHA256, []byte(s.Lease))}}
}

// loadDrains reads what keepDrains has written.
func loadDrains(ctx context.Context, k keeper) ([]pattern.Pattern, error) {
	text, err := k.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read drains: %w", err)
	}
	if text == nil {
		return nil, nil
	}
	var list []map[string]string
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read drains: %s: %w (remove it to start without any)", k, err)
	}
	var patterns []pattern.Pattern
	for _, m := range list {
		p, err := pattern.New(m)
		if err != nil {
			return nil, fmt.Errorf("read drains: %s: %w", k, err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// keepDrains writes the drains in force.
func keepDrains(ctx context.Context, k keeper, patterns []pattern.Pattern) (err error) {
	list := make([]map[string]string, len(patterns))
	for i, p := range patterns {
		list[i] = p.Map()
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return k.write(ctx, append(text, '\n'))
}

// A keptFile keeps its text in the file of that path.
type keptFile string

func (f keptFile) read(context.Context) ([]byte, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return append([]byte{}, text...), err
}

func (f keptFile) write(_ context.Context, text []byte) error {
	path := string(f)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// A keptRecord keeps its text in a record that others have too.
type keptRecord struct {
	store kv.Store
	key   kv.Key
}

func (r keptRecord) String() string { return "record " + r.key.String() }

func (r keptRecord) read(ctx context.Context) ([]byte, error) {
	text, err := r.store.Get(ctx, r.key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, unanswered{err}
	}
	return text, nil
}

func (r keptRecord) write(ctx context.Context, text []byte) error {
	return r.store.Put(ctx, r.key, text)
}
