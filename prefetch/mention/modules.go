package mention

import (
	"path"
	"strings"
)

// What may follow the name of a Python module, and of one that is a shared library.
var (
	pythons       = []string{".py", "/__init__.py"}
	sharedEndings = []string{".cpython-", ".abi3.so", ".so"}
)

// The standard library of Python is the folder pythonX.Y that has librarySign; its shared libraries
// are in extensions.
const (
	librarySign = "encodings"
	extensions  = "lib-dynload"
)

// module finds a Python module and the packages that contain it.
func (r *Resolver) module(from string, m Mention, settled bool) (files []string, known bool) {
	roots := []string{r.packageRoot(path.Dir(from))}
	for _, root := range append(roots, r.modules...) {
		files, s := r.below(root, m.Name)
		if s == Unknown {
			return nil, false
		}
		if s == File {
			r.modules = learn(r.modules, root)
			return files, true
		}
	}
	if m.Kind == Submodule {
		return nil, true // the name is something else in the module
	}
	if r.library(m.Name) {
		return r.module(from, m, settled)
	}
	if !settled {
		return nil, false
	}
	if root, ok := r.search(from, m.Name, pythons); ok {
		r.modules = learn(r.modules, root)
		files, _ = r.below(root, m.Name)
	}
	return files, true
}

// packageRoot returns the folder in which Python finds the package that has a module in folder.
func (r *Resolver) packageRoot(folder string) string {
	for range maxUp {
		if folder == "." {
			break
		}
		if _, s := r.tree.Look(path.Join(folder, "__init__.py")); s != File {
			break
		}
		folder = path.Dir(folder)
	}
	return folder
}

// below returns the files of a Python module in a folder, File if it is there: those of the packages
// that contain it, and its own.
func (r *Resolver) below(root, name string) (files []string, s PathState) {
	at, s := r.first(root, name, pythons)
	if s == Absent {
		at, s = r.extension(root, name)
	}
	if s != File {
		return nil, s
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if init, s := r.first(root, dir+"/__init__.py", plain); s == File && init != at {
			files = append(files, init)
		}
	}
	return append(files, at), File
}

// relative finds a Python module by its path from a folder.
func (r *Resolver) relative(folder, name string) (files []string, known bool) {
	if path.Base(name) == "." || name == "." {
		return r.only(r.first(folder, path.Join(name, "__init__.py"), plain))
	}
	at, s := r.first(folder, name, pythons)
	if s == Absent {
		at, s = r.extension(folder, name)
	}
	return r.only(at, s)
}

// extension finds a Python module that is a shared library, in a folder or where the standard library
// has them.
func (r *Resolver) extension(folder, name string) (at string, s PathState) {
	if base := path.Join(folder, name); Inside(base) {
		at, s = r.shared(path.Dir(base), path.Base(base))
	}
	if s == Absent && path.Base(name) == name {
		at, s = r.shared(path.Join(folder, extensions), name)
	}
	return at, s
}

// shared finds the shared library of a Python module in a folder.
func (r *Resolver) shared(folder, name string) (at string, s PathState) {
	folder, s = r.tree.Look(folder)
	if s != Folder {
		if s == File {
			s = Absent
		}
		return "", s
	}
	for _, ending := range sharedEndings {
		if file := r.tree.Starting(folder, name+ending); path.Ext(file) == ".so" {
			return r.tree.Look(path.Join(folder, file))
		}
	}
	return "", Absent
}

// library adds the folder of Python's standard library to the folders of modules, for the name of
// its part that says where that is, and reports whether it has found another one.
func (r *Resolver) library(name string) bool {
	if name != librarySign {
		return false
	}
	before := len(r.modules)
	for _, holder := range r.tree.Holding(name) {
		if strings.HasPrefix(path.Base(holder), "python") {
			if r.modules = learn(r.modules, holder); len(r.modules) > before {
				return true
			}
		}
	}
	return false
}
