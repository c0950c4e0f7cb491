package follow

// An account has mentioned files that are to be requested as soon as there is credit for them. It
// belongs to a search.
type account struct {
	// Passed are found ones in whose turn the action read others. One may be in several lists.
	found, passed, far turns
	window             window
	unread             int64 // bytes of requested and unread files
	earned             int64 // credit by files that were read
}

// add adds a wish that is to be requested.
func (a *account) add(w wish) {
	if w.far {
		a.far.add(w)
	} else {
		a.found.add(w)
	}
}

// waits reports whether there are files to be requested.
func (a *account) waits() bool { return len(a.found)+len(a.passed) > 0 }

// read notes that the action opens a file.
func (a *account) read(w *wish) {
	a.uncharge(w)
	a.earned += Credit*w.Digest.SizeBytes() + w.late
}

// take adds the next files to files while no more are unread than are free and earned. A part of
// what is free is kept for those that are read next.
func (a *account) take(s *search, free int64, files []File) []File {
	credit := free + a.earned
	free = credit - free/reservedPart
	files = a.takeNext(s, credit, free, files)
	files = a.takeFrom(&a.passed, s, free, free, files)
	return a.takeFrom(&a.far, s, free/farPart, free, files)
}

// takeNext takes found files: the whole credit is for those before which the action reads little
// that is under way.
func (a *account) takeNext(s *search, credit, free int64, files []File) []File {
	for ; len(a.found) > 0; a.found.drop() {
		w, ok := s.asked[a.found.next()]
		if !ok || w.stage != waiting {
			continue
		}
		if w.order < s.now {
			a.passed.add(w)
			continue
		}
		limit := free
		if a.window.between(s.now, w.order) < nextBytes {
			limit = credit
		}
		if !a.charge(s, w, limit, free) {
			break
		}
		files = append(files, w.File)
	}
	return files
}

// takeFrom takes the first files of a list while no more than credit is unread.
func (a *account) takeFrom(list *turns, s *search, credit, free int64, files []File) []File {
	for ; len(*list) > 0; list.drop() {
		w, ok := s.asked[list.next()]
		if !ok || w.stage != waiting {
			continue
		}
		if !a.charge(s, w, credit, free) {
			break
		}
		files = append(files, w.File)
	}
	return files
}

// charge charges a wish that is requested now, if no more than credit is unread then. Beyond the
// free credit it is short of it.
func (a *account) charge(s *search, w wish, credit, free int64) bool {
	size := max(w.Digest.SizeBytes(), leastBytes)
	if a.unread+size > credit {
		return false
	}
	a.unread += size
	w.charged, w.stage = awaited{w.order, size}, requested
	a.window.add(w.charged)
	if a.unread <= free {
		w.late = 0
	}
	s.asked[w.Path] = w
	return true
}

// uncharge undoes the charge of a wish.
func (a *account) uncharge(w *wish) {
	if w.charged.bytes > 0 {
		a.unread -= w.charged.bytes
		a.window.remove(w.charged)
		w.charged = awaited{}
	}
}
