// Package drain has the active drains: patterns of workers that finish their actions and get no
// more.
package drain
