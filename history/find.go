package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bounded/least"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/pattern"
)

// ErrToken says that Query.After is none that Find returned.
var ErrToken = errors.New("no such page")

// A Query says which records are looked for: those for which all holds that is set.
type Query struct {
	// Operation is a name, Action a hash/size.
	Operation, Action string
	// Where has globs by field: "*" is any text, "?" any character.
	Where map[Field]string
	// Text is in one of the fields, or begins the action's hash or the digits of the operation's name. Case does not matter.
	Text string
	// Outcomes are those of which it has one; none: any.
	Outcomes []historypb.Outcome
	// Retried: it was given to more than one worker.
	Retried bool
	// Builds are looked for in place of operations; of each, the last record only, as far as one page goes.
	Builds bool
	// Since and Before bound when it ended, MinRun how long its last run took.
	Since, Before time.Time
	MinRun        time.Duration
	// Slowest returns those that ran longest, in that order, Latest those that ended last; both return no further page.
	Slowest, Latest bool
	// Limit is how many are returned, and MaxBytes how many bytes of them, but one at least, unless Slowest is set; 0: any.
	// After is the token of the page before.
	Limit    int
	MaxBytes int
	After    string
	// Owned says whether the caller may see what a user had done for an instance name; nil: he may see all.
	Owned func(user, instance string) bool
}

// A place is where a record is: among all, later ones are greater.
type place struct {
	segment uint32
	row     int
}

// A hit is a record that is found.
type hit struct {
	place
	took uint32
}

// Find returns records, the latest first, and the token of the next page, which is empty if there is none.
func (s *Store) Find(ctx context.Context, q Query) (found []*historypb.Record, next string, err error) {
	after := place{segment: ^uint32(0)}
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "%d.%d", &after.segment, &after.row); err != nil {
			return nil, "", fmt.Errorf("page %q: %w", q.After, ErrToken)
		}
	}
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	slices.Reverse(segments)
	p := &page{q: &q, builds: map[[3]string]bool{}}
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
		if g.number > after.segment {
			continue
		}
		m, err := s.match(g, &q)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.options.Logger.Warn("records cannot be searched", zap.String("file", g.path), zap.Error(err))
		}
		if m == nil {
			continue // gone meanwhile, damaged, or of another time
		}
		from := m.x.rows
		if g.number == after.segment {
			from = min(from, after.row)
		}
		byNumber[g.number] = g
		for row := from - 1; row >= 0 && !p.done(); row-- {
			if !m.matches(row) {
				continue
			}
			if q.Slowest {
				slowest.Add(hit{place{g.number, row}, m.x.took[row]})
			} else if !p.add(m, row) {
				m.close()
				return p.records, fmt.Sprintf("%d.%d", g.number, row+1), nil
			}
		}
		m.close()
	}
	if q.Slowest {
		return s.readHits(slowest.Sorted(), byNumber), "", nil
	}
	return p.records, "", nil
}

// A page is what is found.
type page struct {
	q       *Query
	records []*historypb.Record
	bytes   int
	builds  map[[3]string]bool // that it has
}

// done reports whether it has all that is wanted.
func (p *page) done() bool { return p.q.Latest && len(p.records) == p.q.Limit }

// add adds the record of a row, if it can be read and is looked for, and reports whether there was room.
func (p *page) add(m *matcher, row int) bool {
	if len(p.records) == p.q.Limit {
		return false
	}
	encoded, err := m.read(row)
	r := &historypb.Record{}
	if err != nil || proto.Unmarshal(encoded, r) != nil || !p.q.is(r) {
		return true
	}
	if build := [3]string{r.GetInvocation(), r.GetUser(), r.GetInstanceName()}; p.q.Builds {
		if p.builds[build] {
			return true // this is what was known of it before
		}
		p.builds[build] = true
	}
	p.bytes += len(encoded)
	if p.q.MaxBytes > 0 && p.bytes > p.q.MaxBytes && len(p.records) > 0 {
		return false
	}
	p.records = append(p.records, r)
	return true
}

