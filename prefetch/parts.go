package prefetch

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// maxParted bounds the files of a Race of which parts come first.
const maxParted = 16

// parted are the large files whose known parts are requested before the rest. The queue's mu guards
// it.
type parted struct {
	known ranges
	files map[digest.Digest]int64 // of which parts wait, or were asked for: up to there
	left  int                     // of so many more files parts may be asked for
}

func newParted(known ranges) parted {
	return parted{known: known, files: map[digest.Digest]int64{}, left: maxParted}
}

// admits reports whether parts of f must be requested, and records that.
func (p *parted) admits(f file) bool {
	if _, again := p.files[f.digest]; again || len(p.known.of(f.hash, f.digest)) == 0 {
		return false
	}
	p.files[f.digest] = 0
	return true
}

// mayGo reports whether parts of f may be asked for: it is one of few, or some were already.
func (p *parted) mayGo(f file) bool { return p.left > 0 || p.files[f.digest] > 0 }

// take returns as many bytes of the parts of f as may be asked for, the first ones that were not,
// and whether that is all.
func (p *parted) take(f file, most int64) (parts span.Set, all bool) {
	if p.files[f.digest] == 0 {
		p.left--
	}
	for _, part := range p.known.of(f.hash, f.digest) {
		part.From = max(part.From, p.files[f.digest])
		if part.From >= part.To {
			continue
		}
		end := part.To
		if part.To = min(end, part.From+most); part.From < part.To {
			parts = append(parts, part)
			most -= part.To - part.From
			p.files[f.digest] = part.To
		}
		if part.To < end {
			return parts, false
		}
	}
	return parts, true
}
