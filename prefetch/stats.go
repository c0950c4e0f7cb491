package prefetch

import "github.com/forerunner-build/forerunner/cas/digest"

// An Amount is a number of blobs and the sum of their sizes.
type Amount struct{ Files, Bytes int64 }

func (a *Amount) add(d digest.Digest) {
	a.Files++
	a.Bytes += d.SizeBytes()
}

// Stats say what a Race has done. What was local already, or was brought by those
// who needed it, does not count as fetched.
type Stats struct {
	Foreseen    Amount // files that it wanted to be local, local or not, once per path
	Files       Amount // files that it fetched ahead
	Directories Amount // Directory messages that it fetched ahead
	// NearbyOff: reading ahead by nearness was given up, for too little was used.
	NearbyOff bool
}

// An Outcome says what became of the files that a Race fetched ahead.
type Outcome struct {
	Stats
	Hits  Amount // fetched ahead, and read
	Waste Amount // fetched ahead, and not read
	// Misses are what was fetched, but not ahead: by those who needed it.
	Misses Amount
}

// HitRate returns the share of hits in all that was needed and fetched, from 0 to
// 1, and 1 if nothing was.
func (o Outcome) HitRate() float64 {
	if o.Hits.Files+o.Misses.Files == 0 {
		return 1
	}
	return float64(o.Hits.Files) / float64(o.Hits.Files+o.Misses.Files)
}

// Outcome compares what was fetched ahead with what the run then read: read reports
// whether it read the path of that hash, as Recorder.Has does. fetched is all that
// came from storage for the action meanwhile, ahead or not, directories included
// (fetch.ReadThrough.Fetched). It is called after Stop.
func (r *Race) Outcome(read func(PathHash) bool, fetched Amount) Outcome {
	o := Outcome{Stats: r.Stop()}
	if len(r.fetched) > 0 {
		was := make(map[digest.Digest]bool, len(r.fetched)) // read or not
		for _, d := range r.fetched {
			was[d] = false
		}
		// A blob may have several paths, of which one is enough.
		for _, f := range r.foreseen {
			if hit, ahead := was[f.digest]; ahead && !hit && read(f.hash) {
				was[f.digest] = true
			}
		}
		for d, hit := range was {
			if hit {
				o.Hits.add(d)
			} else {
				o.Waste.add(d)
			}
		}
	}
	o.Misses.Files = max(fetched.Files-o.Files.Files-o.Directories.Files, 0)
	o.Misses.Bytes = max(fetched.Bytes-o.Files.Bytes-o.Directories.Bytes, 0)
	return o
}
