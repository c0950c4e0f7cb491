package mention

import (
	"path"
	"slices"
	"strings"
)

var (
	// startModules are those that Python reads from files before the program, whatever that is. It
	// needs others of the standard library, too, which are built in from Python 3.11 on.
	startModules = []string{librarySign, "encodings/aliases", "encodings/utf_8", "sitecustomize"}
	// launchers start a Java virtual machine.
	launchers = []string{"java", "javac", "javadoc", "jar"}
	// startFiles are those that a Java virtual machine reads before the program, from the folder
	// above that of its launcher; not the largest ones.
	startFiles = []string{
		"lib/libjli.so", "lib/jvm.cfg", "lib/libjimage.so", "lib/libjava.so", "lib/libnio.so", "lib/libnet.so",
		"conf/security/java.security",
	}
)

// starts adds what the program that a word names reads first.
func (f *found) starts(word string) {
	if folder, name := path.Split(word); path.Base(folder) == "bin" && slices.Contains(launchers, name) {
		for _, file := range startFiles {
			f.add(Word, path.Join(folder, "..", file), false)
		}
	}
}

// isPython reports whether a word is the name of a Python interpreter.
func isPython(word string) bool { return strings.HasPrefix(path.Base(word), "python") }
