// Package web serves pages about a scheduler: why builds wait, which worker runs what, and which
// inputs of an action are never read.
//
// Pages are rendered here, from templates that are part of the program. Their data comes from the
// scheduler's own services, called without a network. The server sends the changed part of a live
// page as a server-sent event, and one small script updates the page. Without the script every page
// works, but does not update.
//
// # Structure
//
// A Site has the path and audience of each page. Each page has its own type, which uses neither the
// Site nor other pages, except those that it embeds. Shared code is in subpackages: answers asks
// the scheduler; plots samples the farm and draws charts; printed shows the output of commands;
// stored reads from storage.
//
// # Limits
//
// Requests to the scheduler take at most a twentieth of its time (answers). Lists have pages, input
// roots a maximum of files, live pages a maximum of viewers.
//
// # Access
//
// Each page has an Audience. A Guard of package auth admits its members; Refused answers other
// viewers. Without a Guard, anyone who can reach the port sees every page. A change (drain, cancel)
// is a form that browsers send only from these pages; ReadOnly disables changes. Users log in and
// out on pages of auth/login.
//
// This package has no locks; answers, plots and intake never hold two at once.
package web
