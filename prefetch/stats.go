package prefetch

import "github.com/forerunner-build/forerunner/cas/digest"

// An Amount is a number of blobs and the sum of their sizes.
type Amount struct{ Files, Bytes int64 }

func (a *Amount) add(d digest.Digest) {
	a.Files++
	a.Bytes += d.SizeBytes()
}

// Stats say what a Race has done. What was local already, or was fetched by those
// who needed it, does not count as fetched.
type Stats struct {
	Foreseen    Amount // files that it wanted to be local, local or not, once per path
	Files       Amount // files that it fetched ahead
	Directories Amount // Directory messages that it fetched ahead
	// NearbyOff: reading ahead by nearness was given up, for too little was used.
	NearbyOff bool
}
