package prefetch

import "github.com/forerunner-build/forerunner/prefetch/follow"

// A profile has limited credit: before any predicted file is read, as many bytes are requested as
// the link carries in about so many round trips, and at most so many bytes.
const (
	exactTrips   = 2
	exactCredit  = 16 << 20
	coarseTrips  = 1
	coarseCredit = 4 << 20
	// For each file that is read, the credit grows by a quarter of its bytes, and by as many as the
	// link carries in a 16th of a round trip, but by no more than so many times its bytes. From
	// quickCredit on, it grows by half of the bytes at most, and of a large file by less: a profile
	// that has everything would earn as fast as one that is right.
	creditOfRead = 7
	quickCredit  = 8 << 20
	// For each file that the profile has, and that the action opens before there is credit to request
	// it, there is more up to quickCredit: as much as the link carries in a delayedShare of a round
	// trip. That does not help if there are manyDelays among the latest files, and more of them than
	// files that were requested.
	delayedShare = 4
	manyDelays   = 8
	delayWindow  = 32 // files that count; then they count half
	// Large files may have as many bytes in doubt as the action has read of predicted files, and as
	// the link carries in about so many round trips.
	largeTrips = 8
)

// A hope is that a file is read as the profile foresees.
type hope struct {
	bytes        int64
	asked, parts int64 // requested bytes: whole, and in parts
}

// A credit is how many bytes of the files that a profile predicts may be requested before the
// action reads them. It has no lock.
type credit struct {
	known map[PathHash]hope // predicted and unread files
	// over are predicted files that were read, and whether they have counted: the tree may show some
	// of them only later. At most maxFiles.
	over   map[PathHash]bool
	window int64 // that of the pace; its owner sets it
	// Predicted files are requested as long as doubt, the bytes of requested but unread ones, is
	// less than trust. The last small one may exceed that. Large ones have their own doubt, and
	// must leave small ones their credit; nearDoubt is that of neighbours. Part of trust is there
	// from the start, as trips and most say, and earned is the rest, by reads of so many bytes of
	// predicted files.
	trips, most                                 int64
	right, earned, doubt, largeDoubt, nearDoubt int64
	// reading is the size of a large file that was opened before it was requested. It counts as read
	// when the action opens another one: until then the action waits for it, and would wait longer
	// with what it earns on the link.
	reading int64
	// Of the predicted files that the action opened lately: those for which there was credit in
	// time, and the others.
	prompt, delayed int
}

func newCredit(o Origin) *credit {
	c := &credit{known: map[PathHash]hope{}, over: map[PathHash]bool{}, trips: exactTrips, most: exactCredit}
	if o == Coarse {
		c.trips, c.most = coarseTrips, coarseCredit
	}
	return c
}

// left is how many predicted bytes may still be requested. Neighbours, which the profile is not to
// blame for, take half of their bytes from it.
func (c *credit) left() int64 { return c.trust() - c.doubt - c.nearDoubt/2 }

// trust is how many bytes may be in doubt.
func (c *credit) trust() int64 { return min(c.trips*c.window, c.most) + c.earned }

// admitsLarge reports whether a large file may be requested: it may be in vain, and meanwhile it
// shares the link with calls that somebody waits for.
func (c *credit) admitsLarge(f file) bool {
	return c.largeDoubt+f.digest.SizeBytes() <= c.right+largeTrips*min(c.window, c.most)
}

// foresee notes that the profile predicts f.
func (c *credit) foresee(f file) {
	h := hope{bytes: f.digest.SizeBytes()}
	switch counted, over := c.over[f.hash]; {
	case !over: // else it would be in doubt for ever
		c.known[f.hash] = h
	case !counted: // the action was there before the walk
		c.over[f.hash] = true
		c.count(h)
	}
}

// expects reports whether the profile predicts a file at that path, which is unread.
func (c *credit) expects(h PathHash) bool {
	_, ok := c.known[h]
	return ok
}

// forget takes back what foresee noted, and reports whether there was something.
func (c *credit) forget(h PathHash) bool {
	f, ok := c.known[h]
	if ok {
		c.doubts(f.bytes, -f.asked, -f.parts)
		delete(c.known, h)
	}
	return ok
}

// ask notes that so many bytes of all of a file are asked for, and so many of parts of it.
func (c *credit) ask(f file, all, parts int64) {
	h, ok := c.known[f.hash]
	if !ok {
		return // it has been read by now
	}
	h.asked += all
	h.parts += parts
	c.known[f.hash] = h
	c.doubts(h.bytes, all, parts)
}

// doubts adds to the doubt of a file of that size.
func (c *credit) doubts(size, all, parts int64) {
	c.doubt += parts
	if size > largeBytes {
		c.largeDoubt += all
	} else {
		c.doubt += all
	}
}

// read notes that the action reads a file that the profile has, and returns how it was foreseen. If
// only credit was lacking there is more then, and neighbours would take it. If that has not helped
// with most of the latest files, the profile counts as lacking this one: it has too much else, or
// another order. So it does while the profile is held, unless the file was requested before.
func (c *credit) read(h PathHash, held bool) follow.Foresight {
	spent := c.left() <= 0
	f, ok := c.known[h]
	if ok {
		c.count(f)
		c.forget(h)
	}
	if len(c.over) < maxFiles {
		c.over[h] = ok || c.over[h]
	}
	isDelayed := spent && f.asked == 0 // it may not have been asked for, for lack of credit
	known := c.judge(isDelayed)
	switch {
	case f.asked > 0:
		return follow.Foreseen
	case held:
		return follow.Lacked
	case ok && isDelayed && c.earned < quickCredit:
		c.earned += c.window / delayedShare
	}
	return known
}

// judge notes whether a file that the profile has was delayed, and returns how it was foreseen.
func (c *credit) judge(isDelayed bool) follow.Foresight {
	if c.prompt+c.delayed >= delayWindow {
		c.prompt, c.delayed = c.prompt/2, c.delayed/2
	}
	if !isDelayed {
		c.prompt++
		return follow.Foreseen
	}
	c.delayed++
	if c.earned >= quickCredit || c.delayed >= manyDelays && c.delayed > c.prompt {
		return follow.Lacked
	}
	return follow.Delayed
}

// count counts a predicted file that the action opens.
func (c *credit) count(f hope) {
	c.earn(c.reading)
	c.reading = 0
	if f.bytes > largeBytes && f.asked+f.parts == 0 {
		c.reading = f.bytes
	} else {
		c.earn(f.bytes)
	}
}

// earn adds what the read of a predicted file of that size earns.
func (c *credit) earn(size int64) {
	c.right += size
	more := min(creditOfRead*size, size/4+c.window/16)
	if c.earned >= quickCredit {
		more = min(more, size/2, largeBytes/2)
	}
	c.earned += more
}
