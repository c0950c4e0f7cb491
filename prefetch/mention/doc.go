// Package mention finds the files that a text file mentions, such as headers that a source includes
// and modules that a program imports, and where they are in an input tree.
//
// Extract returns the mentions of a file by its language; Words returns those of a command line. A
// Resolver finds the mentioned files in a Tree, by the rules of the language as far as names and
// folders decide them. It evaluates no condition and no macro, so some mentioned files are not read.
//
// The package does no I/O, has no goroutines and looks at no clock. The content of a file can be
// hostile: it takes time linear in its size, and has at most MaxMentions mentions.
package mention
