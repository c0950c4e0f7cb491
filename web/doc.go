// Package web shows a scheduler to people: why builds wait, what runs where, and which of an
// action's inputs are never read.
//
// Pages are rendered here, from templates that are part of the program; what they show comes
// from the scheduler's own services, called without a network. Those that move are sent again
// as server-sent events whenever they look different, and one small script puts them into place;
// without it every page works, but stands still.
//
// # Bounds
//
// What the scheduler is asked costs it time. After a question it is left alone for 20 times as long, so
// that this is a twentieth of the time at most, whoever asks and however often; but for no more than half a
// second, as what takes long does so because the machine is busy. Answers of the last second are used
// again. A site that runs takes samples of queues and workers for its plots, in the same way, and keeps
// them as hints. Lists come in pages, input roots up to a number of files, live pages up to a number of
// viewers.
//
// # Who may what
//
// Audience says whom a page is for; a Guard of auth lets through who that is, and Refused answers the others. Without
// one, pages are for whoever reaches the port. What changes something (drain, cancel) is a form that browsers send from
// these pages only, and can be left out altogether. People log in and out on pages, by way of auth/login.
//
// Lock order: no mutex is held while another is taken, or while the scheduler is asked; whose turn
// it is to ask is a place in a channel.
package web
