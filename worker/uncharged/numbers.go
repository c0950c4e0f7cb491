package uncharged

// numbers are those of file systems without a disk, each counted once.
type numbers struct {
	mounted, overlays map[int]bool // overlays are mounted, too
	opened            map[int]bool
	unmounted         int // how many of opened are not mounted
}

func newNumbers() numbers {
	return numbers{mounted: map[int]bool{}, overlays: map[int]bool{}, opened: map[int]bool{}}
}

// mount counts a mounted file system.
func (c *numbers) mount(number int, overlay bool) {
	if c.opened[number] && !c.mounted[number] {
		c.unmounted--
	}
	c.mounted[number] = true
	if overlay {
		c.overlays[number] = true
	}
}

// open counts the file system of an open file.
func (c *numbers) open(number int) {
	if !c.opened[number] && !c.mounted[number] {
		c.unmounted++
	}
	c.opened[number] = true
}

// n is how many there are at least. An overlay has one more for its files, which no mount shows, but
// perhaps an open file.
func (c *numbers) n() int { return len(c.mounted) + max(c.unmounted, len(c.overlays)) }
