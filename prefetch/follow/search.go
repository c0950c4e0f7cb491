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
	lacking  bool     // there is no profile, or it lacked a file

	asked   map[string]wish          // by path: requested, or to be requested, and not read
	read    map[string]order         // by path: of opened files
	now     order                    // of the file that was opened last
	paths   map[digest.Digest]string // of opened files
	early   map[digest.Digest]cas.Presence
	ours    map[digest.Digest]struct{} // fetched ahead
	scanned map[string]struct{}        // by path
	glanced map[string]struct{}        // by path: doubtful files that were scanned before the action opened them
	due     []File                     // to be scanned: they have come, and are doubtful no more
	room    int                        // for paths in asked and read

	arguments map[string]struct{} // paths of files with words of the command line

	// Nothing that the action needs was absent so far. Then local files are not scanned, but kept.
	warm bool
	kept []File

	waiting []pending
	// Files of asked, to be requested as soon as there is credit. Passed are found ones in whose turn
	// the action read others. One may be in several lists.
	found, passed, far turns
	window             window
	unread, right      int64 // bytes of requested files: unread, and read
	rightWords         int   // doubtful words of the command line that were files which the action opened
	lacks              int64 // opened files that the profile lacked
	late               int64 // credit for files that were opened before they were requested
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

// commanded notes the command. It has its say unless there is a profile that lacks nothing.
func (s *search) commanded(ctx context.Context, c *Command) {
	if len(c.WorkingDirectory) > maxPath {
		return
	}
	s.command = c
	s.resolver.WorkIn(c.WorkingDirectory)
	if s.lacking {
		s.words(ctx, false)
	}
}

// lack notes that the action has opened a file that the profile lacks.
func (s *search) lack(ctx context.Context) {
	if !s.lacking && s.command != nil {
		s.words(ctx, false)
	}
	s.lacking = true
}

// words finds what the command line mentions. With sure, none of that is doubtful.
func (s *search) words(ctx context.Context, sure bool) {
	for i, m := range mention.Words(s.command.Args) {
		m.Doubtful = m.Doubtful && !sure
		s.consider(ctx, pending{order: order("").below(i), Mention: m})
	}
}

// opened handles an open of the action.
func (s *search) opened(ctx context.Context, at string) {
	if w, ok := s.asked[at]; ok {
		delete(s.asked, at)
		s.now = w.order
		if w.Doubtful && w.word {
			if s.rightWords++; s.rightWords == sureWords {
				s.words(ctx, true)
			}
		}
		s.uncharge(&w)
		s.right += w.Digest.SizeBytes()
		s.late += w.late
		s.known.looks += looksOfRight
	}
	if s.hasRoom(at) {
		s.read[at] = s.now
	}
	if len(s.found)+len(s.passed) > 0 {
		delete(s.scanned, at) // what it mentions may wait behind what the action has passed
	}
	if s.Foresees != nil && s.Foresees(at) {
		return
	}
	s.lacks++
	s.lack(ctx)
	if len(s.paths) == maxMentioned {
		return
	}
	d, ok := s.known.file(at)
	if !ok {
		return
	}
	s.paths[d] = at
	if was, ok := s.early[d]; ok {
		delete(s.early, d)
		s.came(ctx, came{d, was})
	}
}

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
		s.scan(ctx, at, c.digest)
	}
}

// chill scans the local files that were kept, because something was absent: what they mention may
// be, too.
func (s *search) chill(ctx context.Context) {
	s.warm = false
	for _, f := range s.kept {
		s.scan(ctx, f.Path, f.Digest)
	}
	s.kept = nil
}

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
		if ours && s.warm {
			s.chill(ctx)
		}
		if !ours && !e.failed && len(s.ours) < maxMentioned { // it cost nothing
			s.uncharge(&w)
		}
		w.stage = there
		s.asked[f.Path] = w
		switch {
		case w.Doubtful:
			if !w.far && !s.warm {
				s.glance(ctx, f.Path, f.Digest)
			}
		case s.warm:
			s.kept = append(s.kept, f)
		default:
			s.scan(ctx, f.Path, f.Digest)
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

// catchUp scans the files that have come, and are doubtful no more.
func (s *search) catchUp(ctx context.Context) {
	for len(s.due) > 0 {
		f := s.due[0]
		s.due = s.due[1:]
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
	w := wish{File: File{Path: at, Digest: d, Doubtful: p.Doubtful}, order: p.order, late: lateBytes, far: p.far, word: p.from == ""}
	s.asked[at] = w
	if p.far {
		s.far.add(w)
		return
	}
	s.found.add(w)
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
			s.found.add(w)
		}
	}
	if w.Doubtful && !p.Doubtful {
		w.Doubtful = false
		if s.asked[w.Path] = w; w.stage == there {
			s.due = append(s.due, w.File)
		}
	}
}

// request requests the found files, as many as there is credit for, and directories. A part of the
// credit is kept for those that are read next.
func (s *search) request() {
	free := int64(FreeBytes)
	if s.Foresees != nil {
		free = min(free, freeOfLack*s.lacks)
	}
	credit := free + Credit*s.right + s.late
	free = credit - free/reservedPart
	files := s.takeNext(credit, free, nil)
	files = s.take(&s.passed, free, free, files)
	files = s.take(&s.far, free/farPart, free, files)
	s.of.mu.Lock()
	for _, f := range files {
		s.of.requested[f.Path] = struct{}{}
	}
	s.of.mu.Unlock()
	if len(files) > 0 {
		s.Request(files)
	}
	if ds := s.known.missing(); len(ds) > 0 {
		s.Fetch(ds)
	}
}

// takeNext is take for found files: the whole credit is for those before which the action reads
// little that is under way.
func (s *search) takeNext(credit, free int64, files []File) []File {
	for ; len(s.found) > 0; s.found.drop() {
		w, ok := s.asked[s.found.next()]
		if !ok || w.stage != waiting {
			continue
		}
		if w.order < s.now {
			s.passed.add(w)
			continue
		}
		limit := free
		if s.window.between(s.now, w.order) < nextBytes {
			limit = credit
		}
		if !s.charge(w, limit, free) {
			break
		}
		files = append(files, w.File)
	}
	return files
}

// take adds the first wishes of a list to files while no more than credit is unread.
func (s *search) take(from *turns, credit, free int64, files []File) []File {
	for ; len(*from) > 0; from.drop() {
		w, ok := s.asked[from.next()]
		if !ok || w.stage != waiting {
			continue
		}
		if !s.charge(w, credit, free) {
			break
		}
		files = append(files, w.File)
	}
	return files
}

// charge charges a wish that is requested now, if no more than credit is unread then. Beyond the
// free credit it is short of it.
func (s *search) charge(w wish, credit, free int64) bool {
	size := max(w.Digest.SizeBytes(), leastBytes)
	if s.unread+size > credit {
		return false
	}
	s.unread += size
	w.charged, w.stage = awaited{w.order, size}, requested
	s.window.add(w.charged)
	if s.unread <= free {
		w.late = 0
	}
	s.asked[w.Path] = w
	return true
}

// uncharge undoes the charge of a wish.
func (s *search) uncharge(w *wish) {
	if w.charged.bytes > 0 {
		s.unread -= w.charged.bytes
		s.window.remove(w.charged)
		w.charged = awaited{}
	}
}