// is reports whether r is the operation or action that is looked for, of which an index has the begin.
func (q *Query) is(r *historypb.Record) bool {
	return (q.Operation == "" || r.GetOperation() == q.Operation) && (q.Action == "" || r.GetAction() == q.Action)
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

// A matcher looks for the records of a Query in one segment.
type matcher struct {
	s *Store
	g *segment
	q *Query
	// x has the columns that the Query needs; file is its own, nil for one in memory.
	x    *indexFile
	file *os.File

	op, action    uint64
	since, before uint64
	took          uint32
	outcomes      uint16
	fits          [fields][]bool // by number; nil: all do
	text          [fields][]bool
	// hash is what begins a hash or a name, in its last bits, if text may be that; shift is how many bits follow it.
	hash, shift uint64
	mayBeHash   bool
	owned       map[[2]uint32]bool
	block       []byte // the one that was read last; nil: none was
	blockNumber uint32
}

// match returns a matcher with what q needs of a segment's index; nil if nothing there can match.
func (s *Store) match(g *segment, q *Query) (*matcher, error) {
	m := &matcher{s: s, g: g, q: q, outcomes: ^uint16(0)}
	s.mu.Lock()
	first, last := g.first, g.last
	if g.index != nil {
		m.x = &indexFile{index: *g.index.snapshot()}
		for i := range m.x.has {
			m.x.has[i] = true
		}
	}
	s.mu.Unlock()
	if !q.Since.IsZero() && last < q.Since.UnixMilli() || !q.Before.IsZero() && first >= q.Before.UnixMilli() {
		return nil, nil
	}
	if m.x == nil {
		x, _, err := openIndex(g.path)
		if err != nil {
			return nil, err
		}
		m.x = x
	}
	if err := m.prepare(); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// prepare reads the columns and finds out which texts fit.
func (m *matcher) prepare() error {
	q, x := m.q, m.x
	if err := x.need(endedSection, tookSection, marksSection); err != nil {
		return err
	}
	m.before = ^uint64(0)
	if !q.Since.IsZero() {
		m.since = uint64(q.Since.UnixMilli())
	}
	if !q.Before.IsZero() {
		m.before = uint64(q.Before.UnixMilli())
	}
	m.took = uint32(min(q.MinRun.Milliseconds(), 1<<32-1))
	if len(q.Outcomes) > 0 {
		m.outcomes = 0
		for _, o := range q.Outcomes {
			m.outcomes |= 1 << (uint8(o) & outcomeMask)
		}
	}
	if q.Operation != "" || q.Action != "" {
		m.op, _ = digits(strings.TrimPrefix(q.Operation, operationPrefix))
		m.action, _ = digits(q.Action)
		if err := x.need(opsSection, actionsSection); err != nil {
			return err
		}
	}
	for f, glob := range q.Where {
		if err := x.need(textSections+section(f), tableSections+section(f)); err != nil {
			return err
		}
		fits, err := globbed(x.tables[f], glob)
		if err != nil {
			return err
		}
		m.fits[f] = fits
	}
	if q.Owned != nil {
		m.owned = map[[2]uint32]bool{}
		for _, f := range []Field{User, Instance} {
			if err := x.need(textSections+section(f), tableSections+section(f)); err != nil {
				return err
			}
		}
	}
	return m.prepareText()
}

// minDigits is how much of a hash is looked for as such.
const minDigits = 4

func (m *matcher) prepareText() error {
	text := strings.ToLower(m.q.Text)
	if text == "" {
		return nil
	}
	for f := range fields {
		if err := m.x.need(textSections+section(f), tableSections+section(f)); err != nil {
			return err
		}
		m.text[f] = make([]bool, len(m.x.tables[f]))
		for i, s := range m.x.tables[f] {
			m.text[f][i] = strings.Contains(strings.ToLower(s), text)
		}
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(text, operationPrefix), "/")
	v, n := digits(id)
	if rest := strings.Trim(id, "0123456789abcdef-"); n < minDigits || rest != "" {
		return nil
	}
	m.mayBeHash, m.shift = true, uint64(64-4*n)
	m.hash = v >> m.shift
	return m.x.need(opsSection, actionsSection)
}

// globbed says of each text whether it fits.
func globbed(table []string, glob string) ([]bool, error) {
	fits := make([]bool, len(table))
	if !strings.ContainsAny(glob, "*?") {
		for i, s := range table {
			fits[i] = s == glob
		}
		return fits, nil
	}
	p, err := pattern.New(map[string]string{"value": glob})
	if err != nil {
		return nil, err
	}
	for i, s := range table {
		fits[i] = p.Match(func(string) (string, bool) { return s, true })
	}
	return fits, nil
}

// matches reports whether the index says that a record is one that is looked for.
func (m *matcher) matches(row int) bool {
	x := m.x
	mark := x.marks[row]
	if ended := x.ended[row]; ended < m.since || ended >= m.before || x.took[row] < m.took ||
		m.outcomes>>(mark&outcomeMask)&1 == 0 || m.q.Retried && mark&retriedMark == 0 || m.q.Builds != (mark&buildMark != 0) {
		return false
	}
	if m.q.Operation != "" && x.ops[row] != m.op || m.q.Action != "" && x.actions[row] != m.action {
		return false
	}
	for f := range fields {
		if m.fits[f] != nil && !at(m.fits[f], x.texts[f][row]) {
			return false
		}
	}
	return (m.q.Text == "" || m.hasText(row)) && (m.owned == nil || m.owns(row))
}

// at is list[i], and false beyond its end: what is read from a file may be anything.
func at(list []bool, i uint32) bool { return int(i) < len(list) && list[i] }

func (m *matcher) hasText(row int) bool {
	for f := range fields {
		if at(m.text[f], m.x.texts[f][row]) {
			return true
		}
	}
	return m.mayBeHash && (m.x.ops[row]>>m.shift == m.hash || m.x.actions[row]>>m.shift == m.hash)
}

func (m *matcher) owns(row int) bool {
	x := m.x
	key := [2]uint32{x.texts[User][row], x.texts[Instance][row]}
	own, known := m.owned[key]
	if !known {
		if int(key[0]) >= len(x.tables[User]) || int(key[1]) >= len(x.tables[Instance]) {
			return false
		}
		own = m.q.Owned(x.tables[User][key[0]], x.tables[Instance][key[1]])
		m.owned[key] = own
	}
	return own
}

// read returns the encoded record of a row.
func (m *matcher) read(row int) ([]byte, error) {
	if err := m.x.need(blocksSection, itemsSection, offsetsSection); err != nil {
		return nil, err
	}
	number := m.x.blocks[row]
	if m.block == nil || m.blockNumber != number {
		block, err := m.readBlock(number)
		if err != nil {
			return nil, err
		}
		m.block, m.blockNumber = block, number
	}
	encoded, ok := itemAt(m.block, int(m.x.items[row]))
	if !ok {
		return nil, errDamaged
	}
	return encoded, nil
}

func (m *matcher) readBlock(number uint32) ([]byte, error) {
	g := m.g
	m.s.mu.Lock()
	offset := lostBlock
	var pending, data []byte
	switch i := int(number) - g.written; {
	case i >= 0 && i < len(g.pending):
		pending = g.pending[i]
	case g.index != nil && int(number) < len(g.index.offsets):
		offset = g.index.offsets[number]
	case int(number) < len(m.x.offsets):
		offset = m.x.offsets[number]
	}
	data = g.data
	m.s.mu.Unlock()
	if pending != nil {
		return pending, nil
	}
	if offset == lostBlock {
		return nil, errDamaged
	}
	var from io.ReaderAt = bytes.NewReader(data)
	if g.path != "" {
		if m.file == nil {
			file, err := os.Open(g.path)
			if err != nil {
				return nil, err
			}
			m.file = file
		}
		from = m.file
	}
	block, _, err := m.s.readBlock(from, int64(offset))
	return block, err
}

func (m *matcher) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
	if m.x.file != nil {
		_ = m.x.file.Close()
	}
}
