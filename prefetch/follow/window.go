package follow

import (
	"cmp"
	"slices"
)

// maxAwaited limits the files of a window. More are read later than these.
const maxAwaited = 1024

// A window has the requested and unread files that an action reads soonest.
type window struct {
	files []awaited // in their order
}

// An awaited file is requested and unread.
type awaited struct {
	order order
	bytes int64
}

func (w *window) search(of awaited) (i int, found bool) {
	return slices.BinarySearchFunc(w.files, of, func(a, b awaited) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.bytes, b.bytes))
	})
}

func (w *window) add(a awaited) {
	i, _ := w.search(a)
	if i == maxAwaited {
		return
	}
	if len(w.files) == maxAwaited {
		w.files = w.files[:maxAwaited-1]
	}
	w.files = slices.Insert(w.files, i, a)
}

func (w *window) remove(a awaited) {
	if i, found := w.search(a); found {
		w.files = slices.Delete(w.files, i, i+1)
	}
}

// between returns the bytes of the files that are read from now on and before then.
func (w *window) between(now, then order) (bytes int64) {
	first, _ := w.search(awaited{order: now})
	for _, a := range w.files[first:] {
		if a.order >= then {
			break
		}
		bytes += a.bytes
	}
	return bytes
}
