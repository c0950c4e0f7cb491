// Package view has the values of a State for people and metrics, as of its last event.
//
// core.View fills them in. Their texts are in this package.
package view
