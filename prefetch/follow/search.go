package follow

import (
	"context"
	"path"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// A stage says how far a wish is.
type stage uint8

const (
	waiting stage = iota // for its request
	requested
	there
)

// A wish is a file that another one mentions.
type wish struct {
	File
	account *account // of its search
	order   order
	stage   stage
	charged awaited // zero if its bytes do not count as unread
	late    int64   // the credit if the action opens it
	far     bool    // only unopened doubtful files mention it
	word    bool    // the command line mentions it
}

// A pending mention needs directories that are not there yet.
type pending struct {
	from string // the path of the mentioning file; "": the command line
	far  bool   // that file is doubtful, and not opened
	order
	mention.Mention
}

// A search reads files that have come, and finds which files they mention. It belongs to one
// goroutine.
type search struct {
	Spec
	of       *Follower
	known    *knownTree
	resolver *mention.Resolver
	settled  bool
	command  *Command // nil: not known yet

	asked   map[string]wish          // by path: requested, or to be requested, and not read
	read    map[string]order         // by path: of opened files
	now     order                    // of the file that was opened last
	paths   map[digest.Digest]string // of opened files
	early   map[digest.Digest]cas.Presence
	ours    map[digest.Digest]struct{} // fetched ahead
	scanned map[string]struct{}        // by path
	glanced map[string]struct{}        // by path: doubtful files that were scanned before the action opened them
	room    int                        // for paths in asked and read

	arguments map[string]struct{} // paths of files with words of the command line

	// Nothing that the action needs was absent so far.
	warm bool
	// There is no profile, or the action has opened a file that it lacks, or for which it had no credit.
	lacking bool
	kept    []File // to be scanned when it is lacking, and not warm

	waiting []pending
	// A profile knows better than mentions which files are read. So those that it lacks have credit of
	// their own, which grows with lacks, the opened files that it lacked.
	likely, strange account
	lacks           int64
	rightWords      int // doubtful words of the command line that were files which the action opened
}

func newSearch(of *Follower) *search {
	s := &search{
		Spec: of.spec, of: of, known: newKnownTree(of.spec.Source, of.spec.Root),
		asked: map[string]wish{}, read: map[string]order{}, paths: map[digest.Digest]string{},
		early: map[digest.Digest]cas.Presence{}, ours: map[digest.Digest]struct{}{}, scanned: map[string]struct{}{},
		glanced: map[string]struct{}{}, room: roomForPaths, arguments: map[string]struct{}{},
		warm: true, lacking: of.spec.Foresees == nil,
	}
	s.resolver = mention.NewResolver(s.known)
	return s
}

// commanded notes the command.
func (s *search) commanded(ctx context.Context, c *Command) {
	if len(c.WorkingDirectory) > maxPath {
		return
	}
	s.command = c
	s.resolver.WorkIn(c.WorkingDirectory)
	s.words(ctx, false)
}

// words finds what the command line mentions. With sure, none of that is doubtful.
func (s *search) words(ctx context.Context, sure bool) {
	for i, m := range mention.Words(s.command.Args) {
		m.Doubtful = m.Doubtful && !sure
		s.consider(ctx, pending{order: order("").below(i), Mention: m})
	}
}

// opened handles an open of the action. It reports whether another file mentions that one.
func (s *search) opened(ctx context.Context, at string, known Foresight) (mentioned bool) {
	early := !s.lacking
	if known != Foreseen {
		s.lack(ctx, at)
	}
	w, mentioned := s.asked[at]
	if mentioned {
		delete(s.asked, at)
		if early { // nothing was requested yet, with or without credit
			w.late = 0
		}
		s.now = w.order
		if w.Doubtful && w.word {
			if s.rightWords++; s.rightWords == sureWords {
				s.words(ctx, true)
			}
		}
		w.account.read(&w)
		s.known.looks += looksOfRight
	}
	if s.hasRoom(at) {
		s.read[at] = s.now
	}
	if s.likely.waits() || s.strange.waits() {
		delete(s.scanned, at) // what it mentions may wait behind what the action has passed
	}
	if len(s.paths) == maxMentioned {
		return mentioned
	}
	d, ok := s.known.file(at)
	if !ok {
		return mentioned
	}
	s.paths[d] = at
	if was, ok := s.early[d]; ok {
		delete(s.early, d)
		s.came(ctx, came{d, was})
	}
	return mentioned
}

// lack notes that the profile lacks a file that the action opens, or had no credit for it.
func (s *search) lack(ctx context.Context, at string) {
	if s.isStrange(at) {
		s.lacks++
	}
	if !s.lacking {
		s.lacking = true
		s.again(ctx)
		s.catchUp(ctx)
	}
}

// isStrange reports whether there is a profile that lacks a file.
func (s *search) isStrange(at string) bool { return s.Foresees != nil && !s.Foresees(at) }

// came scans a file that the action has opened, if it was not local before the action.
func (s *search) came(ctx context.Context, c came) {
	at, ok := s.paths[c.digest]
	if !ok {
		if len(s.early) < maxMentioned {
			s.early[c.digest] = c.was
		}
		return
	}
	if _, ours := s.ours[c.digest]; ours || c.was != cas.Local {
		s.chill(ctx)
		s.scanOrKeep(ctx, File{Path: at, Digest: c.digest})
	}
}

// chill notes that something was absent that the action needs: what others mention may be, too.
func (s *search) chill(ctx context.Context) {
	if s.warm {
		s.warm = false
		s.catchUp(ctx)
	}
}

// scanOrKeep scans a local file, or keeps it for later.
func (s *search) scanOrKeep(ctx context.Context, f File) {
	if !s.isQuiet() {
		s.scan(ctx, f.Path, f.Digest)
	} else if len(s.kept) < maxMentioned {
		s.kept = append(s.kept, f)
	}
}

// isQuiet reports whether no file is scanned yet.
func (s *search) isQuiet() bool { return s.warm || !s.lacking }

// ended scans mentioned files that have come.
func (s *search) ended(ctx context.Context, e ended) {
	for _, d := range e.fetched {
		if len(s.ours) < maxMentioned {
			s.ours[d] = struct{}{}
		}
	}
	for _, f := range e.files {
		w, ok := s.asked[f.Path]
		if !ok {
			continue
		}
		_, ours := s.ours[f.Digest]
		if ours {
			s.chill(ctx)
		}
		if !ours && !e.failed && len(s.ours) < maxMentioned { // it cost nothing
			w.account.uncharge(&w)
		}
		w.stage = there
		s.asked[f.Path] = w
		switch {
		case !w.Doubtful:
			s.scanOrKeep(ctx, f)
		case !w.far && !s.isQuiet():
			s.glance(ctx, f.Path, f.Digest)
		}
	}
}

// scan finds what a local file mentions.
func (s *search) scan(ctx context.Context, at string, d digest.Digest) {
	if _, again := s.scanned[at]; again {
		return
	}
	if found, ok := s.mentions(ctx, at, d); ok {
		s.scanned[at] = struct{}{}
		own := s.orderOf(at)
		for i, m := range found {
			s.consider(ctx, pending{from: at, order: own.below(i), Mention: m})
		}
	}
}

// glance finds what a local file mentions that the action may never open. All of it is doubtful,
// and nobody looks further before the action opens the file.
func (s *search) glance(ctx context.Context, at string, d digest.Digest) {
	if _, again := s.glanced[at]; again {
		return
	}
	if found, ok := s.mentions(ctx, at, d); ok {
		s.glanced[at] = struct{}{}
		own := s.orderOf(at)
		for i, m := range found {
			if !m.Doubtful {
				m.Doubtful = true
				s.consider(ctx, pending{at, true, own.below(i), m})
			}
		}
	}
}

// orderOf returns the order of a file that is opened or mentioned.
func (s *search) orderOf(at string) order {
	if w, ok := s.asked[at]; ok {
		return w.order
	}
	return s.read[at]
}

// mentions returns what a local file mentions; false: nobody can tell.
func (s *search) mentions(ctx context.Context, at string, d digest.Digest) ([]mention.Mention, bool) {
	if _, ok := s.arguments[at]; ok {
		at = mention.NameOfArguments(at)
	}
	if s.over(ctx) || !mention.Readable(at, d.SizeBytes()) {
		return nil, false
	}
	key := scanKey{d, path.Ext(at)}
	found, ok := s.Scans.Get(key)
	if !ok {
		content, local := s.Contents(d)
		if !local {
			return nil, false
		}
		var steps int
		found, steps = mention.Extract(at, content)
		s.known.looks -= len(content)/lookBytes + steps/lookSteps
		s.Scans.add(key, found)
	}
	return found, true
}

// catchUp scans the files that were kept.
func (s *search) catchUp(ctx context.Context) {
	for len(s.kept) > 0 && !s.isQuiet() {
		f := s.kept[0]
		s.kept = s.kept[1:]
		s.scan(ctx, f.Path, f.Digest)
	}
}

// over reports whether nothing more is looked for.
func (s *search) over(ctx context.Context) bool { return s.known.looks <= 0 || ctx.Err() != nil }

// consider finds the files of a mention, if enough directories are known.
func (s *search) consider(ctx context.Context, p pending) {
	if s.known.looks--; s.over(ctx) {
		return
	}
	files, known := s.resolver.Resolve(p.from, p.Mention, s.settled)
	if !known && len(s.waiting) < maxMentioned {
		s.waiting = append(s.waiting, p)
	}
	for _, at := range files {
		if p.Kind == mention.Arguments && len(s.arguments) < maxMentioned {
			s.arguments[at] = struct{}{}
		}
		s.ask(p, at)
	}
}

// again looks at mentions whose directories may have come.
func (s *search) again(ctx context.Context) {
	s.known.forget()
	waiting := s.waiting
	s.waiting = nil
	for _, p := range waiting {
		s.consider(ctx, p)
	}
}

// ask wishes for a file of a mention.
func (s *search) ask(p pending, at string) {
	if w, again := s.asked[at]; again {
		s.askAgain(p, w)
		return
	}
	if _, read := s.read[at]; read || len(s.asked) == maxMentioned {
		return
	}
	d, ok := s.known.file(at)
	if !ok || d.SizeBytes() > maxFileBytes || d.IsEmptyBlob() || !s.hasRoom(at) {
		return
	}
	w := wish{
		File: File{Path: at, Digest: d, Doubtful: p.Doubtful}, account: &s.likely, order: p.order, late: lateBytes,
		far: p.far, word: p.from == "",
	}
	if s.isStrange(at) {
		w.account = &s.strange
	}
	s.asked[at] = w
	w.account.add(w)
}

// hasRoom takes the room for a path, if there is any.
func (s *search) hasRoom(at string) bool {
	if s.room < len(at)+entryBytes {
		return false
	}
	s.room -= len(at) + entryBytes
	return true
}

// askAgain handles one more mention of a file, which may be less doubtful, or read sooner. If the
// action has passed the other ones, it may be this one that it follows.
func (s *search) askAgain(p pending, w wish) {
	passed := w.order < s.now && p.order >= s.now
	if !p.far && (w.far || passed || p.order < w.order) {
		if w.far = false; passed || p.order < w.order {
			w.order = p.order
		}
		if s.asked[w.Path] = w; w.stage == waiting {
			w.account.add(w)
		}
	}
	if w.Doubtful && !p.Doubtful {
		w.Doubtful = false
		if s.asked[w.Path] = w; w.stage == there {
			s.kept = append(s.kept, w.File)
		}
	}
}

// request requests the found files, as many as there is credit for, and directories. While the
// profile has all that the action opens, it requests nothing.
func (s *search) request() {
	if !s.lacking {
		return
	}
	files := s.likely.take(s, FreeBytes, nil)
	files = s.strange.take(s, min(FreeBytes, freeOfLack*s.lacks), files)
	if len(files) > 0 {
		s.Request(files)
	}
	if ds := s.known.missing(); len(ds) > 0 {
		s.Fetch(ds)
	}
}
