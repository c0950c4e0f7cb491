package scratch

import "time"

const (
	// longest is the time between two measurements, however little is written: others may have freed
	// what the command took.
	longest = 5 * time.Second
	// part: it is time to measure when 1/part of what is left is used.
	part = 4
)

// Disks are the file systems of a command's files, all together.
type Disks struct {
	// Used are bytes, and some for each file, as a command's limit counts them.
	Used int64
	// Free are the bytes that are left on the fullest of them.
	Free int64
	// Prompt: Used includes writes at once. The zero Disks are not prompt.
	Prompt bool
}

// A pace tells when it is time to measure files. Its zero value says that it is.
type pace struct {
	used int64 // Disks.Used when it was last asked
	// grown are the bytes by which Disks.Used has grown since the last measurement, without those by
	// which it has fallen in between.
	grown      int64
	last, next time.Time // when it was last measured, and when it may be again
}

// due reports whether it is time to measure files that may take at most most bytes and may grow by
// left bytes.
func (p *pace) due(now time.Time, most, left int64, d Disks) bool {
	p.grown += max(d.Used-p.used, 0)
	p.used = d.Used
	switch {
	case d.Prompt && p.grown > max(left, most/share): // there may be far too much, however long a look takes
		return true
	case now.Before(p.next):
		return false
	case p.last.IsZero() || !d.Prompt || now.Sub(p.last) >= longest:
		return true
	}
	return p.grown >= min(left, d.Free)/part
}

// measured says that a measurement has ended that due asked for.
func (p *pace) measured(began time.Time) {
	now := time.Now()
	p.last, p.next, p.grown = began, now.Add(share*now.Sub(began)), 0
}
