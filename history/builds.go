package history

import (
	"hash/maphash"
	"strings"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// maxFound limits the text of targetsOf, in bytes.
const maxFound = 2 << 10

// targetsOf returns the texts of the field Target of a build, one per line: the patterns to build,
// and the targets that failed.
func targetsOf(b *historypb.Build) string {
	var list strings.Builder
	add := func(label string) {
		if list.Len()+len(label) < maxFound {
			list.WriteString(label + "\n")
		}
	}
	for _, pattern := range b.GetPatterns() {
		add(pattern)
	}
	for _, t := range b.GetTargets() {
		if t.GetState() == historypb.Build_FAILED {
			add(t.GetLabel())
		}
	}
	for _, t := range b.GetTests() {
		if t.GetStatus() != "PASSED" {
			add(t.GetLabel())
		}
	}
	return strings.TrimSuffix(list.String(), "\n")
}

// placeOf returns the text of the field Worker of a build: the user and host that the build tool
// reports.
func originOf(b *historypb.Build) string {
	if b.GetLocalUser() == "" && b.GetHost() == "" {
		return ""
	}
	return b.GetLocalUser() + "@" + b.GetHost()
}

// builds are the builds that a search has found. Of each build, the last record comes first.
type builds struct {
	seed maphash.Seed
	seen map[uint64]bool
}

func newBuilds() *builds { return &builds{maphash.MakeSeed(), map[uint64]bool{}} }

// isLast reports whether a row is the last record of a build. It must be called for every row, from
// the last one on.
func (b *builds) isLast(m *matcher, row int) bool {
	x := m.x
	if x.marks[row]&buildMark == 0 || x.ended[row] >= m.before || !m.isFit(Invocation, row) {
		return false
	}
	var h maphash.Hash
	h.SetSeed(b.seed)
	for _, f := range []Field{User, Invocation} {
		number := x.texts[f][row]
		if int(number) >= len(x.tables[f]) {
			return false
		}
		_, _ = h.WriteString(x.tables[f][number])
		_ = h.WriteByte(0)
	}
	sum := h.Sum64()
	if b.seen[sum] {
		return false
	}
	b.seen[sum] = true
	return true
}

// globbedBuilds reports for each text of a field of builds whether the text, or one of its parts,
// matches.
func globbedBuilds(f Field, table []string, glob string) ([]bool, error) {
	fits, err := globbed(table, glob)
	if err != nil || f != Target && f != Worker {
		return fits, err
	}
	for i, s := range table {
		parts := strings.Split(s, "\n")
		if f == Worker {
			_, host, _ := strings.Cut(s, "@")
			parts = []string{host}
		}
		some, err := globbed(parts, glob)
		if err != nil {
			return nil, err
		}
		for _, fit := range some {
			fits[i] = fits[i] || fit
		}
	}
	return fits, nil
}

// globbedUsers reports for each origin, a host or user@host, whether its user matches.
func globbedUsers(origins []string, glob string) ([]bool, error) {
	users := make([]string, len(origins))
	for i, s := range origins {
		users[i], _, _ = strings.Cut(s, "@")
	}
	fits, err := globbed(users, glob)
	for i := range fits {
		fits[i] = fits[i] && users[i] != ""
	}
	return fits, err
}
