// Package kind says which actions are alike: those that have their mnemonic, tool, platform and
// configuration in common. What is remembered of what actions read, and of how large they are, is
// remembered by the same kinds.
//
// It has no goroutines.
package kind
