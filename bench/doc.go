// Package bench measures parts of Forerunner against what they are to be compared with.
//
// Each subcommand prints a table and writes a list of rows as JSON. It fails when
// something does not work, never because something is slow. The process serves
// FUSE, so all it runs after the setup is started by a launcher, and it never looks
// below its own mounts.
package bench
