package prefetch

import (
	"context"
	"path"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// The bounds of reading ahead by mentions.
const (
	// mentionFree is how many bytes of mentioned and unread files may be there, or on their way, in
	// addition to creditOfMention times the bytes of mentioned files that the action has read.
	mentionFree     = 4 << 20
	creditOfMention = 2
	// maxMentioned limits the files that are known by mentions, and what waits for something.
	maxMentioned = 1 << 16
	// mentionDirectories limits the directories that are fetched for mentions.
	mentionDirectories = 2048
)

// mentions has what happens in a Race that may have files read ahead by mentions: one goroutine
// handles it. The methods of nil do nothing.
type mentions struct {
	wake chan struct{} // one place

	mu       sync.Mutex
	news     news                  // guarded by mu; to handle
	foreseen map[PathHash]struct{} // guarded by mu; files that were requested
}

// news is what has happened since the last look.
type news struct {
	opened  []string
	came    []came
	calls   []call
	learned bool // there are more directories
	settled bool // no more come by themselves
}

// came is a file that the action has opened: its content is there.
type came struct {
	digest digest.Digest
	was    cas.Presence
}

func newMentions() *mentions {
	return &mentions{wake: make(chan struct{}, 1), foreseen: map[PathHash]struct{}{}}
}

func (m *mentions) note(add func(*news)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	add(&m.news)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mentions) take() news {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.news
	m.news = news{settled: n.settled}
	return n
}

// opened reports that the action opens a file for the first time.
func (m *mentions) opened(path string) {
	m.note(func(n *news) {
		if len(n.opened) < maxOpened {
			n.opened = append(n.opened, path)
		}
	})
}

func (m *mentions) ended(batch []file, fetched []digest.Digest) {
	m.note(func(n *news) { n.calls = append(n.calls, call{batch, fetched}) })
}

// learned reports that there are more directories, settled that no more come by themselves.
func (m *mentions) learned() { m.note(func(n *news) { n.learned = true }) }
func (m *mentions) settled() { m.note(func(n *news) { n.learned, n.settled = true, true }) }

// foresee notes that a file has been requested.
func (m *mentions) foresee(h PathHash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.foreseen[h] = struct{}{}
}

// has reports whether a file has been requested because another one mentions it.
func (m *mentions) has(h PathHash) (foreseen bool) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, foreseen = m.foreseen[h]
	}
	return foreseen
}

// Came reports that the content of a file that the action opens is there, or that of an arriving
// one begins to be, and where it was before. It does not wait.
func (r *Race) Came(d digest.Digest, was cas.Presence) {
	r.mentions.note(func(n *news) {
		if len(n.came) < maxOpened {
			n.came = append(n.came, came{d, was})
		}
	})
}

// follow handles what happens until ctx ends.
func (r *Race) follow(ctx context.Context, s Spec) {
	f := newFollower(r, s)
	for {
		n := r.mentions.take()
		f.settled = n.settled
		for _, path := range n.opened {
			f.opened(path)
		}
		for _, c := range n.came {
			f.came(c)
		}
		for _, c := range n.calls {
			f.ended(c)
		}
		if n.learned {
			f.again()
		}
		f.request(ctx)
		select {
		case <-r.mentions.wake:
		case <-ctx.Done():
			return
		}
	}
}

// A wish is a file that another one mentions.
type wish struct {
	path    string
	file    file
	charged int64 // its bytes, while they count as unread
}

// A pending mention needs directories that are not there yet.
type pending struct {
	from string // the path of the mentioning file; "": the command line
	mention.Mention
}

// A follower reads files that have come, and finds which files they mention. It belongs to one
// goroutine.
type follower struct {
	race     *Race
	contents func(digest.Digest) ([]byte, bool)
	known    *knownTree
	resolver *mention.Resolver
	settled  bool

	asked   map[PathHash]wish        // requested, or to be requested, and not read
	read    map[PathHash]struct{}    // opened
	paths   map[digest.Digest]string // of opened files
	early   map[digest.Digest]cas.Presence
	ours    map[digest.Digest]struct{} // fetched ahead
	scanned map[digest.Digest]struct{}

	// Nothing that the action needs was absent so far. Then local files are not scanned, but kept.
	warm bool
	kept []wish

	waiting       []pending
	found, later  []wish // to be requested: now, and when there is credit
	unread, right int64  // bytes of requested files: unread, and read
}

func newFollower(r *Race, s Spec) *follower {
	f := &follower{
		race: r, contents: s.Contents, known: newKnownTree(s.Source, s.Root),
		asked: map[PathHash]wish{}, read: map[PathHash]struct{}{}, paths: map[digest.Digest]string{},
		early: map[digest.Digest]cas.Presence{}, ours: map[digest.Digest]struct{}{}, scanned: map[digest.Digest]struct{}{},
		warm: true,
	}
	f.resolver = mention.NewResolver(f.known, s.WorkingDirectory)
	if r.profile == nil { // otherwise the profile knows better
		for _, m := range mention.Words(s.Args) {
			f.consider(pending{Mention: m})
		}
	}
	return f
}

