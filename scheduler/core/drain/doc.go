// Package drain has the drains in force: patterns of workers that finish their actions and get no
// more.
package drain
