package mention

import (
	"path"
	"slices"
	"strings"
)

// A PathState is what is known of a path.
type PathState uint8

// What is known of a path.
const (
	Absent  PathState = iota
	Unknown           // a folder on the way is not known yet; the Tree may learn of it
	Folder
	File
)

// A Tree is an input tree, as far as it is known.
type Tree interface {
	// Look returns what is at a clean relative path; "." is the root. at is that path without
	// symlinks.
	Look(path string) (at string, s PathState)
	// Skip counts a path as one that was looked at.
	Skip()
	// Starting returns the first entry of a known folder whose name begins with prefix; "": there is
	// none.
	Starting(folder, prefix string) (name string)
	// Holding returns a few known folders that have an entry with that name.
	Holding(name string) []string
}

// The bounds of a Resolver.
const (
	maxFolders  = 256 // folders of headers, and of modules
	maxMemory   = 1 << 16
	freeSearch  = 16 // calls of Tree.Holding
	mostSearch  = 64 // of them, if they find something
	searchWorth = 4  // calls for each that found something
	maxUp       = 32 // folders above a file
)

// A Resolver finds mentioned files. It belongs to one goroutine.
type Resolver struct {
	tree Tree
	work string // the working directory
	// Folders in which mentioned files were, or that the command line names; first ones go first.
	headers, modules []string
	unknown          map[string]struct{} // those of headers that are not known yet
	searches, hits   int
	searched         map[string]struct{}
	resolved         map[named][]string // mentions that do not depend on the mentioning file
}

type named struct {
	kind Kind
	name string
}

// NewResolver returns a Resolver of a command that works in the root.
func NewResolver(t Tree) *Resolver {
	return &Resolver{tree: t, work: ".", unknown: map[string]struct{}{}, searched: map[string]struct{}{}, resolved: map[named][]string{}}
}

// WorkIn sets the working directory of the command, before its words are resolved.
func (r *Resolver) WorkIn(directory string) { r.work = path.Clean(directory) }

// Resolve returns the files that the file at from mentions by m, the most likely first. For a
// command line from is "". If known is false, ask again when the tree knows more folders: files are
// at most a guess until then. With settled, the tree will hardly learn more: then other folders are
// tried.
func (r *Resolver) Resolve(from string, m Mention, settled bool) (files []string, known bool) {
	switch m.Kind {
	case Include:
		return nil, r.include(m.Name)
	case Word, Arguments:
		return r.only(r.first(r.work, m.Name, plain))
	case Script:
		return r.only(r.first(path.Dir(from), m.Name, scripts))
	case Package:
		return r.packaged(path.Dir(from), m.Name)
	case Quoted:
		if at, s := r.first(path.Dir(from), m.Name, plain); s == File || s == Unknown {
			return r.only(at, s)
		}
	case Relative:
		return r.relative(path.Dir(from), m.Name)
	}
	key := named{m.Kind, m.Name}
	if m.Kind == Quoted {
		key.kind = Bracketed
	}
	if files, ok := r.resolved[key]; ok && !slices.Contains(files, from) {
		return files, true
	}
	if m.Kind == Module || m.Kind == Submodule {
		files, known = r.module(from, m, settled)
	} else {
		files, known = r.header(from, m.Name, settled)
	}
	if known && (settled || len(files) > 0) && len(r.resolved) < maxMemory && !slices.Contains(files, from) {
		r.resolved[key] = files
	}
	return files, known
}

// What may follow the name of a file.
var (
	plain   = []string{""}
	scripts = []string{
		"", ".js", ".mjs", ".cjs", ".json", ".ts", ".tsx", ".jsx", ".d.ts", "/index.js", "/index.mjs", "/index.cjs",
		"/index.ts", "/index.tsx", "/index.d.ts",
	}
)

func (r *Resolver) only(at string, s PathState) (files []string, known bool) {
	if s == File {
		return []string{at}, true
	}
	return nil, s != Unknown
}

// first returns the first file in a folder with that name and one of the endings.
func (r *Resolver) first(folder, name string, endings []string) (at string, s PathState) {
	base := path.Join(folder, name)
	if !Inside(base) {
		r.tree.Skip()
		return "", Absent
	}
	parent, s := r.tree.Look(path.Dir(base))
	if s == Unknown {
		return "", Unknown
	}
	if s != Folder {
		return "", Absent
	}
	base = path.Join(parent, path.Base(base))
	for _, ending := range endings {
		at, s := r.tree.Look(path.Clean(base + ending))
		if s == File || s == Unknown {
			return at, s
		}
	}
	return "", Absent
}

