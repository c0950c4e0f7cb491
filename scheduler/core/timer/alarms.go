package timer

// An alarm is a timer with its sort key, so that comparisons need not read timers anywhere in
// memory. The key is not later than the timer's time.
type alarm struct {
	at    moment
	order uint64
	timer *Timer
}

func (a *alarm) before(b *alarm) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.order < b.order
}

// alarms are the alarms of a Heap. There can be millions: pages of them never move, as to copy all
// to a larger place would take longer than any event may. One page that is empty stays, or a number
// that goes up and down at its bound would make garbage all the time.
type alarms struct {
	pages []*page
	n     int
}

type page [1 << pageBits]alarm

const pageBits = 13

func (as *alarms) len() int { return as.n }

// at returns the alarm at place i.
func (as *alarms) at(i int) *alarm { return &as.pages[i>>pageBits][i&(len(page{})-1)] }

// grow makes room for one more, at the end.
func (as *alarms) grow() {
	if as.n>>pageBits == len(as.pages) {
		as.pages = append(as.pages, new(page))
	}
	as.n++
}

// cut takes the last one away and returns it.
func (as *alarms) cut() alarm {
	as.n--
	last := as.at(as.n)
	gone := *last
	*last = alarm{}
	if end := len(as.pages) - 1; end > (as.n+len(page{})-1)>>pageBits {
		as.pages[end] = nil
		as.pages = as.pages[:end]
	}
	return gone
}
