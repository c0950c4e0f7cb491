package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
)

// LoadDrains reads the drains that KeepDrains has written.
func LoadDrains(ctx context.Context, k Text) ([]drain.Record, error) {
	text, err := k.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read drains: %w", err)
	}
	if text == nil {
		return nil, nil
	}
	return parseDrains(text, k.String())
}

// A keptDrain is a drain as it is written. Earlier versions wrote the attributes of its pattern
// alone.
type keptDrain struct {
	Pattern pattern.Pattern `json:"pattern"`
	Reason  string          `json:"reason,omitempty"`
	Author  string          `json:"author,omitempty"`
	Since   time.Time       `json:"since,omitzero"`
}

func parseDrains(text []byte, where string) (drains []drain.Record, err error) {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read drains: %s: %w (remove it to start without any)", where, err)
	}
	for _, one := range list {
		var d keptDrain
		old := json.Unmarshal(one, &d.Pattern)
		if old != nil {
			err = json.Unmarshal(one, &d)
		}
		if err != nil || d.Pattern.String() == "" {
			return nil, fmt.Errorf("read drains: %s: %s is not a drain", where, one)
		}
		drains = append(drains, drain.Record(d))
	}
	return drains, nil
}

// KeepDrains writes the active drains.
func KeepDrains(ctx context.Context, k Text, drains []drain.Record) (err error) {
	list := make([]keptDrain, len(drains))
	for i, d := range drains {
		list[i] = keptDrain(d)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return k.Write(ctx, append(text, '\n'))
}

// TakeOverDrains moves drains from the separate file of an earlier version.
func TakeOverDrains(ctx context.Context, file string, drains Text) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read drains: %w", err)
	}
	if _, err := parseDrains(text, file); err != nil {
		return err
	}
	now, err := drains.Read(ctx)
	if err == nil && now == nil {
		err = drains.Write(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("take over drains from %s: %w", file, err)
	}
	return os.Remove(file)
}
