// Package paths says how paths of files lie to each other. It looks at their text alone, not at the
// disk: whoever asks has resolved symlinks where they matter.
package paths
