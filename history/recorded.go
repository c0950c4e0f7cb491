package history

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/names"
)

// Recorded returns those of the operations that have a record and ended at since or later. Of
// each name it compares the first 16 hexadecimal digits: operations have random names.
func (s *Store) Recorded(operations []string, since time.Time) map[string]bool {
	wanted := map[uint64]string{}
	for _, name := range operations {
		if v, n := digits(strings.TrimPrefix(name, names.OperationPrefix)); n > 0 {
			wanted[v] = name
		}
	}
	recorded := map[string]bool{}
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	for _, g := range segments {
		m, err := s.match(g, &Query{Since: since})
		if m != nil {
			err = m.x.need(opsSection)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.options.Logger.Warn("records cannot be searched", zap.String("file", g.path), zap.Error(err))
		}
		if m == nil {
			continue
		}
		for row := range m.x.ops { // none after an error
			if name, known := wanted[m.x.ops[row]]; known && m.x.ended[row] >= m.since {
				recorded[name] = true
			}
		}
		m.close()
	}
	return recorded
}
