// Package timeline shows which worker ran which actions of a build, and when: as lanes on a page,
// as messages for the script of a live page, and as a Chrome trace. It makes no requests: the
// caller adds records and running actions.
package timeline
