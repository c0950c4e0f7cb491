package farm

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/forerunner-build/forerunner/proto/pattern"
)

// loadDrains reads what keepDrains has written.
func loadDrains(ctx context.Context, k kept) ([]pattern.Pattern, error) {
	text, err := k.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read drains: %w", err)
	}
	if text == nil {
		return nil, nil
	}
	return parseDrains(text, k.String())
}

func parseDrains(text []byte, where string) (patterns []pattern.Pattern, err error) {
	var list []map[string]string
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read drains: %s: %w (remove it to start without any)", where, err)
	}
	for _, m := range list {
		p, err := pattern.New(m)
		if err != nil {
			return nil, fmt.Errorf("read drains: %s: %w", where, err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// keepDrains writes the drains in force.
func keepDrains(ctx context.Context, k kept, patterns []pattern.Pattern) (err error) {
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
