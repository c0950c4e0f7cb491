// Package web shows a scheduler to people: why builds wait, what runs where, and which inputs of an
// action are never read.
//
// Pages are rendered here, from templates that are part of the program; their data comes from the
// scheduler's own services, called without a network. Live pages are sent again as server-sent
// events whenever they look different, and one small script updates them; without it every page
// works, but does not update.
//
// # Structure
//
// A Site has the path and audience of each page. Each page has a type of its own, which knows
// neither the Site nor other pages, except those that it embeds. Shared code is in packages below:
// answers asks the scheduler; plots samples the farm and draws; printed shows the output of
// commands; stored reads from storage.
//
// # Limits
//
// Requests to the scheduler take at most a twentieth of its time (answers). Lists have pages, input
// roots a maximum of files, live pages a maximum of viewers.
//
// # Access
//
// Audience returns the audience of a page; a Guard of auth lets its members through, and Refused
// answers others. Without a Guard, pages are for everyone that reaches the port. A change (drain,
// cancel) is a form that browsers send only from these pages, and can be disabled. Users log in and
// out on pages, by way of auth/login.
//
// This package has no locks; answers, plots and intake never hold two at once.
package web
