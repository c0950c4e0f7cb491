package vouch

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	var v Verdict
	checked := 0
	look := func(due time.Time, found error) error {
		return v.Look(due, func() error { checked++; return found })
	}
	errAway := errors.New("cannot be read")
	if err := look(time.Now(), errAway); !errors.Is(err, errAway) || v.Wrong() {
		t.Errorf("what cannot be read: %v, wrong %t", err, v.Wrong())
	}
	before := time.Now()
	if err := look(before, nil); err != nil || !v.Since(before) {
		t.Errorf("right bytes: %v", err)
	}
	if err := look(before, errAway); err != nil || checked != 2 {
		t.Errorf("looked at again: %v, %d times", err, checked)
	}
	if err := look(time.Now(), ErrDamaged); !errors.Is(err, ErrDamaged) || !v.Wrong() || checked != 3 {
		t.Errorf("wrong bytes: %v, %d times", err, checked)
	}
	if err := look(before, nil); !errors.Is(err, ErrDamaged) || checked != 3 {
		t.Errorf("wrong bytes became right: %v, %d times", err, checked)
	}
}

func TestRead(t *testing.T) {
	content := strings.Repeat("x", 2*piece+1)
	var got bytes.Buffer
	if err := Read(t.Context(), strings.NewReader(content), int64(len(content)), &got); err != nil || got.String() != content {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	if err := Read(t.Context(), strings.NewReader(content), int64(len(content))+1, &got); !errors.Is(err, ErrDamaged) {
		t.Errorf("fewer bytes than there should be: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	errEnd := errors.New("the end")
	cancel(errEnd)
	err := Read(ctx, strings.NewReader(content), int64(len(content)), &got)
	if !errors.Is(err, errEnd) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if errors.Is(Damaged(ctx, err), ErrDamaged) || !errors.Is(Damaged(t.Context(), err), ErrDamaged) {
		t.Error("an error is of the bytes unless the context has ended")
	}
}
