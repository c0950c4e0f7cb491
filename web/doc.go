// Package web shows a scheduler to people: why builds wait, what runs where, and which of an
// action's inputs are never read.
//
// Pages are rendered here, from templates that are part of the program; what they show comes
// from the scheduler's own services, called without a network. Those that move are sent again
// as server-sent events whenever they look different, and one small script puts them into place;
// without it every page works, but stands still.
//
// # Rooms
//
// A Site says where each page is and whom it is for. Each page has a type of its own, which knows
// neither the Site nor other pages, but for those that it shows parts of. What they have in common
// is below: answers asks the scheduler; plots samples the farm and draws; printed shows what
// commands wrote; stored reads what is in storage.
//
// # Bounds
//
// What the scheduler is asked costs it a twentieth of its time at most (answers). Lists come in
// pages, input roots up to a number of files, live pages up to a number of viewers.
//
// # Who may what
//
// Audience says whom a page is for; a Guard of auth lets through who that is, and Refused answers
// the others. Without one, pages are for whoever reaches the port. What changes something (drain,
// cancel) is a form that browsers send from these pages only, and can be left out altogether.
// People log in and out on pages, by way of auth/login.
//
// There are no locks here: those of answers, plots and intake are each alone.
package web