// opened handles an open of the action.
func (f *follower) opened(path string) {
	h := HashPath(path)
	f.read[h] = struct{}{}
	if w, ok := f.asked[h]; ok {
		delete(f.asked, h)
		f.unread -= w.charged
		f.right += w.file.digest.SizeBytes()
	}
	if f.race.profile != nil && f.race.profile.containsSmall(h) || len(f.paths) == maxMentioned {
		return
	}
	d, ok := f.known.file(path)
	if !ok {
		return
	}
	f.paths[d] = path
	if was, ok := f.early[d]; ok {
		delete(f.early, d)
		f.came(came{d, was})
	}
}

// came scans a file that the action has opened, if it was not local before the action.
func (f *follower) came(c came) {
	path, ok := f.paths[c.digest]
	if !ok {
		if len(f.early) < maxMentioned {
			f.early[c.digest] = c.was
		}
		return
	}
	if _, ours := f.ours[c.digest]; ours || c.was != cas.Local {
		f.chill()
		f.scan(path, c.digest)
	}
}

// chill scans the local files that were kept, because something was absent: what they mention may
// be, too.
func (f *follower) chill() {
	f.warm = false
	for _, w := range f.kept {
		f.scan(w.path, w.file.digest)
	}
	f.kept = nil
}

// ended scans mentioned files that have come.
func (f *follower) ended(c call) {
	for _, d := range c.fetched {
		if len(f.ours) < maxMentioned {
			f.ours[d] = struct{}{}
		}
	}
	for _, fetched := range c.batch {
		w, ok := f.asked[fetched.hash]
		if fetched.class.way != mentioned || !ok {
			continue
		}
		_, ours := f.ours[fetched.digest]
		if ours && f.warm {
			f.chill()
		}
		if !ours { // it costs nothing
			f.unread -= w.charged
			w.charged = 0
			f.asked[fetched.hash] = w
		}
		switch {
		case fetched.class.rare:
		case f.warm:
			f.kept = append(f.kept, w)
		default:
			f.scan(w.path, fetched.digest)
		}
	}
}

// scan finds what a local file mentions.
func (f *follower) scan(at string, d digest.Digest) {
	if _, again := f.scanned[d]; again || !mention.Readable(at, d.SizeBytes()) {
		return
	}
	key := scanKey{d, path.Ext(at)}
	found, ok := f.race.limits.scans.get(key)
	if !ok {
		content, local := f.contents(d)
		if !local {
			return
		}
		found = mention.Extract(at, content)
		f.race.limits.scans.put(key, found)
	}
	f.scanned[d] = struct{}{}
	for _, m := range found {
		f.consider(pending{at, m})
	}
}

// consider finds the files of a mention, if enough directories are known.
func (f *follower) consider(p pending) {
	files, known := f.resolver.Resolve(p.from, p.Mention, f.settled)
	if !known && len(f.waiting) < maxMentioned {
		f.waiting = append(f.waiting, p)
	}
	for _, at := range files {
		f.ask(at, p.Doubtful)
	}
}

// again looks at mentions whose directories may have come.
func (f *follower) again() {
	f.known.forget()
	waiting := f.waiting
	f.waiting = nil
	for _, p := range waiting {
		f.consider(p)
	}
}

// ask wishes for a file.
func (f *follower) ask(at string, doubtful bool) {
	h := HashPath(at)
	if _, again := f.asked[h]; again || len(f.asked) == maxMentioned {
		return
	}
	if _, read := f.read[h]; read {
		return
	}
	d, ok := f.known.file(at)
	if !ok || d.SizeBytes() > nearFileBytes || d.IsEmptyBlob() {
		return
	}
	w := wish{path: at, file: file{digest: d, hash: h, class: class{way: mentioned, rare: doubtful}}}
	f.asked[h] = w
	f.found = append(f.found, w)
}

// request requests the found files, as many as there is credit for, and directories.
func (f *follower) request(ctx context.Context) {
	var files []file
	f.later = append(f.later, f.found...)
	f.found = nil
	for len(f.later) > 0 {
		w := f.later[0]
		size := w.file.digest.SizeBytes()
		if _, read := f.read[w.file.hash]; !read {
			if f.unread+size > mentionFree+creditOfMention*f.right {
				break
			}
			f.unread += size
			w.charged = size
			f.asked[w.file.hash] = w
			f.race.mentions.foresee(w.file.hash)
			files = append(files, w.file)
		}
		f.later = f.later[1:]
	}
	f.race.mentioned(files, f.unread)
	if ds := f.known.missing(); len(ds) > 0 {
		f.race.running.Go(func() { f.race.fetchDirectories(ctx, ds) })
	}
}
