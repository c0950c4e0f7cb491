package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bounded/least"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// ErrToken means that Query.After is not a token from Find.
var ErrToken = errors.New("no such page")

// A Query selects records that match all its fields.
type Query struct {
	// Operation is a glob of names, Action one of HASH/SIZE.
	Operation, Action string
	// Where has globs by field: "*" matches any text, "?" any character.
	Where map[Field]string
	// Exact: Operation, Action and the texts of Where are whole fields instead of globs, a worker is
	// a key of names.WorkerKey, and a user is an authenticated one, not one that a build tool reports.
	Exact bool
	// Text must be part of one of the fields, or the beginning of the action's hash or of the
	// digits of the operation's name. Case does not matter.
	Text string
	// Outcomes are the selected outcomes; empty: any.
	Outcomes []historypb.Outcome
	// Retried selects operations that ran more than once.
	Retried bool
	// Builds selects builds instead of operations. Of each build only the last record counts, and
	// it must match.
	Builds bool
	// Since and Before limit the time of the operation's end, MinRun the duration of its last run.
	Since, Before time.Time
	MinRun        time.Duration
	Order         Order
	// Limit is the maximum number of records, and MaxBytes their maximum size; 0: no limit. Unless
	// the Order is Slowest, at least one record is returned whatever its size. After is the token
	// from the previous page.
	Limit    int
	MaxBytes int
	After    string
	// Owned reports whether the caller may see the operations of a user for an instance name; nil:
	// the caller may see all.
	Owned func(user, instance string) bool
}

// An Order says which records are returned first, and whether there are further pages.
type Order int

const (
	Pages   Order = iota // those that ended last, with further pages
	Latest               // those that ended last, without further pages
	Slowest              // those that ran longest, without further pages
)

// A position is that of a record. Later records have greater positions.
type position struct {
	segment uint32
	row     int
}

// A hit is a found record.
type hit struct {
	position
	took uint32
}

// Find returns records, the latest first, and the token of the next page. The token is empty if
// there is no next page.
func (s *Store) Find(ctx context.Context, q Query) (found []*historypb.Record, next string, err error) {
	after := position{segment: ^uint32(0)}
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "%d.%d", &after.segment, &after.row); err != nil {
			return nil, "", fmt.Errorf("page %q: %w", q.After, ErrToken)
		}
	}
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	slices.Reverse(segments)
	p := &page{q: &q}
	known := newBuilds()
	slowest := least.Of(max(q.Limit, 1), func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(b.segment, a.segment), cmp.Compare(b.row, a.row))
	})
	byNumber := map[uint32]*segment{}
	for _, g := range segments {
		if p.done() {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		if g.number > after.segment && !q.Builds {
			continue
		}
		m, err := s.match(g, &q)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.options.Logger.Warn("records cannot be searched", zap.String("file", g.path), zap.Error(err))
		}
		if m == nil {
			continue // removed meanwhile, damaged, or outside of the time range
		}
		m.builds = known
		from := m.begin(after)
		byNumber[g.number] = g
		for row := from - 1; row >= 0 && !p.done(); row-- {
			if !m.matches(row) {
				continue
			}
			if q.Order == Slowest {
				if h := (hit{position{g.number, row}, m.x.took[row]}); slowest.Takes(h) && m.isConfirmed(row) {
					slowest.Add(h)
				}
			} else if !p.add(m, row) {
				m.close()
				return p.records, fmt.Sprintf("%d.%d", g.number, row+1), nil
			}
		}
		m.close()
	}
	if q.Order == Slowest {
		return s.readHits(slowest.Sorted(), byNumber), "", nil
	}
	return p.records, "", nil
}

// A page is the result of a search.
type page struct {
	q       *Query
	records []*historypb.Record
	bytes   int
}

// done reports whether the page has all requested records.
func (p *page) done() bool { return p.q.Order == Latest && len(p.records) == p.q.Limit }

// add adds the record of a row, if the record is readable and matches. It reports whether there was
// room.
func (p *page) add(m *matcher, row int) bool {
	if len(p.records) == p.q.Limit {
		return false
	}
	encoded, err := m.read(row)
	r := &historypb.Record{}
	if err != nil || proto.Unmarshal(encoded, r) != nil || !p.q.is(r) {
		return true
	}
	p.bytes += len(encoded)
	if p.q.MaxBytes > 0 && p.bytes > p.q.MaxBytes && len(p.records) > 0 {
		return false
	}
	p.records = append(p.records, r)
	return true
}

// is reports whether a record whose row matches is requested: an index has only the beginning of the
// names of operations and actions, and milliseconds.
func (q *Query) is(r *historypb.Record) bool {
	ended := r.GetEnded().AsTime()
	if ended.Before(q.Since) || !q.Before.IsZero() && !ended.Before(q.Before) || q.MinRun > 0 && tookOf(r) < q.MinRun {
		return false
	}
	if q.Exact {
		return (q.Operation == "" || r.GetOperation() == q.Operation) && (q.Action == "" || r.GetAction() == q.Action)
	}
	return isOf(q.Operation, r.GetOperation()) && isOf(q.Action, r.GetAction())
}

// isOf reports whether a name matches glob, or glob is empty.
func isOf(glob, name string) bool {
	if glob == "" {
		return true
	}
	fits, err := globbed([]string{name}, glob)
	return err == nil && fits[0]
}

// readHits returns the records of hits in their order.
func (s *Store) readHits(hits []hit, segments map[uint32]*segment) []*historypb.Record {
	order := make([]int, len(hits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(hits[a].segment, hits[b].segment), cmp.Compare(hits[a].row, hits[b].row))
	})
	read := make([]*historypb.Record, len(hits))
	var m *matcher
	for _, i := range order {
		h := hits[i]
		if m == nil || m.g.number != h.segment {
			if m != nil {
				m.close()
			}
			if m, _ = s.match(segments[h.segment], &Query{}); m == nil {
				continue
			}
		}
		if encoded, err := m.read(h.row); err == nil {
			if r := (&historypb.Record{}); proto.Unmarshal(encoded, r) == nil {
				read[i] = r
			}
		}
	}
	if m != nil {
		m.close()
	}
	return slices.DeleteFunc(read, func(r *historypb.Record) bool { return r == nil })
}
