// Package kind defines which actions are similar: those with the same mnemonic, tool, platform and
// configuration. Profiles and statistics use the same kinds.
//
// It has no goroutines.
package kind
