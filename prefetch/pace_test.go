package prefetch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// windowOf is the window of all races together.
func windowOf(p *pace) int64 {
	window, _ := p.look(true)
	return window
}

// Over a link, the window becomes what it carries in about a round trip, and halves for two races.
func TestPaceFindsTheLink(t *testing.T) {
	for _, c := range []struct {
		bytesPerSecond float64
		trip           time.Duration
		least, most    int64
	}{
		{1e9, 50 * time.Millisecond, mostWindow, mostWindow},
		{12.5e6, 50 * time.Millisecond, 300 << 10, 2 << 20},
		{1e6, 10 * time.Millisecond, leastWindow, leastWindow},
	} {
		synctest.Test(t, func(t *testing.T) {
			var p pace
			p.took(time.Now().Add(-c.trip), 0, usage{bounded: true})
			for range 30 {
				began, window := time.Now(), windowOf(&p)
				time.Sleep(c.trip + time.Duration(float64(window)/c.bytesPerSecond*1e9))
				p.took(began, window, usage{full: true, bounded: true})
			}
			if got := windowOf(&p); got < c.least || got > c.most {
				t.Errorf("%g bytes a second, %s: window of %d bytes", c.bytesPerSecond, c.trip, got)
			}
			p.turn(true)
			window, second := p.look(false)
			if _, first := p.look(true); second != window/2 || first != window {
				t.Errorf("a second race has %d of %d bytes, the first %d", second, window, first)
			}
		})
	}
}

// On a machine where calls take long whatever they carry, the window does not stay small.
func TestPaceOfABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		p.took(time.Now().Add(-10*time.Millisecond), 0, usage{bounded: true})
		for range 40 {
			began := time.Now()
			time.Sleep(200 * time.Millisecond)
			p.took(began, windowOf(&p), usage{full: true, bounded: true})
		}
		if got := windowOf(&p); got < 4*firstWindow {
			t.Errorf("window of %d bytes", got)
		}
	})
}

// Calls that are slow because of bytes that the window does not bound, such as those of neighbours,
// do not make the link look longer.
func TestPaceOfWhatItDoesNotBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 10 * time.Millisecond
		var p pace
		p.took(time.Now().Add(-trip), 0, usage{bounded: true})
		for range 40 {
			began := time.Now()
			time.Sleep(200 * time.Millisecond)
			p.took(began, leastPerCall, usage{full: true})
		}
		if got := windowOf(&p); got != leastWindow || p.trip > trip*11/10 {
			t.Errorf("window of %d bytes, a round trip of %s", got, p.trip)
		}
	})
}

// The window bounds what is in flight, except neighbours and single files that are larger.
func TestUsageOfTheWindow(t *testing.T) {
	const window = 256 << 10
	files := func(w way, n int, bytes int64) (files []file) {
		for i := range n {
			files = append(files, file{digest: fileDigest(fmt.Sprint(i), bytes), hash: PathHash(i), class: class{way: w}})
		}
		return files
	}
	for _, c := range []struct {
		about string
		files []file
		want  usage
	}{
		{"little", files(near, 1, window/4), usage{bounded: true}},
		{"few neighbours", files(near, 4, window/4), usage{full: true, bounded: true}},
		{"many", files(near, 6, window/4), usage{full: true}},
		{"as many mentioned ones", files(mentioned, 6, window/4), usage{full: true, bounded: true}},
		{"a file that is larger", files(mentioned, 1, 2*window), usage{full: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, began := newQueue(Exact, nil, &pace{window: window}), time.Now()
			q.guess(c.files)
			taken(q)
			if got := q.usage(began); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
			}
			time.Sleep(time.Nanosecond)
			if got := q.usage(time.Now()); got != (usage{bounded: true}) {
				t.Errorf("%s: a later call has %+v", c.about, got)
			}
		})
	}
}

// What was here already says nothing of what the link carries.
func TestPaceLearnsFromWhatCame(t *testing.T) {
	var paths, read []string
	for i := range 30 { // two of them are a call
		read = append(read, fmt.Sprintf("f%02d", i), fmt.Sprintf("f%02dsmall", i))
		paths = append(paths, fmt.Sprintf("f%02d:120000", i), fmt.Sprintf("f%02dsmall:1000", i))
	}
	for _, here := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStorage()
			root := s.put(t, paths...)
			for i := 0; here && i < len(read); i += 2 {
				s.local[s.at(t, root, read[i])] = true
			}
			limits := NewLimits(LimitsOptions{})
			race(t, Spec{Root: root, Source: s, Profile: profileOf(read...), Origin: Exact, Limits: limits})
			if got := windowOf(&limits.pace); got > firstWindow == here {
				t.Errorf("large files are here: %t, the window has %d bytes", here, got)
			}
		})
	}
}
