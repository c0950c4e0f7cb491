package journal

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// answers is a checksum of all answers of a State, to check whether another State gives the same
// ones. The zero answers records nothing.
type answers struct {
	start time.Time
	sum   hash.Hash64
}

func newAnswers(start time.Time) answers { return answers{start, fnv.New64a()} }

func (a *answers) closed() bool { return a.sum == nil }

func (a *answers) add(out event.Out) {
	var b []byte
	for _, r := range out.Replies {
		b = binary.AppendUvarint(b, r.Call)
		b = append(b, byte(r.Do))
		b = binary.AppendVarint(b, int64(r.NextSync.Sub(a.start)))
		if r.Run != nil {
			b = append(b, r.Run.Name...)
		}
	}
	for _, st := range out.Notices {
		b = append(b, st.Name...)
		b = binary.AppendUvarint(b, st.Rev)
		b = append(b, byte(st.Stage))
	}
	_, _ = a.sum.Write(b)
}

// describe returns all that a State knows, and the sum, as text.
func (a *answers) describe(s *core.State) string {
	return fmt.Sprintf("%sanswers %016x\n", s.View().Dump(), a.sum.Sum64())
}
