package farm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forerunner-build/forerunner/scheduler"
)

// drainsFile is where a scheduler keeps which workers are drained, in its data folder.
const drainsFile = "drains.json"

// loadDrains reads what keepDrains has written; no file is none.
func loadDrains(path string) ([]scheduler.Pattern, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read drains: %w", err)
	}
	var list []map[string]string
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read drains: %s: %w (remove it to start without any)", path, err)
	}
	var patterns []scheduler.Pattern
	for _, m := range list {
		p, err := scheduler.NewPattern(m)
		if err != nil {
			return nil, fmt.Errorf("read drains: %s: %w", path, err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// keepDrains writes the drains in force, at once or not at all.
func keepDrains(path string, patterns []scheduler.Pattern) (err error) {
	list := make([]map[string]string, len(patterns))
	for i, p := range patterns {
		list[i] = p.Map()
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