// Inside reports whether a clean path is in an input tree.
func Inside(p string) bool {
	return p != ".." && !strings.HasPrefix(p, "../") && !strings.HasPrefix(p, "/")
}

// include adds a folder of headers that the command line names. It keeps its turn while it is not
// known.
func (r *Resolver) include(name string) (known bool) {
	folder := path.Join(r.work, name)
	if !Inside(folder) {
		return true
	}
	at, s := r.tree.Look(folder)
	if s == Unknown {
		at = folder
	}
	_, waited := r.unknown[folder]
	turn := slices.Index(r.headers, folder)
	switch {
	case waited && s != Unknown:
		delete(r.unknown, folder)
		if r.headers = slices.Delete(r.headers, turn, turn+1); s == Folder && !slices.Contains(r.headers, at) {
			r.headers = slices.Insert(r.headers, turn, at)
		}
	case s != Absent && s != File && len(r.headers) < maxFolders && !slices.Contains(r.headers, at):
		r.headers = append(r.headers, at)
		if s == Unknown {
			r.unknown[folder] = struct{}{}
		}
	}
	return s != Unknown
}

// header finds a header in the folders of headers.
func (r *Resolver) header(from, name string, settled bool) (files []string, known bool) {
	known = true
	for _, folder := range r.headers {
		if _, wait := r.unknown[folder]; wait {
			r.tree.Skip()
			known = known && settled
			continue
		}
		at, s := r.first(folder, name, plain)
		if s == File && at != from {
			return []string{at}, known
		}
		known = known && s != Unknown
	}
	if !settled || !known {
		return nil, false
	}
	if folder, ok := r.search(from, name, plain); ok {
		r.headers = learn(r.headers, folder)
		return r.only(r.first(folder, name, plain))
	}
	return nil, true
}

// learn adds a folder behind others.
func learn(folders []string, folder string) []string {
	if len(folders) >= maxFolders || slices.Contains(folders, folder) {
		return folders
	}
	return append(folders, folder)
}

// search looks for a name in all known folders, and returns the one that shares most of its path
// with the file at from. It searches less if it finds little.
func (r *Resolver) search(from, name string, endings []string) (folder string, ok bool) {
	first, _, deeper := strings.Cut(name, "/")
	if _, again := r.searched[name]; again || r.searches >= min(freeSearch+searchWorth*r.hits, mostSearch) {
		return "", false
	}
	r.searched[name] = struct{}{}
	r.searches++
	names := []string{first}
	if !deeper {
		names = names[:0]
		for _, ending := range endings {
			entry, _, _ := strings.Cut(strings.TrimPrefix(first+ending, "/"), "/")
			names = append(names, entry)
		}
	}
	shared := -1
	for _, entry := range names {
		for _, holder := range r.tree.Holding(entry) {
			if n := sharedPath(holder, from); n > shared {
				if _, s := r.first(holder, name, endings); s == File {
					folder, shared = holder, n
				}
			}
		}
	}
	if shared >= 0 {
		r.hits++
	}
	return folder, shared >= 0
}

// sharedPath returns the number of components with which both paths begin.
func sharedPath(a, b string) (n int) {
	for {
		first, aRest, aMore := strings.Cut(a, "/")
		other, bRest, bMore := strings.Cut(b, "/")
		if first != other {
			return n
		}
		n++
		if !aMore || !bMore {
			return n
		}
		a, b = aRest, bRest
	}
}

// packaged finds a module of a JavaScript package, and the package's description.
func (r *Resolver) packaged(folder, name string) (files []string, known bool) {
	parts := strings.SplitN(name, "/", 3)
	own := 1
	if strings.HasPrefix(name, "@") {
		own = 2
	}
	own = min(own, len(parts))
	pack, sub := strings.Join(parts[:own], "/"), strings.Join(parts[own:], "/")
	for range maxUp {
		home := path.Join(folder, "node_modules", pack)
		at, s := r.tree.Look(home)
		if s == Unknown {
			return nil, false
		}
		if s == Folder {
			return r.inPackage(at, sub)
		}
		if folder == "." || folder == "/" {
			break
		}
		folder = path.Dir(folder)
	}
	return nil, true
}

func (r *Resolver) inPackage(home, sub string) (files []string, known bool) {
	description, s := r.first(home, "package.json", plain)
	if s == Unknown {
		return nil, false
	}
	if s == File {
		files = append(files, description)
	}
	endings := scripts
	if sub == "" { // the description may mention others
		sub, endings = "index.js", plain
	}
	at, s := r.first(home, sub, endings)
	if s == File {
		files = append(files, at)
	}
	return files, s != Unknown
}
