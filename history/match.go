package history

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/printable"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
)

// A matcher finds the records of a Query in one segment.
type matcher struct {
	s *Store
	g *segment
	q *Query
	// x has the columns that the Query needs. file is x's file; nil for a segment in memory.
	x    *indexFile
	file *os.File

	op, action    beginning
	since, before uint64
	took          uint32
	outcomes      uint16
	fits          [fields][]bool // by number of the text; nil: all match
	// localUser has the places of builds whose user matches, in case fits[User] does not.
	localUser []bool
	text      [fields][]bool
	// hash is the beginning of a hash or a name, in its lowest bits, if the Query's text may be
	// one. shift is the number of bits that follow it in a column.
	hash, shift uint64
	mayBeHash   bool
	owned       map[[2]uint32]bool
	builds      *builds
	block       []byte // the last block that was read; nil: none
	blockNumber uint32
}

// match returns a matcher for a segment; nil if nothing in the segment can match.
func (s *Store) match(g *segment, q *Query) (*matcher, error) {
	m := &matcher{s: s, g: g, q: q, outcomes: ^uint16(0)}
	s.mu.Lock()
	rows, first, last := g.rows, g.first, g.last
	if g.index != nil {
		m.x = wholeIndex(g.index)
	}
	s.mu.Unlock()
	if rows == 0 || !q.Since.IsZero() && last < q.Since.UnixMilli() || !q.Before.IsZero() && first >= endOf(q.Before) {
		return nil, nil
	}
	if m.x == nil {
		x, err := s.indexOf(g)
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

// endOf returns the first millisecond that begins at t or later.
func endOf(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// prepare reads the columns and finds the texts that match.
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
		m.before = uint64(endOf(q.Before))
	}
	m.took = uint32(min(q.MinRun.Milliseconds(), 1<<32-1))
	if len(q.Outcomes) > 0 {
		m.outcomes = 0
		for _, o := range q.Outcomes {
			m.outcomes |= 1 << (uint8(o) & outcomeMask)
		}
	}
	if q.Operation != "" || q.Action != "" {
		m.op = q.beginningOf(strings.TrimPrefix(q.Operation, names.OperationPrefix))
		m.action = q.beginningOf(q.Action)
		if err := x.need(opsSection, actionsSection); err != nil {
			return err
		}
	}
	for f, glob := range q.Where {
		if err := x.need(textSections+section(f), tableSections+section(f)); err != nil {
			return err
		}
		if err := m.fit(f, glob); err != nil {
			return err
		}
	}
	if q.Builds {
		for _, f := range []Field{User, Invocation} {
			if err := x.need(textSections+section(f), tableSections+section(f)); err != nil {
				return err
			}
		}
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

// fit finds the texts of a field that match.
func (m *matcher) fit(f Field, glob string) (err error) {
	if m.q.Exact {
		m.fits[f] = equal(m.x.tables[f], glob)
		return nil
	}
	if !m.q.Builds {
		m.fits[f], err = globbed(m.shown(f, glob), glob)
		if f == Target && glob == "" {
			for i, s := range m.x.tables[f] {
				m.fits[f][i] = m.fits[f][i] || isCommand(s)
			}
		}
		return err
	}
	if m.fits[f], err = globbedBuilds(f, m.x.tables[f], glob); err != nil || f != User {
		return err
	}
	if err := m.x.need(textSections+section(Worker), tableSections+section(Worker)); err != nil {
		return err
	}
	m.localUser, err = globbedUsers(m.x.tables[Worker], glob)
	return err
}

// shown returns the texts of a field as lists show them. Characters that are not seen are replaced
// only if what is wanted has one.
func (m *matcher) shown(f Field, wanted string) []string {
	list := m.named(f)
	if !strings.Contains(strings.ToUpper(wanted), printable.Mark) {
		return list
	}
	list = slices.Clone(list)
	for i, s := range list {
		list[i] = printable.Name(s)
	}
	return list
}

// named returns the texts of a field with the names of workers and the commands of operations
// without a target.
func (m *matcher) named(f Field) []string {
	table := m.x.tables[f]
	switch {
	case m.q.Builds:
		return table
	case f == Target:
		return withCommands(table)
	case f != Worker:
		return table
	}
	machines := make([]string, len(table))
	for i, key := range table {
		machines[i], _ = names.Machine(key)
	}
	return machines
}

// withCommands returns texts of Target without commandMark.
func withCommands(table []string) []string {
	if !slices.ContainsFunc(table, isCommand) {
		return table
	}
	list := make([]string, len(table))
	for i, s := range table {
		list[i] = strings.TrimPrefix(s, commandMark)
	}
	return list
}

// begin returns the row before which a page begins. It also notes the builds that earlier pages
// had.
func (m *matcher) begin(after position) int {
	rows, from := m.x.rows, m.x.rows
	switch {
	case m.g.number > after.segment:
		from = 0
	case m.g.number == after.segment:
		from = min(rows, after.row)
	}
	for row := rows - 1; row >= from && m.q.Builds; row-- {
		m.builds.isLast(m, row)
	}
	return from
}

// minDigits is the minimum number of digits for which a text counts as the beginning of a hash.
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
		for i, s := range m.shown(f, text) {
			m.text[f][i] = strings.Contains(strings.ToLower(s), text)
		}
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(text, names.OperationPrefix), "/")
	v, n := digits(id)
	if rest := strings.Trim(id, "0123456789abcdef-"); n < minDigits || rest != "" {
		return nil
	}
	m.mayBeHash, m.shift = true, uint64(64-4*n)
	m.hash = v >> m.shift
	return m.x.need(opsSection, actionsSection)
}

// equal reports for each text whether it equals text.
func equal(table []string, text string) []bool {
	fits := make([]bool, len(table))
	for i, s := range table {
		fits[i] = s == text
	}
	return fits
}

// globbed reports for each text whether it matches.
func globbed(table []string, glob string) ([]bool, error) {
	if !strings.ContainsAny(glob, "*?") {
		return equal(table, glob), nil
	}
	fits := make([]bool, len(table))
	p, err := pattern.New(map[string]string{"value": glob})
	if err != nil {
		return nil, err
	}
	for i, s := range table {
		fits[i] = p.Match(func(string) (string, bool) { return s, true })
	}
	return fits, nil
}

// A beginning is that of a name or hash, in the highest bits of digits: all of them, or those before
// a "*" or "?".
type beginning struct {
	digits uint64
	shift  int // number of bits that follow
}

// beginningOf returns what a name or hash begins with that matches glob.
func (q *Query) beginningOf(glob string) beginning {
	i := strings.IndexAny(glob, "*?")
	if i < 0 || q.Exact {
		v, _ := digits(glob)
		return beginning{v, 0}
	}
	v, n := digits(glob[:i])
	return beginning{v, 64 - 4*n}
}

func (b beginning) is(digits uint64) bool { return (digits^b.digits)>>b.shift == 0 }

// matches reports whether the columns of a row match.
func (m *matcher) matches(row int) bool {
	x := m.x
	mark := x.marks[row]
	if m.q.Builds && !m.builds.isLast(m, row) {
		return false
	}
	if ended := x.ended[row]; ended < m.since || ended >= m.before || x.took[row] < m.took ||
		m.outcomes>>(mark&outcomeMask)&1 == 0 || m.q.Retried && mark&retriedMark == 0 || m.q.Builds != (mark&buildMark != 0) {
		return false
	}
	if m.q.Operation != "" && !m.op.is(x.ops[row]) || m.q.Action != "" && !m.action.is(x.actions[row]) {
		return false
	}
	for f := range fields {
		if !m.isFit(f, row) {
			return false
		}
	}
	return (m.q.Text == "" || m.hasText(row)) && (m.owned == nil || m.owns(row))
}

// isConfirmed reports whether the record of a row that matches is requested. It reads the record only
// if the columns do not decide.
func (m *matcher) isConfirmed(row int) bool {
	isBorder := m.x.ended[row] == m.since || m.x.ended[row] == m.before-1 || m.q.MinRun > 0 && m.x.took[row] == m.took
	if m.q.Operation == "" && m.q.Action == "" && !isBorder {
		return true
	}
	r := &historypb.Record{}
	encoded, err := m.read(row)
	return err == nil && proto.Unmarshal(encoded, r) == nil && m.q.is(r)
}

// isFit reports whether the text in a field of a row matches.
func (m *matcher) isFit(f Field, row int) bool {
	return m.fits[f] == nil || at(m.fits[f], m.x.texts[f][row]) || f == User && m.localUser != nil && at(m.localUser, m.x.texts[Worker][row])
}

// at returns list[i], or false beyond the end of list, because data from a file may be wrong.
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
			m.s.tellDamage(m.g, err)
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
		pending = slices.Clone(g.pending[i]) // its memory is reused after it is written
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
		return nil, errGivenUp
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
	block, _, err := m.s.readBlock(from, g.format, int64(offset))
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
