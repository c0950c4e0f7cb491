// Package ids reserves users and groups of the machine for the commands of a worker that runs as
// root.
package ids
