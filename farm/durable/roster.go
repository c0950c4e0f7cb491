package durable

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
)

// rosterTimeout limits each write of the list of workers: the end of the program waits for it.
const rosterTimeout = time.Second

// A Roster stores the list of present workers for the next scheduler, with 8 bytes for each.
type Roster[Sum ~uint64] struct {
	Store records.Durable
	Lease string
}

func (r Roster[Sum]) record() Text {
	return Text{r.Store, records.Key{Bucket: names.WorkersBucket, Digest: digest.Of(digest.SHA256, []byte(r.Lease))}}
}

// Load returns the last list of workers; nil if it is unknown. first says that a missing list means
// that there were none.
func (r Roster[Sum]) Load(ctx context.Context, first bool) ([]Sum, error) {
	if first {
		return []Sum{}, nil
	}
	text, err := r.record().Read(ctx)
	if errors.Is(err, records.ErrDamaged) || err == nil && (text == nil || len(text)%8 != 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := make([]Sum, 0, len(text)/8)
	for ; len(text) > 0; text = text[8:] {
		known = append(known, Sum(binary.BigEndian.Uint64(text)))
	}
	return known, nil
}

// Keep stores the list of workers.
func (r Roster[Sum]) Keep(ctx context.Context, here []Sum) error {
	limited, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	text := make([]byte, 0, 8*len(here))
	for _, sum := range here {
		text = binary.BigEndian.AppendUint64(text, uint64(sum))
	}
	return r.record().Write(limited, text)
}
