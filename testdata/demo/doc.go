// Demo indexes a few short notes that it carries within it and prints what it
// found: how many words each has, which words are most frequent, and where a
// query matches best. It is the program that "forerunner demo" has built
// remotely: small, of several packages, and of the standard library alone.
package main
