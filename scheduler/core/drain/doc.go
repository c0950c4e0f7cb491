// Package drain has the drains in force: patterns of workers that finish what they have and are given nothing more.
package drain
