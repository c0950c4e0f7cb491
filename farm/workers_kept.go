package farm

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
)

// rosterTimeout bounds each time that the workers are kept: what waits for it is the end of the program.
const rosterTimeout = time.Second

// A rosterFile is where a scheduler keeps which workers are there, for the next one: 8 bytes each, which name them.
type rosterFile struct {
	store records.Durable
	lease string
}

func (r rosterFile) record() kept {
	return kept{r.store, records.Key{Bucket: names.WorkersBucket, Digest: digest.Of(digest.SHA256, []byte(r.lease))}}
}

// load returns who was there last; nil: it is not known. first says that nobody was there if nothing was ever kept.
func (r rosterFile) load(ctx context.Context, first bool) ([]scheduler.WorkerSum, error) {
	if first {
		return []scheduler.WorkerSum{}, nil
	}
	text, err := r.record().read(ctx)
	if errors.Is(err, records.ErrDamaged) || err == nil && (text == nil || len(text)%8 != 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := make([]scheduler.WorkerSum, 0, len(text)/8)
	for ; len(text) > 0; text = text[8:] {
		known = append(known, scheduler.WorkerSum(binary.BigEndian.Uint64(text)))
	}
	return known, nil
}

func (r rosterFile) keep(ctx context.Context, here []scheduler.WorkerSum) error {
	limited, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	text := make([]byte, 0, 8*len(here))
	for _, sum := range here {
		text = binary.BigEndian.AppendUint64(text, uint64(sum))
	}
	return r.record().write(limited, text)
}
