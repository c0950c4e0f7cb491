package series

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"time"
)

// Lines are series of the same shape by name, such as one per worker. Their number is limited: when
// all are in use, a new name replaces the one that has been absent longest; if none is absent, the
// new name gets no series.
type Lines struct {
	shape Shape
	most  int
	keep  time.Duration // for how long an absent name is kept
	lines map[name]*line
}

// A name is the beginning of the hash of a name.
type name [16]byte

type line struct {
	*Series
	seen int64 // Unix time of the newest sample
}

// A Sample has the figures of one name.
type Sample struct {
	Name    string
	Figures []float32
}

// NewLines returns empty Lines.
func NewLines(shape Shape, most int, keep time.Duration) *Lines {
	return &Lines{shape, most, keep, map[name]*line{}}
}

// Add adds the samples of all present names. It drops names that have been absent too long.
func (l *Lines) Add(at time.Time, all []Sample) {
	now := at.Unix()
	var others []Sample
	for _, one := range all {
		if known := l.lines[nameOf(one.Name)]; known != nil {
			known.add(at, one.Figures)
		} else {
			others = append(others, one)
		}
	}
	away := l.away(now)
	for _, one := range others {
		if len(l.lines) >= l.most {
			if len(away) == 0 {
				return
			}
			delete(l.lines, away[0])
			away = away[1:]
		}
		n := nameOf(one.Name)
		if l.lines[n] == nil {
			l.lines[n] = &line{Series: New(l.shape)}
		}
		l.lines[n].add(at, one.Figures)
	}
}

func (l *line) add(at time.Time, figures []float32) {
	l.Series.Add(at, figures)
	l.seen = at.Unix()
}

// away drops names that have been absent too long and returns the other absent ones, the longest
// absent first.
func (l *Lines) away(now int64) (names []name) {
	for n, line := range l.lines {
		line.seen = min(line.seen, now) // the clock was set back
		switch {
		case now-line.seen > int64(l.keep/time.Second):
			delete(l.lines, n)
		case line.seen < now:
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(cmp.Compare(l.lines[a].seen, l.lines[b].seen), bytes.Compare(a[:], b[:]))
	})
	return names
}

// Bins returns the bins of a name, as Series.Bins does; nil if it has none.
func (l *Lines) Bins(of string, level int, now time.Time) []Bin {
	if line := l.lines[nameOf(of)]; line != nil {
		return line.Bins(level, now, 1)
	}
	return nil
}

func nameOf(s string) (n name) {
	sum := sha256.Sum256([]byte(s))
	copy(n[:], sum[:])
	return n
}
