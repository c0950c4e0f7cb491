// Package timeline shows which worker ran what of a build, and when: as lanes of a page, as
// messages for the script of a page that is live, and as a Chrome trace. It asks nobody: the caller
// adds records as he reads them, and says what runs.
package timeline
